"""The progress bar of `fit`, drawn on terminals only."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class FitProgress:
    """Shows steps, objective, steps per second and time left while `fit` runs."""

    def __init__(self, num_steps: int, *, enabled: bool) -> None:
        """:param enabled: whether to draw the bar if standard error is a terminal."""
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("fit"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("ELBO {task.fields[elbo]}"),
            TextColumn("{task.fields[rate]} steps/s, left"),
            TimeRemainingColumn(),
            console=console,
            disable=not (enabled and console.is_terminal),
        )
        self._task = self._bar.add_task("fit", total=num_steps, elbo="-", rate="-")

    def __enter__(self) -> "FitProgress":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def update(self, step: int, elbo: float, seconds: float) -> None:
        """Draw the state after ``step`` steps that took ``seconds`` in all."""
        rate = f"{step / seconds:.1f}" if seconds > 0 else "-"
        self._bar.update(self._task, completed=step, elbo=f"{elbo:.4g}", rate=rate)
