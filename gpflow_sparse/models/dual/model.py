"""Exact GP regression with a basis function at every training row, solved in the dual."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel

from gpflow_sparse.bases.fourier import draw_frequencies, require_num_features
from gpflow_sparse.covariances.stationary import covariance
from gpflow_sparse.models.dual import solver
from gpflow_sparse.models.dual.gradients import QuadraticForms
from gpflow_sparse.models.dual.posterior import DualPosterior
from gpflow_sparse.models.dual.solver import DualOptions, DualSolution, DualState, System
from gpflow_sparse.models.dual.steps import FEW_PASSES, HyperparameterStep, fit_hyperparameters
from gpflow_sparse.models.regression import RegressionModel
from gpflow_sparse.models.snapshot import Snapshot
from gpflow_sparse.models.training_data import read
from gpflow_sparse.posteriors.pathwise import PriorPaths, Sampler, stack
from gpflow_sparse.validation import checks, component_checks
from gpflow_sparse.validation.public_methods import public_method

_NO_OBJECTIVE = (
    "DualGPR has no objective: the log determinant in the log marginal likelihood takes a Cholesky "
    "factorization of N rows. Start from gs.initialization.local_hyperparameters, and take steps "
    "with model.fit_hyperparameters, which needs only gradients."
)
_NOT_SOLVED = "the model has no weights yet: call solve()."
_STALE = (
    "parameters or data of the model have changed since solve(): call it again; it starts from "
    "the present weights."
)


class DualGPR(RegressionModel):
    r"""
    Exact GP regression with Gaussian noise: a basis function at every training row.

    :meth:`solve` computes the representer weights ``(K + Sigma)^-1 (y - m(X))`` by randomized
    block Gauss-Seidel, see :mod:`gpflow_sparse.models.dual.solver`, without the N x N matrix in
    memory, to a relative residual instead of in N^3 / 3 operations. In the same passes it solves
    for ``num_paths`` draws of the prior and of the noise, from which variances, covariances and
    functions of the posterior follow: see :class:`gpflow_sparse.posteriors.DualPosterior`. A
    variance has a standard error of the fraction ``sqrt(2 / (num_paths P))`` of itself;
    :meth:`predict_f_directly` has none.

    The model predicts after :meth:`solve`, and refuses to after kernel, noise, mean function or
    data have changed. The value of its objective is not known, but its gradient is:
    hyperparameters start from ``gs.initialization.local_hyperparameters``, and
    :meth:`fit_hyperparameters` improves them.

    Time O(N^2 (D + P num_paths) + N b^2) for each pass over blocks of b rows, memory O(N (D + P
    num_paths)); predictions O(N (D + P num_paths)) per row.
    """

    def __init__(
        self,
        data: tuple[Any, Any],
        kernel: Kernel,
        *,
        noise_variance: Any,
        row_noise: Any = None,
        num_paths: int = 64,
        num_features: int = 1024,
        mean_function: MeanFunction | None = None,
        seed: int = 0,
    ) -> None:
        """
        :param data: ``(X [N, D], Y [N, P])``.
        :param kernel: SquaredExponential, Matern12, Matern32, Matern52 or a Product of such, which
            have random Fourier features; all outputs share it.
        :param noise_variance: value of ``model.likelihood.variance``, the noise of new
            observations.
        :param row_noise: known noise variance of each training row in addition, ``[N]``, in units
            of Y squared; zero by default.
        :param num_paths: number of draws for variances and functions, for each output.
        :param num_features: random Fourier features of each draw, even.
        :param mean_function: added to the prior mean; zero by default.
        :param seed: seed of the draws.
        :raises ValueError: for arguments of a wrong kind or that do not fit each other.
        """
        super().__init__(data, kernel, mean_function=mean_function, noise_variance=noise_variance)
        self.num_paths = checks.require_count(num_paths, "num_paths")
        require_num_features(num_features)
        self.num_features, self.seed = num_features, checks.require_seed(seed)
        self.row_noise = None if row_noise is None else checks.as_tensor(row_noise, "row_noise")
        self.weights = DualWeights(self.path_shape, self.dtype)
        self._require_parts(self.input_dim, self.dtype)
        self._require_data(self.data)
        # refuses kernels without random Fourier features before anything is solved
        draw_frequencies(kernel, 1, self.path_shape[2], np.random.default_rng(0))

    @public_method()
    def solve(
        self,
        options: DualOptions | None = None,
        *,
        state: DualState | None = None,
        callback: Callable[[DualState], None] | None = None,
    ) -> DualSolution:
        """
        Compute the weights for the present parameters, starting from the weights of the last call.

        :param options: options of the block solver; its defaults if None.
        :param state: state of an earlier call with the same parameters and options, given to its
            callback or in its result: the passes after it are then the same, to the last bit.
        :param callback: called after each pass, with the state.
        :return: the state after the last pass, and the relative residual. There is a warning if
            that is not yet the tolerance of ``options``; call again for more passes. After Ctrl-C
            the model has the weights of the passes that were complete.
        :raises ConvergenceError: if the residual grows or no longer falls, a ValueError that says
            what helps.
        """
        options = solver.require_options(options, "solve")
        solution = self.find_weights(options, state=state, callback=callback)
        solver.warn_unless_converged(solution, options, "solve")
        return solution

    def find_weights(
        self,
        options: DualOptions,
        *,
        state: DualState | None = None,
        callback: Callable[[DualState], None] | None = None,
        system: System | None = None,
    ) -> DualSolution:
        """
        :meth:`solve` without the warning.

        :param system: a system of the same rows, for other parameters, to be used again.
        """
        component_checks.validate_components(self)
        X, B, prior = self._right_hand_sides()
        system = system or System(self.kernel, X, self.num_columns, options)
        start = None if state is not None else self.weights.start(B.shape)
        last: list[DualState] = []

        def keep(state: DualState) -> None:
            last[:] = [state]
            if callback is not None:
                callback(state)

        right = self._row_noises(X), B
        try:
            solution = system.solve(self.kernel, *right, weights=start, state=state, callback=keep)
            last = [solution.state]
        finally:  # also after Ctrl-C
            if last:
                self.weights.update(last[0].weights, prior, self._parts(), self._rows())
        return solution

    @public_method()
    def fit_hyperparameters(
        self,
        num_steps: int = 10,
        *,
        num_rows: int | None = None,
        optimizer: Any = None,
        options: DualOptions | None = None,
        callback: Callable[[HyperparameterStep], Any] | None = None,
    ) -> list[HyperparameterStep]:
        """
        Steps of an optimizer on the log marginal likelihood: on all trainable parameters of kernel,
        likelihood and mean function, with their priors. Call :meth:`solve` after it.

        Each step solves for the present parameters, from the weights of the step before and in a
        few passes, and takes the gradient of :meth:`estimate_gradients`. The draws are the same in
        all steps. A step costs the passes, and about two more.

        :param num_rows: number of random rows, the same in all steps, of which the likelihood is;
            None for all.
        :param optimizer: Keras optimizer, by default Adam with rate 0.1.
        :param options: options of the solves between steps, by default at most 5 passes to a
            relative residual of 0.01. Residuals are not computed in float64.
        :param callback: called after each step.
        :raises ConvergenceError: a ValueError, if a solve stalls or ends above a relative residual
            of 0.5; the model then has the parameters of the step before.
        """
        few = FEW_PASSES if options is None else options
        options = solver.require_options(few, "fit_hyperparameters")
        return fit_hyperparameters(self, num_steps, num_rows, optimizer, options, callback)

    @public_method()
    def estimate_gradients(self, precision: str = "float32") -> list[tuple[tf.Tensor, tf.Variable]]:
        """
        Gradients of the log marginal likelihood of all the data plus the log prior density of the
        parameters, with respect to ``trainable_variables``.

        The trace in it is estimated from the ``num_paths`` draws, without bias over their seeds;
        see :mod:`gpflow_sparse.models.dual.gradients`. The weights must be solved for the present
        parameters; their relative residual is an error of the gradients too.

        :param precision: type of the covariances: "float32", or "float64".
        :return: ``(gradient, variable)`` pairs: :meth:`solve`, this, and
            ``optimizer.apply_gradients`` with the signs changed, make a step uphill.
        :raises ValueError: as :meth:`posterior`.
        """
        checks.require_choice(precision, "precision", solver.PRECISIONS)
        X, _ = self._rows()
        return self.find_gradients(QuadraticForms(self.kernel, X, self.num_columns, precision))

    def find_gradients(self, forms: QuadraticForms) -> list[tuple[tf.Tensor, tf.Variable]]:
        """:meth:`estimate_gradients` by quadratic forms of the model's kernel and rows."""
        X, _ = rows = self._rows()
        weights, _ = self.weights.read(self._parts(), rows)
        A, P = tf.cast(weights, tf.float64), self.num_latent_gps  # [N, P + S P]
        halves = np.full(self.num_columns, 0.5)
        halves[P:] /= -self.num_paths
        squares = tf.linalg.matvec(tf.square(A), halves)  # [N]
        slopes = forms.gradients(A, halves)
        variables = self.trainable_variables
        with tf.GradientTape() as tape:  # of a function that has the gradients sought
            total = tf.reduce_sum(squares * self._row_noises(X))
            total += tf.reduce_sum(A[:, :P] * tf.cast(self.mean_function(X), tf.float64))
            for parameter, slope in zip(self.kernel.parameters, slopes, strict=True):
                total += tf.reduce_sum(slope * tf.cast(parameter, tf.float64))
            total += tf.cast(self.log_prior_density(), tf.float64)
        gradients = tape.gradient(total, variables, unconnected_gradients="zero")
        return list(zip(gradients, variables, strict=True))

    @public_method()
    def predict_f_directly(
        self, Xnew: tf.Tensor, full_cov: bool = False, options: DualOptions | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean and (co)variance for few rows, without the error of ``num_paths`` draws.

        One solve with a right-hand side for each row. Its error enters the variance squared, and
        only makes it larger.

        :param Xnew: ``[n, D]``.
        :param full_cov: covariance between rows, ``[P, n, n]``.
        :return: mean ``[n, P]``, and variance ``[n, P]`` or covariance.
        """
        options = solver.require_options(options, "predict_f_directly")
        mean, _ = self.predict_f(Xnew)
        X, _ = self._rows()
        k = tf.cast(covariance(self.kernel, X, Xnew), tf.float64)  # [N, n]
        solution = solver.solve(self.kernel, X, self._row_noises(X), k, options)
        V = tf.constant(solution.state.weights)  # (K + Sigma)^-1 k
        # k^T V is off by V's error; V^T residuals corrects it to the square of that error
        explained = tf.linalg.matmul(V, k + solution.residuals, transpose_a=True)  # [n, n]
        prior = tf.cast(self.kernel(Xnew, full_cov=full_cov), tf.float64)
        factor = 1.0 if self.calibration is None else self.calibration.function
        if full_cov:
            cov = prior - 0.5 * (explained + tf.transpose(explained))
            cov = tf.repeat(cov[None], self.num_latent_gps, axis=0)
        else:
            cov = tf.repeat((prior - tf.linalg.diag_part(explained))[:, None], mean.shape[1], 1)
        return mean, tf.cast(factor * cov, mean.dtype)

    def _make_posterior(self, **options: Any) -> DualPosterior:
        """
        :raises ValueError: before :meth:`solve`, and after a change of any parameter or the data.
        """
        rows = self._rows()
        self.weights.read(self._parts(), rows)  # at once, and again whenever it is needed
        read = lambda: self.weights.read(self._parts(), rows)  # noqa: E731
        return DualPosterior(self.kernel, rows[0], read, **options)

    def elbo(self) -> tf.Tensor:
        """:raises ValueError: always: the model has no objective."""
        raise ValueError(_NO_OBJECTIVE)

    @property
    def input_dim(self) -> int | None:
        return int(self.data[0].shape[1])

    @property
    def num_columns(self) -> int:
        """Number of right-hand sides, P + S P: outputs, then draws."""
        return self.num_latent_gps * (1 + self.num_paths)

    @property
    def path_shape(self) -> tuple[int, int, int, int]:
        """Shape ``(S, P, D, F)`` of the frequencies of the draws of the prior."""
        columns = int(self.data[0].shape[1])
        return self.num_paths, self.num_latent_gps, columns, self.num_features // 2

    def _rows(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The present data, in the model's float type."""
        X, Y = read(self.data, self.dtype)
        return tf.cast(X, self.dtype), tf.cast(Y, self.dtype)

    def _right_hand_sides(self) -> tuple[tf.Tensor, tf.Tensor, PriorPaths]:
        """``X``, the right-hand sides ``[N, P + S P]``, and the draws of the prior in them."""
        X, Y = self._rows()
        mean = component_checks.require_mean(self.mean_function(X), Y, self.mean_function)
        sampler = Sampler.make(self.num_paths, self.num_features, self.seed)
        prior = PriorPaths(self.kernel, self.num_latent_gps, int(X.shape[1]), sampler)
        values = prior(X)  # [S, N, P]
        roots = tf.cast(tf.sqrt(self._row_noises(X)), self.dtype)[:, None]
        values += roots * sampler.normal(values.shape, self.dtype)
        return X, tf.concat([Y - mean, stack(values)], axis=1), prior

    def _row_noises(self, X: tf.Tensor) -> tf.Tensor:
        """The noise variance of each row, float64 ``[N]``."""
        noise = tf.fill(tf.shape(X)[:1], self._noise())
        return noise if self.row_noise is None else noise + tf.cast(self.row_noise, tf.float64)

    def _parts(self) -> tuple[tf.Module, ...]:
        """Modules that the weights depend on."""
        return self.kernel, self.likelihood, self.mean_function

    def _require_parts(self, num_columns: int | None, dtype: tf.DType | None = None) -> None:
        super()._require_parts(num_columns, dtype)
        if self.row_noise is None:
            return
        shape = (self.data[0].shape[0],)
        noise = checks.as_tensor(self.row_noise, "row_noise")
        fits = tf.TensorShape(shape).is_compatible_with(noise.shape)
        if not fits or not bool(tf.reduce_all(noise >= 0.0)):
            raise ValueError(
                f"row_noise must have shape {shape}, one variance of at least 0 for each row; got "
                f"shape {tuple(noise.shape)}."
            )


class DualWeights(tf.Module):
    """Solved weights, the draws of the prior that they condition, and what they were solved for."""

    def __init__(self, shape: Sequence[int], dtype: tf.DType) -> None:
        """
        :param shape: ``(S, P, D, F)`` of the frequencies of the draws.
        """
        super().__init__()
        S, P, _, F = shape
        empty = tf.zeros([0, P + S * P], dtype)
        self.values = tf.Variable(empty, trainable=False, shape=[None, P + S * P])
        """``[N, P + S P]``: weights of the observations, then of the draws."""
        self.frequencies = tf.Variable(tf.zeros(shape, dtype), trainable=False)
        self.phases = tf.Variable(tf.zeros([S, P, F], dtype), trainable=False)
        self.amplitudes = tf.Variable(tf.zeros([S, P, F], dtype), trainable=False)
        self._data_hash = tf.Variable(tf.zeros([2, 8], tf.uint8), trainable=False)
        self._snapshot = Snapshot(_STALE)

    def validate_values(self, num_rows: int, shape: Sequence[int], dtype: tf.DType) -> None:
        """Refuse values from a file of other shapes or types, or not finite."""
        S, P, _, F = shape
        rows = num_rows if self._snapshot.is_taken else 0
        expected = {
            "values": (rows, P + S * P),
            "frequencies": tuple(shape),
            "phases": (S, P, F),
            "amplitudes": (S, P, F),
        }
        for name, wanted in expected.items():
            variable = getattr(self, name, None)
            value = None
            if isinstance(variable, tf.Variable) and variable.dtype == dtype:
                value = variable.value()
            if value is None or value.shape != wanted or not np.isfinite(value.numpy()).all():
                raise ValueError(
                    f"model.weights.{name} must be a {dtype.name} variable of shape {wanted} and "
                    "finite."
                )

    def start(self, shape: tf.TensorShape) -> tf.Tensor | None:
        """The present weights, if there are any for right-hand sides of this shape."""
        fits = self._snapshot.is_taken and self.values.value().shape == shape
        return self.values.value() if fits else None

    def update(
        self,
        values: Any,
        prior: PriorPaths,
        parts: Sequence[tf.Module],
        rows: tuple[tf.Tensor, tf.Tensor],
    ) -> None:
        """
        :param values: ``[N, P + S P]``.
        :param prior: the draws in the right-hand sides.
        :param parts: modules whose parameters they depend on.
        :param rows: the data.
        """
        values = tf.cast(values, self.values.dtype)
        if not self.values.shape.is_compatible_with(values.shape):  # a deep copy: of a fixed shape
            self.values = tf.Variable(values, trainable=False, shape=[None, values.shape[1]])
        self.values.assign(values)
        for name in ("frequencies", "phases", "amplitudes"):
            getattr(self, name).assign(getattr(prior, name))
        self._data_hash.assign(_hash(rows))
        self._snapshot.take(parts)

    def read(
        self, parts: Sequence[tf.Module], rows: tuple[tf.Tensor, tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """
        The weights, and frequencies, phases and amplitudes of the draws.

        :raises ValueError: before the first :meth:`update`, and if parts or rows have changed.
        """
        if not self._snapshot.is_taken:
            raise ValueError(_NOT_SOLVED)
        same = tf.reduce_all(tf.equal(_hash(rows), self._data_hash))
        if tf.executing_eagerly() and not bool(same):
            raise ValueError(_STALE)
        variables = (self.values, self.frequencies, self.phases, self.amplitudes)
        if tf.executing_eagerly():
            weights, *cosines = self._snapshot.read(variables, parts)
            return weights, cosines
        with tf.control_dependencies([tf.debugging.assert_equal(same, True, message=_STALE)]):
            weights, *cosines = self._snapshot.read(variables, parts)
        return weights, cosines


def _hash(rows: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """Fingerprints of the data, uint8 ``[2, 8]``; O(N D)."""
    return tf.concat([tf.fingerprint(tf.reshape(part, [1, -1])) for part in rows], axis=0)
