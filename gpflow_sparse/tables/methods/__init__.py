"""One declaration per method for tables, and the registry."""
