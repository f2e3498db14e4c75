"""What a model can find out about the next batch while a step is taken."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import tensorflow as tf

from gpflow_sparse.training.feed import Feed


class Ahead:
    """
    A thread that shows a model each batch one step early: see
    :class:`~gpflow_sparse.models.SWSGP`, whose neighbors are found outside of the compiled step.

    It changes no result: the model uses what it has found only for the same rows.
    """

    def __init__(self, model: Any, feed: Feed) -> None:
        self._model, self._feed = model, feed
        self._query = tf.function(lambda *at: model.query(feed.lookup(*at)[0]), autograph=False)
        self._thread = ThreadPoolExecutor(1, "gpflow_sparse-ahead")
        self._running: Future[None] | None = None

    @classmethod
    def of(cls, model: Any, feed: Feed | None) -> "Ahead | None":
        """None for a model that needs none, or a source that cannot go back by a batch."""
        needs = getattr(model, "can_look_ahead", False)
        seekable = feed is not None and feed.num_rows is not None
        return cls(model, feed) if needs and seekable else None

    def begin(self, step: int) -> None:
        """Wait for what was begun, then begin with the batch of this step."""
        if self._running is not None:
            self._running.result()
        arguments = self._feed.at(step)
        self._running = self._thread.submit(self._look, arguments)

    def _look(self, arguments: tuple[Any, ...]) -> None:
        self._model.look_ahead(self._query(*arguments))
