"""A kernel as a function of the values of its trainable parameters."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gpflow
import tensorflow as tf
from gpflow.kernels import IsotropicStationary, Kernel, Linear, Sum

from gpflow_sparse.covariances.stationary import covariance, profile_of, quadratic
from gpflow_sparse.kernels.main_effects import MainEffects

Values = Sequence[tf.Tensor]


class KernelFunction:
    """
    Covariances of one kernel at many values of its hyperparameters, which no variable has to hold:
    draws of a posterior, or the points of a line search.

    Terms of a sum that are proportional to a variance, their only trainable parameter, are
    evaluated once for all values; stationary terms for all values in one batch; and other terms
    for one value after the other. Not safe for several threads at once, and independent of the
    kernel that it was made from.

    Functions of kernels of the same structure are equal: they differ in constants and values only,
    which are arguments of :meth:`evaluate`, so that one compiled function serves all of them.
    """

    def __init__(self, kernel: Kernel) -> None:
        """
        :raises ValueError: for a trainable parameter that is not an attribute of a kernel.
        """
        with tf.init_scope():  # parameters cannot be copied inside of tf.function
            self.kernel = gpflow.utilities.deepcopy(kernel)
        self._parameters = self.kernel.trainable_parameters  # in the order of the kernel's own
        self._places = self._owners()
        self._terms = terms_of(self.kernel)
        self._numbers = [self._number_of(scale_of(term)) for term in self._terms]
        pairs = zip(self._terms, self._numbers, strict=True)
        parts = [self._structure_of(term, number) for term, number in pairs]
        self.is_shareable = all(part is not None for part in parts)
        """Whether the function depends on nothing but its structure and its arguments."""
        self._structure: tuple[Any, ...] = tuple(parts) if self.is_shareable else (id(self),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KernelFunction) and self._structure == other._structure

    def __hash__(self) -> int:
        return hash(self._structure)

    def between(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> Callable[[Values], tf.Tensor]:
        """
        The function from S values of the parameters to ``k(X, X2) [S, N, N2]``, or to ``k(X, X)``.

        The values ``[S, ...]``, in the order of ``kernel.trainable_parameters``, are constrained:
        lengthscales rather than their unconstrained variables.
        """
        constants = self.constants(X, X2)
        return lambda values: self.evaluate(values, constants, X, X2)

    def constants(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> list[tf.Tensor]:
        """Covariances ``[N, N2]`` of the terms that are evaluated once, at unit variance."""
        return [
            covariance(term, X, X2) / self._parameters[number]
            for term, number in zip(self._terms, self._numbers, strict=True)
            if number is not None
        ]

    def evaluate(
        self,
        values: Values,
        constants: Sequence[tf.Tensor],
        X: tf.Tensor,
        X2: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """
        ``k(X, X2) [S, N, N2]``, or ``k(X, X)``.

        :param values: as in :meth:`between`.
        :param constants: of :meth:`constants` for the same inputs.
        """
        left, total = iter(constants), []
        for term, number in zip(self._terms, self._numbers, strict=True):
            if number is not None:
                total.append(values[number][:, None, None] * next(left))
            elif _is_isotropic(term):
                total.append(_stationary(term, self._own_values(term, values), X, X2))
            else:
                total.append(self._by_value(values, _between(term, X, X2), X.dtype))
        return tf.add_n(total)

    def diagonal(self, values: Values, X: tf.Tensor) -> tf.Tensor:
        """``k(x, x) [S, N]`` of every row."""
        pairs = zip(self._terms, self._numbers, strict=True)
        return tf.add_n([self._diagonal_of(*pair, values, X) for pair in pairs])

    def _diagonal_of(
        self, term: Kernel, number: int | None, values: Values, X: tf.Tensor
    ) -> tf.Tensor:
        if number is not None:
            return values[number][:, None] * (term(X, full_cov=False) / self._parameters[number])
        if _is_isotropic(term):
            return self._own_values(term, values)["variance"][:, None] + tf.zeros_like(X[:, 0])
        return self._by_value(values, lambda: term(X, full_cov=False), X.dtype)

    def _structure_of(self, term: Kernel, number: int | None) -> tuple[Any, ...] | None:
        """What the function of a term depends on beside its arguments; None if on its kernel."""
        if number is not None:
            return (number,)
        if not _is_isotropic(term) or not type(term).__module__.startswith("gpflow."):
            return None
        own = term.variance, term.lengthscales
        numbers = [n for n, p in enumerate(self._parameters) if any(p is part for part in own)]
        # GPflow's profile of a rough kernel reads its variance, in the type of the values
        dtype = term.variance.dtype
        whole = isinstance(term.active_dims, slice) and term.active_dims == slice(None)
        return (type(term), dtype, *numbers) if len(numbers) == 2 and whole else None

    def _own_values(self, term: Kernel, values: Values) -> Mapping[str, tf.Tensor]:
        """Variance ``[S or 1]`` and lengthscales ``[S or 1, ...]`` of a stationary term."""
        by_id = {id(p): value for p, value in zip(self._parameters, values, strict=True)}
        return {
            name: by_id.get(
                id(getattr(term, name)), tf.convert_to_tensor(getattr(term, name))[None]
            )
            for name in ("variance", "lengthscales")
        }

    def _by_value(
        self, values: Values, function: Callable[[], tf.Tensor], dtype: tf.DType
    ) -> tf.Tensor:
        """Results of a function for each of the values, stacked."""
        if not values:
            return function()[None]

        @tf.autograph.experimental.do_not_convert
        def of_one(one: Values) -> tf.Tensor:
            with self._holding(one):
                return function()

        return tf.map_fn(of_one, tuple(values), fn_output_signature=dtype)

    def _owners(self) -> list[list[tuple[Any, str]]]:
        """Attributes that hold each parameter: the namespaces of kernels, and their names."""
        kernels = [self.kernel, *(m for m in self.kernel.submodules if isinstance(m, Kernel))]
        held = [(vars(k), name, value) for k in kernels for name, value in vars(k).items()]
        found = [
            [(namespace, name) for namespace, name, value in held if value is parameter]
            for parameter in self._parameters
        ]
        if not all(found):
            raise ValueError(
                f"kernel must hold its parameters as attributes of {type(self.kernel).__name__} "
                "or of the kernels in it; one of them is in a list or another object."
            )
        return found

    def _number_of(self, scale: gpflow.Parameter | None) -> int | None:
        """The number of the variance that a term is proportional to; None for another term."""
        return next((n for n, p in enumerate(self._parameters) if p is scale), None)

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


def terms_of(kernel: Kernel) -> list[Kernel]:
    """The terms of a sum, or the kernel itself."""
    return list(kernel.kernels) if type(kernel) is Sum else [kernel]


def scale_of(term: Kernel) -> gpflow.Parameter | None:
    """
    The variance that a kernel is proportional to, where that is its only trainable parameter; or
    None.
    """
    single = term.base if isinstance(term, MainEffects) else term
    if not isinstance(single, IsotropicStationary | Linear):
        return None
    variance = single.variance
    if type(single).__module__.startswith("gpflow."):  # a search of the module takes a millisecond
        parts = vars(single).values()
        trainable = [p for p in parts if isinstance(p, gpflow.Parameter) and p.trainable]
    else:
        trainable = list(term.trainable_parameters)
    alone = len(trainable) == 1 and trainable[0] is variance and variance.shape.rank == 0
    return variance if alone else None


def _is_isotropic(kernel: Kernel) -> bool:
    """Whether a kernel is a variance times a function of the distance in lengthscales."""
    is_isotropic = isinstance(kernel, IsotropicStationary)
    own = {id(kernel.variance), id(kernel.lengthscales)} if is_isotropic else set()
    return (
        is_isotropic
        and type(kernel).K is IsotropicStationary.K
        and all(id(p) in own for p in kernel.trainable_parameters)
    )


def _between(term: Kernel, X: tf.Tensor, X2: tf.Tensor | None) -> Callable[[], tf.Tensor]:
    return lambda: covariance(term, X, X2)


def _stationary(
    kernel: Kernel, values: Mapping[str, tf.Tensor], X: tf.Tensor, X2: tf.Tensor | None
) -> tf.Tensor:
    """``k(X, X2) [S, N, N2]`` of a stationary kernel, or ``k(X, X)`` with the diagonal exact."""
    variance, lengthscales = values["variance"], values["lengthscales"]
    X, other = kernel.slice(X, X if X2 is None else X2)
    # distances do not depend on a common shift
    center = tf.reduce_mean(other, axis=0)
    scales = tf.reshape(lengthscales, [tf.shape(lengthscales)[0], 1, -1])  # [S, 1, D or 1]
    scaled, scaled2 = ((part - center) / scales for part in (X, other))  # [S, N, D]
    profile = profile_of(kernel)
    if profile is None:
        squares = tf.maximum(quadratic(scaled, scaled2, 1.0, 0.0), 0.0)
        unit = kernel.K_r2(squares) / tf.convert_to_tensor(kernel.variance)
    else:
        unit = _of_profile(profile.evaluate, quadratic(scaled, scaled2, profile.scale, 0.0))
    if X2 is None:
        unit = tf.linalg.set_diag(unit, tf.ones_like(tf.linalg.diag_part(unit)))
    return variance[:, None, None] * unit


def _of_profile(evaluate: Callable[..., Any], squares: tf.Tensor) -> tf.Tensor:
    """Values of a profile, with its derivative as the gradient."""

    @tf.custom_gradient
    def unit(squares: tf.Tensor) -> Any:
        K, slope = evaluate(squares)
        return K, lambda dK: dK * slope

    return unit(squares)
