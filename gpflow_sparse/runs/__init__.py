"""The work of the commands `fit`, `predict` and `evaluate`; nothing is imported here."""
