"""A kernel as a function of the values of its trainable parameters."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import gpflow
import tensorflow as tf
from gpflow.kernels import IsotropicStationary, Kernel, Linear, Sum

from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.kernels.main_effects import MainEffects

Values = Sequence[tf.Tensor]


class KernelFunction:
    """
    Covariances of one kernel at many values of its hyperparameters, which no variable has to hold:
    draws of a posterior, or the points of a line search.

    Terms of a sum that are proportional to a variance, their only trainable parameter, are
    evaluated once for all values. Not safe for several threads at once, and independent of the
    kernel that it was made from.
    """

    def __init__(self, kernel: Kernel) -> None:
        """
        :raises ValueError: for a trainable parameter that is not an attribute of a kernel.
        """
        self._kernel = gpflow.utilities.deepcopy(kernel)
        self._parameters = self._kernel.trainable_parameters  # in the order of the kernel's own
        self._places = [self._owners(parameter) for parameter in self._parameters]
        terms = self._kernel.kernels if type(self._kernel) is Sum else [self._kernel]
        numbers = [self._scale_of(term) for term in terms]
        self._scaled = [(n, t) for n, t in zip(numbers, terms, strict=True) if n is not None]
        self._others = [t for n, t in zip(numbers, terms, strict=True) if n is None]

    def between(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> Callable[[Values], tf.Tensor]:
        """
        The function from values of the parameters to ``k(X, X2) [N, N2]``, or to ``k(X, X)``.

        The values, in the order of ``kernel.trainable_parameters``, are constrained: lengthscales
        rather than their unconstrained variables.
        """
        constants = [
            (number, covariance(term, X, X2) / self._parameters[number])
            for number, term in self._scaled
        ]

        def at(values: Values) -> tf.Tensor:
            with self._holding(values):
                parts = [covariance(term, X, X2) for term in self._others]
            return tf.add_n([*parts, *(values[number] * K for number, K in constants)])

        return at

    def diagonal(self, values: Values, X: tf.Tensor) -> tf.Tensor:
        """``k(x, x) [N]`` of every row."""
        with self._holding(values):
            return self._kernel(X, full_cov=False)

    def _owners(self, parameter: gpflow.Parameter) -> list[tuple[dict, str]]:
        """Attributes that hold a parameter: the namespaces of their kernels, and their names."""
        kernels = [self._kernel, *(m for m in self._kernel.submodules if isinstance(m, Kernel))]
        found = [(vars(k), name) for k in kernels for name, v in vars(k).items() if v is parameter]
        if not found:
            raise ValueError(
                f"kernel must hold its parameters as attributes of {type(self._kernel).__name__} "
                "or of the kernels in it; one of them is in a list or another object."
            )
        return found

    def _scale_of(self, term: Kernel) -> int | None:
        """The number of the variance that a term is proportional to; None for another term."""
        single = term.base if isinstance(term, MainEffects) else term
        if not isinstance(single, IsotropicStationary | Linear):
            return None
        known = [n for n, p in enumerate(self._parameters) if p is single.variance]
        alone = len(term.trainable_parameters) == 1 and single.variance.shape.rank == 0
        return known[0] if known and alone else None

    @contextlib.contextmanager
    def _holding(self, values: Values) -> Iterator[None]:
        """Tensors in place of the parameters."""
        try:
            for places, value in zip(self._places, values, strict=True):
                for namespace, name in places:
                    namespace[name] = value
            yield
        finally:
            for places, parameter in zip(self._places, self._parameters, strict=True):
                for namespace, name in places:
                    namespace[name] = parameter
