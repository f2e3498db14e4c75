"""Gaussian inference shared by several methods: blocks, bounds, rotations, samplers."""
