"""Gaussian algebra that several methods share."""
