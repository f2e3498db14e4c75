"""Linear algebra and numerics, independent of Gaussian processes."""
