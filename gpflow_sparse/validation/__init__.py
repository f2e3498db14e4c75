"""Checks of arrays, labels, components and arguments of public methods."""
