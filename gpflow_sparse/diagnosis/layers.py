"""Signal and noise in what the hidden layers of a deep model pass on."""

from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_sparse.diagnosis.inducing import UnavailableError
from gpflow_sparse.diagnosis.parameters import has_hidden_layers
from gpflow_sparse.models.deep import LayerMoments
from gpflow_sparse.validation import checks

# Rows from which signal and noise are computed.
MAX_ROWS = 500


def layer_signals(model: Any, X: Any) -> list[dict[str, Any]]:
    """
    Signal and noise of each hidden layer, as the entry ``layers`` of
    :func:`gpflow_sparse.diagnostics` describes them.

    A hidden layer passes on ``mean + sqrt(variance) eps``. Layers before it are drawn from the
    noise of predictions, which is the same for every row, so that rows differ by their inputs only.
    A layer over images has outputs for each patch. It takes the time of S predictions of the hidden
    layers, S being ``model.num_prediction_samples`` and 1 for the first.

    :param X: inputs ``[N, D]``, N at least 2: all of them count, and are held in memory with the
        outputs of a layer.
    :raises UnavailableError: for a model without hidden layers, and for a single row.
    :raises ValueError: for inputs of other columns or of another float type.
    """
    if not has_hidden_layers(model):
        raise UnavailableError(f"{type(model).__name__} has no hidden layers.")
    if X.shape[0] < 2:
        raise UnavailableError("the variance over rows needs two rows at least.")
    X = checks.require_inputs(X, model.input_dim, model.dtype, "X")
    found = model.posterior(None).hidden_moments(X)
    return [{"layer": place} | _entry(moments) for place, moments in enumerate(found, 1)]


def signal_to_noise_on_sample(model: Any, X: tf.Tensor) -> list[dict[str, Any]]:
    """:func:`layer_signals` of at most :data:`MAX_ROWS` rows, drawn by a fixed seed."""
    chosen = np.random.default_rng(0).permutation(X.shape[0])[:MAX_ROWS]
    return layer_signals(model, tf.gather(X, np.sort(chosen)))


def describe(entry: dict[str, Any]) -> str:
    """The entry of a layer in one line."""
    ratio = "infinite" if entry["ratio"] is None else f"{entry['ratio']:.3g}"
    return (
        f"hidden layer {entry['layer']}: signal {entry['signal']:.3g}, noise "
        f"{entry['noise']:.3g}, ratio {ratio}"
    )


def _entry(moments: LayerMoments) -> dict[str, Any]:
    mean, variance, prior = (np.asarray(part, dtype=np.float64) for part in moments)
    # over rows for each draw and output, then averaged over draws and patches: [G]
    signals = mean.var(axis=0).mean(axis=(0, 1))
    noises = variance.mean(axis=(0, 1, 2))
    shared = (mean - mean.mean(axis=0)) * (prior - prior.mean(axis=0))
    signal, noise = float(signals.mean()), float(noises.mean())
    return {
        "signal": signal,
        "noise": noise,
        "ratio": _ratio(signal, noise),
        "input_fraction": float(shared.mean()) / signal if signal > 0.0 else None,
        "channels": [
            {"signal": float(s), "noise": float(n), "ratio": _ratio(s, n)}
            for s, n in zip(signals, noises, strict=True)
        ],
    }


def _ratio(signal: float, noise: float) -> float | None:
    return float(signal / noise) if noise > 0.0 else None
