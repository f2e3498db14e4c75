"""What is measured of QSGP's steps, as plain data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepSizes:
    """Of a step, but for the number of functions and of rows in all."""

    batch_size: int = 500
    """Rows."""
    basis_batch_size: int = 10_000
    """Functions in each of two draws; at most all of them."""
    num_support: int = 500
    """Support rows."""
    input_dim: int = 8
    """D."""
    num_inducing: int = 512
    """Of the SVGP."""


@dataclass(frozen=True)
class StepMemory:
    """In units of 2^20 bytes, above a process that has loaded TensorFlow and the data."""

    num_basis: int
    """m."""
    held: float
    """Means, scales, and the optimizer's memory of both."""
    grown: float
    """Resident memory after some steps."""
    peak: float
    """The most on the way, with the making of the model."""
