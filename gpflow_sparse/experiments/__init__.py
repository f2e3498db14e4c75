"""Whole runs: what the command line, the benchmarks and the examples are made of.

Nothing is imported here, so that the command line can read defaults without TensorFlow.
"""
