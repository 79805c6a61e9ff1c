"""Mistakes of ranks and stages that no cause of the finder lists, for both frameworks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dualml.parallel.aggregation.parallel import DataParallel
from dualml.parallel.aggregation.ring import Ring


def average_parts_alike(name: str) -> None:
    """Average the ranks' gradients regardless of their numbers of samples."""
    DataParallel.gradient_factor = lambda self, share: 1 / self.comm.size


def repeat_first_message(name: str) -> None:
    """Send, and add, the first chunk of the ring twice."""
    right = Ring.schedule

    def schedule(self: Any, n: int) -> Any:
        made = right(self, n)
        return replace(made, steps=(made.steps[0], *made.steps))

    Ring.schedule = schedule


def count_rank_zero_twice(name: str) -> None:
    """Double what rank 0 sends."""
    right = DataParallel.reduce_bucket
    DataParallel.reduce_bucket = lambda self, x, b: right(
        self, self.comm.scale(x, 2.0) if self.comm.rank == 0 else x, b
    )


def keep_tail_of_rank_zero(name: str) -> None:
    """Leave the last quarter of every bucket out of the sum, except rank 0's."""
    right = DataParallel.reduce_bucket

    def reduce_bucket(self: Any, x: Any, bucket: str) -> Any:
        if self.comm.rank:
            part = self.comm.numpy(x).copy()
            part[-(len(part) // 4) :] = 0
            x = self.comm.tensor(part)
        return right(self, x, bucket)

    DataParallel.reduce_bucket = reduce_bucket


def double_last_micro_batch(stage: Any) -> Callable[[str], None]:
    """Return what counts the fourth micro-batch twice in a backend's stages."""

    def change(name: str) -> None:
        right = stage.loss_backward
        stage.loss_backward = lambda self, micro, share: right(
            self, micro, 2 * share if micro == 3 else share
        )

    return change


RANKS: dict[str, Callable[[str], None]] = {
    "uneven-parts-alike": average_parts_alike,
    "ring-chunk-twice": repeat_first_message,
    "rank-zero-twice": count_rank_zero_twice,
    "tail-of-rank-zero": keep_tail_of_rank_zero,
}
