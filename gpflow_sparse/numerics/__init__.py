"""Linear algebra and numerics without a word of Gaussian processes."""
