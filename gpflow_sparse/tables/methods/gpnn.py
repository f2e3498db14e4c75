"""Nearest-neighbor GPs on tables."""

import math
import time
from dataclasses import dataclass
from typing import Any

import gpflow_sparse as gs
from gpflow_sparse.tables.methods import options
from gpflow_sparse.tables.methods.base import TREES, ZERO, option

# Neighbors; twice as many where these gain so many nats of a left-out row, of at most so many, as
# predictions then take four times as long; not for long tables, whose predictions take longest.
_FEW, _MIN_GAIN, _COMPARED, _MAX_ROWS = 128, 0.01, 4000, 50_000
# Most rows to leave out for variances that depend on the input; fewer of more than 128 neighbors.
_LEFT_OUT = 8000
# Fewest rows from which neighbors or variances are chosen where the time is short, and rows whose
# predictions are timed.
_LEAST_ROWS, _TIMED = 500, 100


@dataclass(frozen=True)
class GPnn(options.KnownNoise, options.ComparedKernel):
    """Options of nearest neighbors, :class:`gpflow_sparse.models.NearestNeighborGP`."""

    name = "gpnn"
    title = "GPnn"
    idea = (
        "an exact GP on the nearest training rows of each predicted row; hyperparameters of local "
        "subsets"
    )
    for_classes = "dirichlet_gpnn"

    num_neighbors: int | None = option(
        None,
        "Nearest training rows from which a row is predicted; by default 128, or 256 where "
        "at most 50,000 training rows are predicted clearly better from these when left out.",
        least=1,
    )
    mean: str = option(
        ZERO,
        "Prior mean: zero, or trees, boosted trees with a weight that held-out rows determine. "
        "auto tries both.",
        choices=[ZERO, TREES],
    )

    @classmethod
    def reason_against(cls, task: Any) -> str:
        if not task.is_long:
            return f"a table of at most {task.few_rows} rows has an exact GP of all rows"
        return ""

    @classmethod
    def variants(cls, task: Any) -> dict[str, dict[str, Any]]:
        plain = task.num_outputs == 1 and task.dataset.noise_variance is None
        has_trees = "mean" not in task.options and plain
        return {"": {}, **({TREES: {"mean": TREES}} if has_trees else {})}

    def build(self, data: Any, kernel: Any, likelihood: Any, **given: Any) -> Any:
        noise_variance = likelihood.variance.numpy()
        count = self.num_neighbors or _FEW
        given = {"num_neighbors": count, "noise_variance": noise_variance, **given}
        return gs.models.NearestNeighborGP(data, kernel, **given)

    def finish(self, model: Any, seconds: float = math.inf) -> Any:
        """
        The model, with more neighbors, and with variances that depend on the input, where left-out
        rows are predicted clearly better; of as many left-out rows as the time allows.
        """
        affordable = math.inf if math.isinf(seconds) else 0.5 * seconds / _row_seconds(model)
        self._add_neighbors(model, affordable)
        if self.can_calibrate and model.known_variance is None:
            share = min(1.0, _FEW / model.neighbors.num_neighbors)
            most = max(1, int(_LEFT_OUT * share))
            if affordable * share**2 >= min(most, _LEAST_ROWS):
                model.fit_local_variance(num_rows=int(min(most, affordable * share**2)))
        return model

    def _add_neighbors(self, model: Any, affordable: float) -> None:
        """
        Take more neighbors where left-out rows are predicted clearly better.

        :param affordable: rows that may be predicted from the present number of neighbors.
        """
        neighbors, num_rows = model.neighbors, len(model.data[0])
        few, more = neighbors.num_neighbors, min(2 * _FEW, len(neighbors.Z))
        compared = int(min(_COMPARED, num_rows, affordable / (1.0 + (more / few) ** 2)))
        if self.num_neighbors is not None or more <= few or num_rows > _MAX_ROWS:
            return
        if compared < min(_LEAST_ROWS, num_rows):
            return
        before, gain = model.num_objective_rows, 0.0
        model.num_objective_rows = min(compared, before or num_rows)
        for count, sign in ((few, -1.0), (more, 1.0)):
            neighbors.num_neighbors = count
            gain += sign * float(model.leave_one_out_log_density()) / num_rows
        model.num_objective_rows = before
        if not gain >= _MIN_GAIN:  # also where it is NaN
            neighbors.num_neighbors = few


def _row_seconds(model: Any) -> float:
    """Time to predict a row, after the tree of neighbors is built."""
    rows = model.data[0][: 2 * _TIMED]
    model.predict_f(rows[:_TIMED])
    rows = rows[-_TIMED:]  # a mean of trees remembers those before
    begin = time.perf_counter()
    model.predict_f(rows)
    return (time.perf_counter() - begin) / len(rows)
