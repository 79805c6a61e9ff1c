"""Calibrate the α–β model of split layers from the run itself: operations per second from the
whole-model arms, α and β from single messages and collectives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

from dualml.common.errors import UserError
from dualml.experiment.store.run import RunData
from dualml.planning.cost.compare import crossovers
from dualml.planning.cost.link import Link
from dualml.planning.cost.model import Fit, Point, fit
from dualml.planning.cost.split import (
    MAX_BYTES_PER_S,
    MAX_WIDTH,
    tensor_parallel_step,
    vertical_step,
)
from dualml.report import ranks
from dualml.report.splits import events, times
from dualml.report.splits.arms import SplitArm, Splits, model_of, without_straggler

#: Layers whose cost is negligible compared with linear ones.
FREE = ("Flatten", "Tanh", "ReLU")
#: Schedules for whose update `vertical_step` is the closed form.
CLOSED_FORM_SCHEDULES = ("1f1b", "gpipe", "eager-1f1b")
MIN_MEASUREMENTS = 5  # measurements needed of each size
SIZES = 3  # sizes needed for a fit


@dataclass(frozen=True)
class Calibration:
    """The fitted constants of one backend. ``rates``: whole-model arm → operations per second;
    ``messages`` and ``reduces``: the links fitted to single messages and to all-reduces, None if
    too few sizes of them were measured; ``sizes``: the numbers of these sizes."""

    backend: str
    rates: dict[str, float]
    messages: Fit | None
    reduces: Fit | None
    sizes: tuple[int, int]

    @property
    def rate(self) -> float:
        """Operations per second of one rank, median over the whole-model arms."""
        return median(self.rates.values())


def linear_sizes(run: RunData, arm: str | None) -> list[int] | None:
    """Return the sizes d₀ … d_L of a model that is a chain of at least two linear layers and
    otherwise of layers of `FREE`; None for other models, and without an arm."""
    layers = (run.models.get(model_of(run, arm)) or {}).get("layers") or () if arm else ()
    linear = [layer for layer in layers if layer.get("type") == "Linear"]
    if len(linear) < 2 or any(layer.get("type") not in (*FREE, "Linear") for layer in layers):
        return None
    return [int(linear[0]["inputs"]), *(int(layer["outputs"]) for layer in linear)]


def mean_batch_size(run: RunData, arm: str | None, backend: str) -> float | None:
    """Return the mean number of samples in an update of the first trial that recorded it, None if
    none did."""
    trials = run.select(arm, backend) if arm else ()
    each = (t.sample_gradients / t.updates for t in trials if t.updates and t.sample_gradients)
    return next(each, None)


def count_operations(sizes: Sequence[int], samples: float) -> float:
    """Return C = 6 · samples · Σ dᵢ dᵢ₊₁, the floating-point operations of an update of linear
    layers of ``sizes`` d₀ … d_L: the backward pass costs twice the forward pass."""
    return 6.0 * samples * sum(a * b for a, b in itertools.pairwise(sizes))


def calibrations(splits: Splits) -> list[Calibration]:
    """Return the calibration of every timed backend that trained a whole linear model."""
    every = (calibrate(splits, backend) for backend in times.timed_backends(splits))
    return [calibration for calibration in every if calibration is not None]


def calibrate(splits: Splits, backend: str) -> Calibration | None:
    """Return the constants fitted to one backend, None without a whole linear model."""
    run, rates = splits.run, {}
    for base in splits.families:
        sizes, samples = linear_sizes(run, base), mean_batch_size(run, base, backend)
        step = times.step_seconds(run, base, backend) if base else None
        if base and sizes and samples and step:
            rates[base] = count_operations(sizes, samples) / step.mean
    if not rates:
        return None
    # prefer arms without a slow rank whose ranks had cores of their own
    used = without_straggler(splits)
    undisturbed = [a for a in used if not times.is_oversubscribed(run, a.name, backend)] or used
    trials = [(a, t) for a in undisturbed for t in run.select(a.name, backend) if t.timelines]
    messages = _medians(each for pair in trials for each in events.message_times(*pair))
    reduces = _medians(each for pair in trials for each in events.collective_times(*pair))
    fits = (
        _fit([Point(s, 1, nbytes, n=2, nbytes=nbytes) for (_, nbytes), s in messages.items()]),
        _fit(
            [
                Point.from_measurement("all_reduce", n, nbytes, s)
                for (n, nbytes), s in reduces.items()
                if nbytes % 4 == 0
            ]
        ),
    )
    return Calibration(backend, rates, fits[0][0], fits[1][0], (fits[0][1], fits[1][1]))


def _medians(measured: Iterable[tuple[int, int, float]]) -> dict[tuple[int, int], float]:
    """Return (ranks, bytes) → median seconds, for the pairs with at least `MIN_MEASUREMENTS`
    measurements."""
    by_size: dict[tuple[int, int], list[float]] = {}
    for n, nbytes, seconds in measured:
        by_size.setdefault((n, nbytes), []).append(seconds)
    return {
        size: median(seconds)
        for size, seconds in by_size.items()
        if len(seconds) >= MIN_MEASUREMENTS
    }


def _fit(points: Sequence[Point]) -> tuple[Fit | None, int]:
    """Return the fitted link, None with fewer than `SIZES` sizes or without a fit, and the number
    of sizes."""
    sizes = len({p.nbytes for p in points})
    with suppress(UserError):
        return fit(points) if sizes >= SIZES else None, sizes
    return None, sizes


# --- predictions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplitPrediction:
    """Predicted and measured seconds of an update of one arm."""

    arm: SplitArm
    backend: str
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        """Predicted seconds divided by measured seconds."""
        return self.predicted / self.measured


def predictions(splits: Splits, calibration: Calibration) -> list[SplitPrediction]:
    """Return the predictions for the arms that the model covers: two stages, or all layer pairs
    sharded."""
    backend = calibration.backend
    return [
        SplitPrediction(arm, backend, seconds, measured.mean)
        for arm in splits
        if (measured := times.step_seconds(splits.run, arm.name, backend)) is not None
        and (seconds := predict_step(splits, arm, calibration)) is not None
    ]


def predict_step(splits: Splits, arm: SplitArm, calibration: Calibration) -> float | None:
    """Return the predicted seconds of an update, None if the model does not cover the arm."""
    base, sizes = splits.whole_model_arm(arm), linear_sizes(splits.run, arm.name)
    samples = mean_batch_size(splits.run, arm.name, calibration.backend)
    if base not in calibration.rates or sizes is None or samples is None:
        return None
    rate = calibration.rates[base]
    if arm.is_pure_tensor and not (arm.split.layers or arm.split.sequence) and calibration.reduces:
        link = _link_with_straggler(arm, calibration.reduces.link)
        return tensor_parallel_step(sizes, round(samples), arm.mesh.tensor, rate, link, whole=False)
    m = arm.micro_batches
    closed = arm.schedule in CLOSED_FORM_SCHEDULES or m == 1
    if arm.is_pure_pipeline and len(arm.stages) == 2 and closed and calibration.messages:
        link = _link_with_straggler(arm, calibration.messages.link)
        layers = arm.run.models[arm.model]["layers"]
        linear = {layer["name"] for layer in layers if layer["type"] == "Linear"}
        cut = sum(name in linear for name in arm.stages[0])
        if 0 < cut < len(sizes) - 1:
            return vertical_step(sizes, round(samples), m, rate, link, cut=cut)
    return None


def _link_with_straggler(arm: SplitArm, link: Link) -> Link:
    """Return the link with the extra latency and time per byte that a slow rank adds to every
    message; jitter and slow computing are ignored. Unchanged without a slow rank."""
    slow = ranks.straggler(arm.run, arm.name)
    if slow is None:
        return link
    rate = slow.bandwidth_bytes_per_s
    beta = link.beta_s_per_byte + (1 / rate if rate else 0.0)
    return Link(link.alpha_s + slow.latency_s, beta, link.gamma_s_per_byte)


# --- from which width, or bandwidth, one way to split is faster than another ----------------------

#: Ways to split a model: inside its layers (tensor parallelism), by layer (pipeline), or not at
#: all.
TENSOR_SPLIT, LAYER_SPLIT, UNSPLIT = "inside", "by_layer", "whole"
PAIRS = ((TENSOR_SPLIT, LAYER_SPLIT), (TENSOR_SPLIT, UNSPLIT), (LAYER_SPLIT, UNSPLIT))


@dataclass(frozen=True)
class Question:
    """The setting of the thresholds: a model of linear layers as an arm trained it, on 2 ranks;
    ``m`` micro-batches if it is split by layer."""

    arm: str
    model: str
    sizes: Sequence[int]
    batch: int
    m: int
    calibration: Calibration

    @property
    def layers(self) -> int:
        """Number of layers, rounded down to an even number so that all of them pair; at least 2."""
        return max(2, (len(self.sizes) - 1) // 2 * 2)

    def seconds(self, way: str, sizes: Sequence[int], rate: float = 0.0) -> float | None:
        """Return the predicted seconds of an update; None if the link was not fitted.

        Args:
            way: `TENSOR_SPLIT`, `LAYER_SPLIT` or `UNSPLIT`.
            sizes: d₀ … d_L, the sizes of the layers.
            rate: bytes per second of the link; 0: as measured.
        """
        rate_of_rank = self.calibration.rate
        if way == UNSPLIT:
            return count_operations(sizes, self.batch) / rate_of_rank
        fitted = self.calibration.reduces if way == TENSOR_SPLIT else self.calibration.messages
        if fitted is None:
            return None
        link = Link(fitted.link.alpha_s, 1 / rate) if rate else fitted.link
        if way == TENSOR_SPLIT:
            return tensor_parallel_step(sizes, self.batch, 2, rate_of_rank, link, whole=False)
        return vertical_step(sizes, self.batch, self.m, rate_of_rank, link)

    def seconds_at_width(self, way: str, d: int) -> float | None:
        """Return the predicted seconds of an update if all layers have the width ``d``."""
        return self.seconds(way, [d] * (self.layers + 1))

    def width_threshold(self, first: str, second: str) -> int | None:
        """Return the width of all layers from which on the way ``first`` is faster than ``second``
        (`TENSOR_SPLIT`, `LAYER_SPLIT`, `UNSPLIT`); 0: always, None: never up to a million, or
        unknown."""
        return _threshold(first, second, MAX_WIDTH, self.seconds_at_width)

    def bandwidth_threshold(self, first: str, second: str) -> int | None:
        """Return the link bandwidth in bytes per second from which on the way ``first`` is faster
        than ``second``, with the given model and the measured α; 0: always, None: never, or
        unknown."""
        return _threshold(
            first, second, MAX_BYTES_PER_S, lambda way, b: self.seconds(way, self.sizes, b)
        )

    def relative_time(self, way: str, d: int) -> float | None:
        """Return the seconds of an update relative to the whole model if all layers have the width
        ``d``, None if unknown."""
        split, whole = self.seconds_at_width(way, d), self.seconds_at_width(UNSPLIT, d)
        return None if split is None or not whole else split / whole


def _threshold(
    first: str, second: str, most: int, seconds: Callable[[str, int], float | None]
) -> int | None:
    """Return the value up to ``most`` from which on the way ``first`` is faster than ``second``, by
    ``seconds(way, value)``; 0: always, None: never, or unknown."""
    if seconds(first, 1) is None or seconds(second, 1) is None:
        return None
    last = crossovers(first, second, 1, most, lambda way, x: seconds(way, x) or 0.0)[-1]
    return None if last.winner != first else 0 if last.first == 1 else last.first


def make_question(splits: Splits, calibration: Calibration) -> Question | None:
    """Return the thresholds' setting for the deepest calibrated model, with the most common number
    of micro-batches of the arms that only split it into a pipeline (4 without one); None without a
    linear model."""
    asked = []
    for base, members in splits.families.items():
        sizes = linear_sizes(splits.run, base) if base in calibration.rates else None
        samples = mean_batch_size(splits.run, base, calibration.backend) if sizes else None
        counts = [arm.micro_batches for arm in members if arm.is_pure_pipeline] or [4]
        m = max(set(counts), key=lambda x: (counts.count(x), -x))
        if base and sizes and samples:
            model = model_of(splits.run, base)
            asked.append(Question(base, model, sizes, round(samples), m, calibration))
    return max(asked, key=lambda each: len(each.sizes), default=None)
