"""Matrices of stationary kernels in few passes over memory; grids of image patches."""
