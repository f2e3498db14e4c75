"""The parts that all examples share: options of the command, the printed line, and the figure."""

from collections.abc import Callable, Mapping
from typing import Any

import click
import gpflow
import numpy as np

from gpflow_sparse.runs.options import command_options
from gpflow_sparse.runs.options import option as option

BLUE, RED, GREEN = "#1f5f99", "#c4501b", "#2e7d32"


def run(main: Callable[[Any], Any], config: type) -> None:
    """Run an example from the command line, with an option for each field of its configuration."""

    @click.command(help=config.__doc__)
    @command_options(config)
    def command(**options: Any) -> None:
        main(config(**options))

    command()


def print_numbers(numbers: Mapping[str, Any], style: str) -> None:
    """Print numbers in one line, those of a model after its name."""
    parts = []
    for name, found in numbers.items():
        if isinstance(found, Mapping):
            words = " ".join(f"{key}={value:{style}}" for key, value in found.items())
            parts.append(f"{name}: {words}")
        else:
            parts.append(f"{name}={found:{style}}")
    print("  ".join(parts))


def new_figure(width: float, height: float) -> Any:
    """A figure of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: Any, *framed: Any) -> None:
    """Write a figure, in which only the panels ``framed`` keep all four sides of their frames."""
    for panel in figure.get_axes():
        if panel not in framed:
            panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def legend_below(figure: Any, panel: Any) -> None:
    """The legend of one panel, below all of them."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9
    )


def mean_and_std(model: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean and standard deviation of f, each [N]."""
    mean, var = (np.asarray(moment)[:, 0] for moment in model.predict_f(x))
    return mean, np.sqrt(var)


def draw_band(panel: Any, x: np.ndarray, model: Any, num_std: int, label: str | None) -> None:
    """Mean of f at ``x [N, 1]``, and so many standard deviations to each side."""
    mean, std = mean_and_std(model, x)
    low, high = mean - num_std * std, mean + num_std * std
    panel.fill_between(x[:, 0], low, high, color=BLUE, alpha=0.28, lw=0)
    panel.plot(x[:, 0], mean, color=BLUE, lw=1.8, label=label)


def draw_inducing_points(panel: Any, inducing_variable: Any, height: float) -> None:
    """Points of one or two sets in one dimension, all at one height."""
    sets = getattr(inducing_variable, "sets", (inducing_variable,))
    styles = (("+", "Z", "black", 1.6), ("^", "O", RED, 0.8))
    for points, (marker, label, color, width) in zip(sets, styles, strict=False):
        Z = points.Z.numpy()[:, 0]
        y = np.full(len(Z), height)
        panel.plot(Z, y, marker, color=color, ms=7, mew=width, ls="", label=label)


def square(limit: float, side: int) -> np.ndarray:
    """Points of a regular grid over ``[-limit, limit]^2``, ``[side^2, 2]``."""
    x = np.linspace(-limit, limit, side)
    return np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)


def draw_surface(panel: Any, values: np.ndarray, limit: float, low: float, high: float) -> Any:
    """Values at the points of :func:`square`, as colors."""
    side = int(np.sqrt(values.size))
    return panel.imshow(
        values.reshape(side, side),
        extent=(-limit, limit, -limit, limit),
        origin="lower",
        cmap="RdBu_r",
        vmin=low,
        vmax=high,
    )


def maximize(model: gpflow.models.GPModel, num_steps: int, data: Any = None) -> None:
    """At most so many iterations of L-BFGS, for an objective that is deterministic and small."""
    arguments = () if data is None else (data,)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(*arguments),
        model.trainable_variables,
        options={"maxiter": num_steps},
    )
