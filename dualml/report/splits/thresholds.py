"""From which width of the layers, or which bandwidth, one way to split is faster than another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dualml.cost.compare import crossovers
from dualml.cost.link import Link
from dualml.cost.split import FASTEST, WIDEST, tensor_parallel_step, vertical_step
from dualml.report.splits import calibration
from dualml.report.splits.arms import Splits, model_of
from dualml.report.splits.calibration import Calibration

INSIDE, BY_LAYER, WHOLE = "inside", "by_layer", "whole"
PAIRS = ((INSIDE, BY_LAYER), (INSIDE, WHOLE), (BY_LAYER, WHOLE))


@dataclass(frozen=True)
class Question:
    """What the thresholds are asked for: a model of linear layers as some arm trained it, on 2
    ranks; ``m`` micro-batches where it is split by layer."""

    arm: str
    model: str
    sizes: Sequence[int]
    batch: int
    m: int
    calibration: Calibration

    @property
    def layers(self) -> int:
        """Even, so that all of them pair."""
        return max(2, (len(self.sizes) - 1) // 2 * 2)

    def seconds(self, way: str, sizes: Sequence[int], rate: float = 0.0) -> float | None:
        """Of an update; None where a link was not fitted.

        Args:
            rate: bytes per second of the link, in place of the measured one.
        """
        rate_of_rank = self.calibration.rate
        if way == WHOLE:
            return calibration.operations(sizes, self.batch) / rate_of_rank
        fitted = self.calibration.reduces if way == INSIDE else self.calibration.messages
        if fitted is None:
            return None
        link = Link(fitted.link.alpha_s, 1 / rate) if rate else fitted.link
        if way == INSIDE:
            return tensor_parallel_step(sizes, self.batch, 2, rate_of_rank, link, whole=False)
        return vertical_step(sizes, self.batch, self.m, rate_of_rank, link)

    def of_width(self, way: str, d: int) -> float | None:
        """With as many layers, all of a width."""
        return self.seconds(way, [d] * (self.layers + 1))

    def width_from(self, first: str, second: str) -> int | None:
        """The width of all layers from which on the first way is faster; 0: always, None: never up
        to a million, or unknown."""
        return _from(first, second, WIDEST, self.of_width)

    def bandwidth_from(self, first: str, second: str) -> int | None:
        """The same of the link's bytes per second, with the model as it is and α as measured."""
        return _from(first, second, FASTEST, lambda way, b: self.seconds(way, self.sizes, b))

    def relative(self, way: str, d: int) -> float | None:
        """Time of an update over that of the whole model."""
        split, whole = self.of_width(way, d), self.of_width(WHOLE, d)
        return None if split is None or not whole else split / whole


def _from(
    first: str, second: str, most: int, seconds: Callable[[str, int], float | None]
) -> int | None:
    if seconds(first, 1) is None or seconds(second, 1) is None:
        return None
    last = crossovers(first, second, 1, most, lambda way, x: seconds(way, x) or 0.0)[-1]
    return None if last.winner != first else 0 if last.first == 1 else last.first


def question(splits: Splits, of: Calibration) -> Question | None:
    """The deepest of the models, with the usual number of micro-batches."""
    asked = []
    for base, members in splits.families.items():
        sizes = calibration.chain(splits.run, base) if base in of.rates else None
        samples = calibration.batch(splits.run, base, of.backend) if sizes else None
        counts = [arm.micro_batches for arm in members if arm.by_layer] or [4]
        m = max(set(counts), key=lambda x: (counts.count(x), -x))
        if base and sizes and samples:
            model = model_of(splits.run, base)
            asked.append(Question(base, model, sizes, round(samples), m, of))
    return max(asked, key=lambda each: len(each.sizes), default=None)
