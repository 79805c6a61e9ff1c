"""The α–β model of split layers, calibrated by the run itself: operations a second from the whole
models, α and β from single messages and collectives."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from dualml.cost.link import Link
from dualml.cost.model import Fit, Point, fit
from dualml.cost.split import tensor_parallel_step, vertical_step
from dualml.errors import UserError
from dualml.report import ranks
from dualml.report.splits import events, times
from dualml.report.splits.arms import SplitArm, Splits, healthy, model_of
from dualml.store.run import Run, Trial

#: Layers that cost next to nothing beside linear ones.
FREE = ("Flatten", "Tanh", "ReLU")
#: Schedules whose update has the closed form of `vertical_step`.
CLOSED = ("1f1b", "gpipe", "eager-1f1b")
ENOUGH = 5  # measurements of a size
SIZES = 3  # sizes for a fit


@dataclass(frozen=True)
class Calibration:
    """Of one backend. ``rates``: whole arm → operations a second; ``messages`` and ``reduces``:
    the fitted links, None where ``sizes`` were too few."""

    backend: str
    rates: dict[str, float]
    messages: Fit | None
    reduces: Fit | None
    sizes: tuple[int, int]

    @property
    def rate(self) -> float:
        return median(self.rates.values())


def chain(run: Run, arm: str) -> list[int] | None:
    """Sizes d₀ … d_L of a model that is linear layers one after the other; None for others."""
    model = run.models.get(model_of(run, arm)) or {}
    sizes: list[int] = []
    for layer in model.get("layers") or ():
        if layer.get("type") == "Linear":
            sizes += [int(layer["outputs"])] if sizes else [layer["inputs"], layer["outputs"]]
        elif layer.get("type") not in FREE:
            return None
    return sizes if len(sizes) > 2 else None


def batch(run: Run, arm: str, backend: str) -> float | None:
    """Samples of the mean update."""
    for t in run.select(arm, backend):
        if t.updates and t.sample_gradients:
            return t.sample_gradients / t.updates
    return None


def operations(sizes: Sequence[int], samples: float) -> float:
    """C: forward, and twice that backward."""
    return 6.0 * samples * sum(a * b for a, b in itertools.pairwise(sizes))


def calibrations(splits: Splits) -> list[Calibration]:
    """Of every backend whose times are of interest and that trained a whole model of linear
    layers."""
    every = (calibrate(splits, backend) for backend in times.compared(splits))
    return [calibration for calibration in every if calibration is not None]


def calibrate(splits: Splits, backend: str) -> Calibration | None:
    run, rates = splits.run, {}
    for base in splits.families:
        sizes = chain(run, base) if base else None
        samples = batch(run, base, backend) if base else None
        step = times.step(run, base, backend) if base else None
        if base and sizes and samples and step:
            rates[base] = operations(sizes, samples) / step.mean
    if not rates:
        return None
    trials = list(_trials(splits, backend))
    messages, message_sizes = _fit(
        Point(seconds, 1, nbytes, n=2, nbytes=nbytes)
        for (_, nbytes), seconds in _medians(
            each for arm, t in trials for each in events.message_times(arm, t)
        ).items()
    )
    reduces, reduce_sizes = _fit(
        Point.of("all_reduce", n, nbytes, seconds)
        for (n, nbytes), seconds in _medians(
            each for arm, t in trials for each in events.collective_times(arm, t)
        ).items()
        if nbytes % 4 == 0
    )
    return Calibration(backend, rates, messages, reduces, (message_sizes, reduce_sizes))


def _trials(splits: Splits, backend: str) -> Iterator[tuple[SplitArm, Trial]]:
    """Of arms without a slow rank whose ranks had cores of their own, if there are any."""
    used = healthy(list(splits))
    undisturbed = [a for a in used if not times.take_turns(splits.run, a.name, backend)] or used
    for arm in undisturbed:
        for trial in splits.run.select(arm.name, backend):
            if trial.timelines:
                yield arm, trial


def _medians(measured: Iterable[tuple[int, int, float]]) -> dict[tuple[int, int], float]:
    """(ranks, bytes) → median seconds, of sizes measured often enough."""
    by_size: dict[tuple[int, int], list[float]] = {}
    for n, nbytes, seconds in measured:
        by_size.setdefault((n, nbytes), []).append(seconds)
    return {size: median(seconds) for size, seconds in by_size.items() if len(seconds) >= ENOUGH}


def _fit(points: Iterable[Point]) -> tuple[Fit | None, int]:
    """And the number of sizes."""
    known = list(points)
    sizes = len({p.nbytes for p in known})
    if sizes < SIZES:
        return None, sizes
    try:
        return fit(known), sizes
    except UserError:
        return None, sizes


# --- predictions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prediction:
    """Seconds of an update."""

    arm: SplitArm
    backend: str
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured


def predictions(splits: Splits, calibration: Calibration) -> list[Prediction]:
    """Of the arms that the model speaks of: 2 stages, or all pairs of layers shared."""
    compared = []
    for arm in splits:
        measured = times.step(splits.run, arm.name, calibration.backend)
        seconds = predicted(splits, arm, calibration) if measured else None
        if measured is not None and seconds is not None:
            compared.append(Prediction(arm, calibration.backend, seconds, measured.mean))
    return compared


def predicted(splits: Splits, arm: SplitArm, calibration: Calibration) -> float | None:
    base, sizes = splits.whole(arm), chain(splits.run, arm.name)
    samples = batch(splits.run, arm.name, calibration.backend)
    if base not in calibration.rates or sizes is None or samples is None:
        return None
    rate = calibration.rates[base]
    if arm.inside and not arm.split.layers and calibration.reduces:
        link = _slowed(arm, calibration.reduces.link)
        return tensor_parallel_step(sizes, round(samples), arm.mesh.tensor, rate, link, whole=False)
    m = arm.micro_batches
    closed = arm.schedule in CLOSED or m == 1
    if arm.by_layer and len(arm.stages) == 2 and closed and calibration.messages:
        link = _slowed(arm, calibration.messages.link)
        cut = _linear(arm, arm.stages[0])
        if 0 < cut < len(sizes) - 1:
            return vertical_step(sizes, round(samples), m, rate, link, cut=cut)
    return None


def _linear(arm: SplitArm, names: Iterable[str]) -> int:
    """Linear layers among these."""
    layers = arm.run.models[arm.model]["layers"]
    linear = {layer["name"] for layer in layers if layer["type"] == "Linear"}
    return sum(name in linear for name in names)


def _slowed(arm: SplitArm, link: Link) -> Link:
    """With what a slow rank adds to every message."""
    slow = ranks.slow(arm.run, arm.name)
    if slow is None:
        return link
    rate = slow.bandwidth_bytes_per_s
    beta = link.beta_s_per_byte + (1 / rate if rate else 0.0)
    return Link(link.alpha_s + slow.latency_s, beta, link.gamma_s_per_byte)
