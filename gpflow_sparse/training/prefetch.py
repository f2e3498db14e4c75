"""Search for the neighbors of the next batch while a training step runs."""

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import tensorflow as tf

from gpflow_sparse.training.feed import Feed


class Prefetch:
    """
    A thread that calls ``model.look_ahead(X)`` with each batch one step early; see
    :class:`~gpflow_sparse.models.SWSGP`, whose neighbors are found outside of the compiled step.

    It changes no result: the model uses what was found for the same rows only.
    """

    def __init__(self, model: Any, feed: Feed) -> None:
        self._feed = feed
        self._look = tf.function(lambda *at: model.look_ahead(feed.lookup(*at)[0]), autograph=False)
        self._thread = ThreadPoolExecutor(1, "gpflow_sparse-prefetch")
        self._running: Future[Any] | None = None

    @classmethod
    def of(cls, model: Any, feed: Feed | None) -> "Prefetch | None":
        """None for a model without such a search, and for data that cannot be read at random."""
        if feed is None or feed.num_rows is None or not getattr(model, "can_look_ahead", False):
            return None
        return cls(model, feed)

    def begin(self, step: int) -> None:
        """
        Wait for the search in progress, then start that for the batch of this step.

        An error here is not raised: the step itself fails in the same way, with an explanation.
        """
        self.wait()
        with contextlib.suppress(ValueError):
            self._running = self._thread.submit(self._look, *self._feed.at(step))

    def wait(self) -> None:
        """Wait for the search in progress, if there is one."""
        if self._running is not None:
            self._running.exception()
            self._running = None
