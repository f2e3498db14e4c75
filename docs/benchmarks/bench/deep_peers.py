"""GPflux's deep GP beside that of this package; imported only where GPflux is installed."""

import copy
import time
from collections.abc import Mapping
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from bench.papers.choices import fit_choice, score
from bench.papers.spec import Record
from bench.papers.training import Budget, Cosine, Monitor
from gpflow_sparse import initialization, models
from gpflow_sparse.data import Dataset
from gpflow_sparse.tables.fitting import calibration
from gpflow_sparse.tables.fitting.building import MIN_NOISE, attach_units
from gpflow_sparse.tables.fitting.starts import InitialHyperparameters
from gpflow_sparse.tables.methods.deep import Deep
from gpflow_sparse.tables.methods.rows import Pair
from gpflow_sparse.training import TrainingError

# GPflux's own start of hidden layers, see `gpflux.architectures.build_constant_input_dim_deep_gp`:
# variance and lengthscales of the kernels, factor of the standard deviations of q.
_VARIANCE, _LENGTHSCALE, _SCALE = 1e-6, 2.0, 1e-5
# Passes that no budget of minutes reaches.
_MAX_EPOCHS = 10_000_000


def fit_deep(options: Mapping[str, Any], dataset: Dataset, budget: Budget) -> Record:
    """A row of the table of deep models: of GPflux, or of a method of this package."""
    if options["method"] != "gpflux":
        return fit_choice(options, dataset, budget)
    return fit_gpflux({k: v for k, v in options.items() if k != "method"}, dataset, budget)


def fit_gpflux(options: Mapping[str, Any], dataset: Dataset, budget: Budget) -> Record:
    """
    Train GPflux's deep GP by Keras within the time of the budget, and score it.

    Layers are those of its own builder, with its start of the hidden ones; centers by k-means, the
    kernel of the last layer, noise variance, batches, rate and its schedule are those of ``deep``.
    Predictions are those of :class:`~gpflow_sparse.models.DeepGP` with the same parameters: those
    of GPflux take one draw of the hidden layers.

    :param options: options of the method "deep"; M is that of every layer.
    :raises ValueError: where GPflux is not installed.
    """
    begin = time.perf_counter()
    recipe = Deep.create(**options, seed=budget.seed)
    rest, held_out = calibration.split_for_calibration(recipe, dataset)
    rows = rest.train
    tf.random.set_seed(budget.seed)
    start = InitialHyperparameters(rest).find(recipe)
    Z = initialization.kmeans(rows[0], recipe.num_inducing, start.kernel, seed=budget.seed)
    likelihood = gpflow.likelihoods.Gaussian(max(start.noise_variance, MIN_NOISE))
    layers = gpflux_layers(copy.deepcopy(start.kernel), Z, recipe.num_layers, len(rows[0]))
    steps = _train(layers, likelihood, rows, recipe, budget, begin)
    model = attach_units(as_deep(layers, likelihood, len(rows[0])), dataset)
    calibration.calibrate(model, held_out, recipe)
    seconds = time.perf_counter() - begin
    return score(model, dataset) | {
        "chosen": "gpflux",
        "steps": steps,
        "training_seconds": seconds,
    }


def gpflux_layers(
    kernel: gpflow.kernels.Kernel, Z: np.ndarray, num_layers: int, num_data: int
) -> list[Any]:
    """
    Layers as of ``gpflux.architectures.build_constant_input_dim_deep_gp``, first to last.

    :param kernel: of the last layer.
    :param Z: inducing points of all layers ``[M, D]``; D is the number of outputs of hidden layers.
    """
    try:
        from gpflux.layers import GPLayer  # type: ignore[import-not-found]
    except ImportError as error:
        raise ValueError(
            "rows with GPflux need it: python -m pip install --no-deps gpflux==0.4.5; or choose "
            f"others by --rows ({error})."
        ) from error
    layers, D = [], Z.shape[1]
    for place in range(num_layers):
        is_last = place == num_layers - 1
        hidden = gpflow.kernels.SquaredExponential(_VARIANCE, np.full(D, _LENGTHSCALE))
        points = gpflow.inducing_variables.InducingPoints(Z)
        layer = GPLayer(
            gpflow.kernels.SharedIndependent(kernel if is_last else hidden, 1 if is_last else D),
            gpflow.inducing_variables.SharedIndependentInducingVariables(points),
            num_data,
            mean_function=gpflow.functions.Zero() if is_last else gpflow.functions.Identity(),
        )
        layer.q_sqrt.assign((1.0 if is_last else _SCALE) * layer.q_sqrt)
        layers.append(layer)
    return layers


def as_deep(
    layers: list[Any], likelihood: gpflow.likelihoods.Likelihood, num_data: int
) -> models.DeepGP:
    """The model of this package with the parameters of GPflux's layers."""
    own = [
        models.GPLayer(
            layer.kernel.kernel,
            layer.inducing_variable.inducing_variable.Z.numpy(),
            num_latent_gps=layer.num_latent_gps,
            mean_function=layer.mean_function,
            q_mu=[layer.q_mu.numpy()],
            q_sqrt=[layer.q_sqrt.numpy()],
        )
        for layer in layers
    ]
    return models.DeepGP(own, likelihood, num_data=num_data)


def _train(
    layers: list[Any],
    likelihood: gpflow.likelihoods.Likelihood,
    rows: Pair,
    recipe: Deep,
    budget: Budget,
    begin: float,
) -> int:
    """Train by Keras until the time, or the number of steps, is over; the number of steps."""
    import gpflux  # type: ignore[import-not-found]

    monitor = Monitor(budget)

    class Stop(tf_keras.callbacks.Callback):  # type: ignore[misc]
        count = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.count += 1
            used = (time.perf_counter() - begin) / budget.seconds if budget.seconds else 0.0
            if budget.steps:
                used = max(used, self.count / budget.steps)
            monitor.fraction.assign(min(used, 1.0))
            self.model.stop_training = used >= 1.0

    network = gpflux.models.DeepGP(layers, likelihood).as_training_model()
    network.compile(tf_keras.optimizers.Adam(Cosine(recipe.learning_rate, monitor, warm_up=20)))
    given, stop = {"inputs": rows[0], "targets": rows[1]}, Stop()
    size = min(recipe.batch_size, len(rows[0]))
    found = network.fit(given, batch_size=size, epochs=_MAX_EPOCHS, verbose=0, callbacks=[stop])
    if not np.isfinite(found.history["loss"][-1]):
        raise TrainingError("the objective of GPflux is not finite.")
    return stop.count
