"""Stationary covariance matrices in few passes; patches of images and sums over them."""
