"""ODVGP: orthogonally decoupled variational GPs, with more inducing points for the mean."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from gpflow_sparse.inducing_variables import OrthogonalInducingVariables
from gpflow_sparse.models.solvegp.model import OrthogonalModel
from gpflow_sparse.models.solvegp.odvgp_posterior import DecoupledPosterior
from gpflow_sparse.posteriors.base import SparsePosterior
from gpflow_sparse.validation import checks


class ODVGP(OrthogonalModel):
    """
    SVGP on Z with M2 additional inducing points O for the mean only.

    The special case of SOLVE-GP in which the orthogonal set keeps its prior covariance. Without a
    factor of size M2, and with the KL estimated from ``num_penalty_samples`` columns, a step is
    linear in M2. The variance is the variance of SVGP on Z: where it is too large, SOLVE-GP is the
    better choice.

    Salimbeni, Cheng, Boots and Deisenroth, "Orthogonally decoupled variational Gaussian processes"
    (2018), in the form of Shi, Titsias and Mnih (2020, arXiv:1910.10596v5), section 5. The mean of
    O has the weights ``alpha = Cvv^-1 mv``, without which the cost is not linear
    (``docs/errata.md``, S12), and the parameters ``w``, those weights scaled so that first-order
    optimizers are fast: see :class:`~gpflow_sparse.posteriors.DecoupledPosterior`.

    ``q_mu = (mu [M, L], w [M2, L])``, ``q_sqrt = (q_sqrt [L, M, M],)``. Natural gradients update
    ``mu`` and ``q_sqrt``, the optimizer ``w``.

    Time per step on a batch of n rows: O((n + M) M (M + M2) + M2 s) with s columns.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: OrthogonalInducingVariables,
        *,
        num_penalty_samples: int | None = None,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        whiten: bool = True,
        q_mu: Sequence[Any] | None = None,
        q_sqrt: Sequence[Any] | None = None,
        num_data: int | None = None,
        bound: str = "standard",
    ) -> None:
        """
        :param kernel: as for :class:`gpflow_sparse.models.SOLVEGP`.
        :param inducing_variable: a base set and one orthogonal set.
        :param num_penalty_samples: s, columns of Cvv drawn at each ``elbo``, which is then an
            unbiased estimate of the bound; None for all of them. ``prior_kl`` always takes all.
        :param whiten: parametrize the base set's q relative to its prior.
        :param q_mu: starting values ``(mu, w)``; default zero.
        :param q_sqrt: starting value ``(q_sqrt,)``; default the prior's.
        :param num_data: N, the number of training rows,
        :param bound: "standard" or "log": see :class:`VariationalModel`.
        :raises ValueError: for arguments of a wrong kind or of shapes that do not match.
        """
        self.num_penalty_samples = num_penalty_samples
        super().__init__(
            kernel,
            likelihood,
            inducing_variable,
            mean_function=mean_function,
            num_latent_gps=num_latent_gps,
            whiten=whiten,
            q_mu=q_mu,
            q_sqrt=q_sqrt,
            num_data=num_data,
            bound=bound,
        )

    _takes_no_rows = (
        "the covariance of its orthogonal set is the prior's, so that its q does not tell how well "
        "the old rows determine that set"
    )

    @property
    def variational_shapes(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        sizes, latents = self.inducing_variable.sizes, self.num_latent_gps
        return [(size, latents) for size in sizes], [(latents, sizes[0], sizes[0])]

    @property
    def input_dim(self) -> int | None:
        input_dim = super().input_dim
        sets = self.inducing_variable.sets
        if len(sets) != 2:
            raise ValueError(
                f"inducing_variable must have a base set and one orthogonal set, got {len(sets)} "
                "set(s); join the orthogonal sets into one, or use SOLVEGP."
            )
        if self.num_penalty_samples is None:
            return input_dim
        checks.require_count(self.num_penalty_samples, "num_penalty_samples")
        if type(sets[1]) is not InducingPoints:
            raise ValueError(
                "num_penalty_samples must be None for inducing variables that are not inputs of f, "
                f"such as {type(sets[1]).__name__}."
            )
        if self.num_penalty_samples > self.inducing_variable.sizes[1]:
            raise ValueError(
                f"num_penalty_samples must be at most M2 = {self.inducing_variable.sizes[1]}, got "
                f"{self.num_penalty_samples}; None takes all."
            )
        return input_dim

    @property
    def _single_output_posterior(self) -> Callable[..., SparsePosterior]:  # type: ignore[override]
        return partial(DecoupledPosterior, num_penalty_samples=self.num_penalty_samples)
