"""Files and columns of tables, as matrices of numbers."""
