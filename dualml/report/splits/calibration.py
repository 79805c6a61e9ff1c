"""The α–β model of split layers, calibrated by the run itself: operations a second from the whole
models, α and β from single messages and collectives."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from dualml.cost.link import Link
from dualml.cost.model import Fit, Point, fit
from dualml.cost.split import tensor_parallel_step, vertical_step
from dualml.errors import UserError
from dualml.report import ranks
from dualml.report.model import Run, Trial
from dualml.report.splits import arms, events, spent
from dualml.report.splits.bubbles import ORDERS

#: Layers that cost next to nothing beside linear ones.
FREE = ("Flatten", "Tanh", "ReLU")
ENOUGH = 5  # measurements of a size
SIZES = 3  # sizes for a fit


@dataclass(frozen=True)
class Calibration:
    """Of one backend. ``rates``: whole arm → operations a second; ``messages`` and ``reduces``:
    what was fitted, None where ``sizes`` were too few."""

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
    told = run.models.get(arms.model(run, arm)) or {}
    sizes: list[int] = []
    for layer in told.get("layers") or ():
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


def operations(sizes: list[int], samples: float) -> float:
    """C: forward, and twice that backward."""
    return 6.0 * samples * sum(a * b for a, b in itertools.pairwise(sizes))


def calibrate(run: Run, backend: str) -> Calibration | None:
    """None without a whole arm of linear layers."""
    rates = {}
    for base in arms.families(run):
        sizes = chain(run, base) if base else None
        samples = batch(run, base, backend) if base else None
        found = spent.step(run, base, backend) if base else None
        if base and sizes and samples and found:
            rates[base] = operations(sizes, samples) / found.mean
    if not rates:
        return None
    messages, many = _fit(
        Point(seconds, 1, nbytes, n=2, nbytes=nbytes)
        for (_, nbytes), seconds in _medians(
            (2, b, s) for t in _trials(run, backend) for b, s in events.message_times(run, t)
        ).items()
    )
    reduces, more = _fit(
        Point.of("all_reduce", n, nbytes, seconds)
        for (n, nbytes), seconds in _medians(
            told for t in _trials(run, backend) for told in events.collective_times(run, t)
        ).items()
        if nbytes % 4 == 0
    )
    return Calibration(backend, rates, messages, reduces, (many, more))


def _trials(run: Run, backend: str) -> list[Trial]:
    """Of arms without a handicap whose ranks had cores of their own, if there are any."""
    used = arms.healthy(run, arms.split_arms(run))
    roomy = [a for a in used if not spent.turns(run, a, backend)] or used
    return [t for a in roomy for t in run.select(a, backend) if t.timelines]


def _medians(found: Iterable[tuple[int, int, float]]) -> dict[tuple[int, int], float]:
    """(ranks, bytes) → median seconds, of sizes measured often enough."""
    by_size: dict[tuple[int, int], list[float]] = {}
    for n, nbytes, seconds in found:
        by_size.setdefault((n, nbytes), []).append(seconds)
    return {size: median(told) for size, told in by_size.items() if len(told) >= ENOUGH}


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

    arm: str
    backend: str
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured


def predictions(run: Run, found: Calibration) -> list[Prediction]:
    """Of the arms that the model speaks of: 2 stages, or all pairs of layers shared."""
    made = []
    for arm in arms.split_arms(run):
        measured = spent.step(run, arm, found.backend)
        guess = predicted(run, arm, found) if measured else None
        if measured is not None and guess is not None:
            made.append(Prediction(arm, found.backend, guess, measured.mean))
    return made


def predicted(run: Run, arm: str, found: Calibration) -> float | None:
    base, sizes = arms.whole(run, arm), chain(run, arm)
    samples = batch(run, arm, found.backend)
    if base not in found.rates or sizes is None or samples is None:
        return None
    rate, told = found.rates[base], arms.split(run, arm)
    if arms.inside(run, arm) and not told["layers"] and found.reduces:
        link = _slowed(run, arm, found.reduces.link)
        n = arms.mesh(run, arm).tensor
        return tensor_parallel_step(sizes, round(samples), n, rate, link, whole=False)
    stages = list(arms.plan(run, arm).get("stages") or ())
    m = arms.micro_batches(run, arm)
    plain = arms.schedule(run, arm) in ORDERS or m == 1
    if arms.by_layer(run, arm) and len(stages) == 2 and plain and found.messages:
        link = _slowed(run, arm, found.messages.link)
        cut = _linear(run, arm, stages[0])
        if 0 < cut < len(sizes) - 1:
            return vertical_step(sizes, round(samples), m, rate, link, cut=cut)
    return None


def _linear(run: Run, arm: str, names: Iterable[str]) -> int:
    """Linear layers among these."""
    layers = run.models[arms.model(run, arm)]["layers"]
    linear = {layer["name"] for layer in layers if layer["type"] == "Linear"}
    return sum(name in linear for name in names)


def _slowed(run: Run, arm: str, link: Link) -> Link:
    """With what the handicap adds to every message."""
    told = ranks.slow(run, arm)
    if told is None:
        return link
    rate = told["bandwidth_bytes_per_s"]
    beta = link.beta_s_per_byte + (1 / rate if rate else 0.0)
    return Link(link.alpha_s + told["latency_s"], beta, link.gamma_s_per_byte)
