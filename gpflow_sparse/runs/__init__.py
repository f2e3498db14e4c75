"""What the commands `fit`, `predict` and `evaluate` run; nothing is imported here."""
