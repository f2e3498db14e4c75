"""Fast matrices of stationary kernels, and grids of image patches."""
