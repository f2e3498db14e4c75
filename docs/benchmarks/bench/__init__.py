"""Benchmarks and the papers' tables; nothing is imported here."""
