"""Time of a training step under a strategy of `tf.distribute`, beside one without it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from bench import step_variants as variants
from bench.steps import Row, Tables
from gpflow_sparse import training

# Steps at the start of a run that are not timed: they compile, and fill the feed.
_UNTIMED = 10
_COLUMNS = 8


def _two_devices() -> Any:
    """A strategy over two devices that share the cores of the CPU."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def replicas(
    num_data: int, batch_size: int, num_inducing: int, num_steps: int, repeats: int
) -> Tables:
    """
    Median time of a step of ``training.fit``: without a strategy, under one with one replica, and
    under one with two CPU devices in this process, which share its threads. The three train in
    turn, each from its start, and another one is the first in each round.

    :param num_inducing: M of SVGP; M = M2 of half as many in SOLVE-GP, with natural gradients;
        SWSGP has as many points as there are rows.
    """
    # the devices of the process are fixed by the first of them
    strategies = {
        "two devices": _two_devices(),
        "one replica": tf.distribute.MirroredStrategy(["CPU:0"]),
        "no strategy": None,
    }
    rows = variants.made_rows(num_data, _COLUMNS)
    models = _models(rows[0].numpy(), num_inducing)
    options: dict[str, Any] = {"batch_size": batch_size, "num_steps": _UNTIMED + num_steps}
    found: list[Row] = []
    for name, build in models.items():
        natural = name.startswith("SOLVE-GP")
        seconds: dict[str, list[float]] = {key: [] for key in strategies}
        for number in range(repeats):
            for key in np.roll(list(strategies), number):
                history = training.fit(
                    build(),
                    rows,
                    strategy=strategies[key],
                    natural_gradients=natural,
                    progress=False,
                    **options,
                )
                seconds[key].append(float(np.median(np.diff(history.seconds)[_UNTIMED:])))
        medians = {key: float(np.median(values)) for key, values in seconds.items()}
        plain = medians["no strategy"]
        found += [
            {"method": name, "strategy": key, "milliseconds": 1e3 * value, "ratio": value / plain}
            for key, value in medians.items()
        ]
    return {"rows": found}


def _models(X: np.ndarray, num_inducing: int) -> dict[str, Callable[[], Any]]:
    M = num_inducing // 2
    points = {
        ("svgp", f"SVGP({num_inducing})"): (X[:num_inducing],),
        ("solvegp", f"SOLVE-GP({M}+{M})"): (X[:M], X[M : 2 * M]),
        ("swsgp", f"SWSGP({len(X)})"): (X,),
    }
    return {
        title: partial(variants.make, key, *Z, num_data=len(X))
        for (key, title), Z in points.items()
    }
