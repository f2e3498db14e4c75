"""Deep Gaussian processes with layers of any kind."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, get_check_shapes
from gpflow import Parameter
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from gpflow.posteriors import PrecomputeCacheType

from gpflow_sparse.inference.residual_bounds import Terms
from gpflow_sparse.models.base import VariationalModel
from gpflow_sparse.models.deep.layer_posterior import SAMPLING
from gpflow_sparse.models.deep.layers import ConvLayer, GPLayer
from gpflow_sparse.models.deep.posterior import DeepPosterior
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import public_method


class DeepGP(VariationalModel):
    r"""
    Doubly stochastic variational inference for ``f = f_L(...(f_1(x)))``.

        elbo = (num_data / batch) sum_n mean_s E[log p(y_n | f_ns)] - sum_l KL_l

    where hidden layers are drawn, ``h = mean + sqrt(var) eps``, with independent noise for every
    row and sample, and the last layer's expectation is taken as in a shallow model. Salimbeni and
    Deisenroth, "Doubly Stochastic Variational Inference for Deep Gaussian Processes" (2017,
    arXiv:1705.08933); with orthogonal sets in the layers, Shi, Titsias and Mnih
    (2020, arXiv:1910.10596v5), section 4, eq. (39) (``docs/errata.md``, S5, S6 and C2).

    A row of a fully connected layer depends on that row alone, and the objective is a lower bound
    on the evidence. Patches of one image are correlated: with ``sampling="marginal"``, which the
    papers take, the objective is not a bound for this model, but for one whose layers add
    independent noise to each patch. "shared_inducing" keeps the correlation under q, at lower cost;
    "joint" keeps all correlation, with a factorization of all patches of every image.

    Time per step: the sum over layers, all but the first with ``num_samples`` times as many rows.
    """

    _takes_no_rows = "the best q of its layers has no closed form"

    def __init__(
        self,
        layers: Sequence[GPLayer],
        likelihood: Likelihood,
        *,
        num_data: int | None = None,
        num_samples: int = 1,
        sampling: str = "marginal",
        num_prediction_samples: int = 10,
        seed: int | None = None,
        bound: str = "standard",
    ) -> None:
        """
        :param layers: first to last; the last may have a convolutional kernel, but
            :class:`ConvLayer` is for hidden layers.
        :param likelihood: any GPflow likelihood.
        :param num_data: number of training rows N, so that a minibatch counts for all of them.
        :param num_samples: draws of the hidden layers for each row of a step.
        :param sampling: "marginal", "shared_inducing" or "joint", see above.
        :param num_prediction_samples: number of draws that predictions are averaged over.
        :param seed: None for new draws in every step; with a number the draws are fixed, the same
            for every row, so that the elbo is deterministic, as L-BFGS needs it.
        :param bound: "standard", or "log" for the last layer: see :class:`VariationalModel`.
        :raises ValueError: for layers that do not fit each other, and wrong options.
        """
        self.layers = _require_layers(layers)
        self.num_samples = num_samples
        self.sampling = sampling
        self.num_prediction_samples = num_prediction_samples
        self.seed = seed
        last = self.layers[-1]
        super().__init__(
            last.kernel,
            likelihood,
            mean_function=last.mean_function,
            num_latent_gps=last.num_latent_gps,
            num_data=num_data,
            bound=bound,
        )
        self._require_parts(self.input_dim)

    @property
    def kernel(self) -> Kernel:
        """Kernel of the last layer."""
        return self._last.kernel

    @kernel.setter
    def kernel(self, value: Kernel) -> None:
        self._last.kernel = value

    @property
    def mean_function(self) -> MeanFunction:
        """Mean function of the last layer."""
        return self._last.mean_function

    @mean_function.setter
    def mean_function(self, value: MeanFunction) -> None:
        self._last.mean_function = value

    @property
    def input_dim(self) -> int | None:
        return _require_layers(self.layers)[0].input_dim

    @property
    def dtype(self) -> tf.DType:
        return self._last.dtype

    @property
    def variational_parameters(self) -> tuple[tuple[Parameter, Parameter], ...]:
        """
        Pairs ``(q_mu, q_sqrt)`` of the last layer, for natural-gradient steps: only in the last q
        does the objective have the form of a shallow model.
        """
        return self._last.variational_parameters

    def _make_posterior(self, **options: Any) -> DeepPosterior:
        return self._posterior(self.sampling, options["precompute_cache"])

    @public_method("the elbo")
    @check_shapes("data[0]: [N, D]", "data[1]: [N, P]", "return: []")
    def elbo(
        self, data: tuple[tf.Tensor, tf.Tensor], eps: Sequence[Any] | None = None
    ) -> tf.Tensor:
        """
        The bound, or its unbiased estimate: from a minibatch if ``num_data`` is set, and from new
        draws of the hidden layers at every call unless ``seed`` is.

        :param data: ``(X [N, D], Y [N, P])``.
        :param eps: the draws, see :meth:`propagate`.
        :return: scalar, in nats.
        :raises ValueError: for data that do not fit the model, eagerly and when tracing.
        """
        X, Y = data
        terms = self._terms(X, eps)
        samples = int(np.shape(eps[0])[0]) if eps else self._samples
        repeated = tf.repeat(X, samples, axis=0), tf.repeat(Y, samples, axis=0)
        weight = self._weight(X, terms.kl.dtype)
        return weight / samples * self._sum_over_rows(repeated, terms) - terms.kl

    @public_method()
    @check_shapes("return[0]: [S, N, P]", "return[1]: [S, N, P]")
    def propagate(self, X: Any, eps: Sequence[Any] | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Moments of the last layer given draws of the hidden ones.

        :param X: ``[N, D]``.
        :param eps: standard normal draws, one ``[S, N, .]`` for each hidden layer: with as many
            columns as its output; for "shared_inducing" in layers of patches with
            ``model.posterior().noise_sizes`` columns. None for new draws, or the draws of ``seed``.
        :return: mean and variance ``[S, N, P]``.
        :raises ValueError: for inputs or noise of another shape.
        """
        mean, var, *_ = self._terms(X, eps)
        shape = [tf.shape(X)[0], -1, mean.shape[-1]]
        mean, var = (tf.transpose(tf.reshape(m, shape), [1, 0, 2]) for m in (mean, var))
        return mean, var

    @public_method("the draw", prediction=True)
    @get_check_shapes(GPModel.predict_f_samples)
    def predict_f_samples(
        self,
        Xnew: tf.Tensor,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """
        Draws of f through all layers, which are not Gaussian.

        :param Xnew: ``[N, D]``.
        :param num_samples: S; None for one draw without the leading axis.
        :param full_cov: draws that are joint over inputs; time O(N^3) in every layer.
        :return: ``[S, N, P]``, or ``[N, P]``.
        """
        if Xnew.shape.rank != 2:
            raise ValueError(f"Xnew must have shape [N, D], got {tuple(Xnew.shape)}.")
        if full_output_cov:
            raise ValueError("full_output_cov must be False: outputs are drawn independently.")
        posterior = self.posterior(None)
        drawn = posterior.draw(Xnew, num_samples or 1, full_cov)
        return drawn[0] if num_samples is None else drawn

    @property
    def _last(self) -> GPLayer:
        """The last layer, read at every call because layers can be assigned."""
        return _require_layers(self.layers)[-1]

    @property
    def _samples(self) -> int:
        return self.num_samples if len(self.layers) > 1 else 1

    def _posterior(
        self, sampling: str, precompute_cache: PrecomputeCacheType | str | None
    ) -> DeepPosterior:
        return DeepPosterior(
            [
                *(layer.posterior(self.jitter) for layer in self.layers[:-1]),
                self._last.posterior(self.jitter, self.calibration),
            ],
            sampling=sampling,
            num_samples=self.num_prediction_samples,
            seed=self.seed or 0,
            precompute_cache=precompute_cache,
            calibration=self.calibration,
        )

    def _terms(self, X: tf.Tensor, eps: Sequence[Any] | None) -> Terms:
        posterior = self._posterior(self.sampling, None)
        if eps is not None:
            noise = _as_noise(eps, X, posterior.noise_sizes)
        elif self.seed is None:
            noise = posterior.noise(X, self._samples)
        else:
            noise = posterior.frozen_noise(X, self._samples)
        return posterior.sampled_terms(X, noise)

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        layers = _require_layers(self.layers)
        checks.require_count(self.num_samples, "num_samples")
        checks.require_count(self.num_prediction_samples, "num_prediction_samples")
        checks.require_choice(self.sampling, "sampling", SAMPLING)
        if self.seed is not None:
            checks.require_seed(self.seed)
        for layer in layers:
            layer._require_parts()
            layer._require_shapes()
            component_checks.require_dtype(layer, "layers", dtype or gpflow.default_float())
        if layers[0].grid is None:
            component_checks.require_kernel(layers[0].kernel, num_columns, "layers[0].kernel")
        super()._require_parts(num_columns if len(layers) == 1 else layers[-2].output_dim, dtype)


def _require_layers(layers: Any) -> tuple[GPLayer, ...]:
    """:raises ValueError: unless they are layers, each of which fits the previous one."""
    if not isinstance(layers, Sequence) or not layers:
        raise ValueError("layers must be a list of gs.models.GPLayer or ConvLayer, first to last.")
    for i, layer in enumerate(layers):
        if not isinstance(layer, GPLayer):
            raise ValueError(
                f"layers[{i}] must be a gs.models.GPLayer or ConvLayer, got {type(layer).__name__}."
            )
        before = layers[i - 1].output_dim if i else None
        if None not in (before, layer.input_dim) and before != layer.input_dim:
            raise ValueError(
                f"layers[{i}] takes {layer.input_dim} columns, but layers[{i - 1}] returns "
                f"{before}."
            )
    if isinstance(layers[-1], ConvLayer):
        raise ValueError(
            "the last layer must be a GPLayer, whose kernel may be gs.kernels.Convolutional: a "
            "ConvLayer returns an image."
        )
    return tuple(layers)


def _as_noise(eps: Any, X: tf.Tensor, sizes: Sequence[int]) -> list[tf.Tensor]:
    """
    Given draws in the layout ``[N, S, .]``, one for each hidden layer.

    :param eps: ``[S, N, .]`` each.
    :param X: ``[N, D]``.
    :param sizes: number of standard normal draws per row for each layer.
    :raises ValueError: for another number of arrays, or arrays of other shapes.
    """
    if not isinstance(eps, Sequence) or len(eps) != len(sizes):
        found = len(eps) if isinstance(eps, Sequence) else type(eps).__name__
        raise ValueError(
            f"eps must be a list of one array for each of {len(sizes)} hidden layers, got {found}."
        )
    noise = [checks.as_tensor(part, f"eps[{i}]", X.dtype) for i, part in enumerate(eps)]
    samples = next((part.shape[0] for part in noise if part.shape.rank == 3), None)
    for i, (part, size) in enumerate(zip(noise, sizes, strict=True)):
        if not samples or not part.shape.is_compatible_with((samples, X.shape[0], size)):
            raise ValueError(
                f"eps[{i}] must have shape [S, N, {size}] with the same S of at least 1 for all "
                f"layers and N = {X.shape[0]} rows, got {tuple(part.shape)}."
            )
    return [tf.transpose(part, [1, 0, 2]) for part in noise]
