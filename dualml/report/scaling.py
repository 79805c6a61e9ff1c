"""One rank against several with cores of their own: the numbers behind tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dualml.report import families, ranks
from dualml.report.families import STRONG, Family, Room
from dualml.report.measures import epoch_seconds
from dualml.report.spread import Spread, paired, spread
from dualml.store.run import Run, Trial
from dualml.words import Words

#: Where the time of an update goes; ``rest`` lies between two updates.
PARTS = ("gradient", "update", "wait", "transfer", "rest")
OVERSUBSCRIBED, UNKNOWN, NO_BASE = "oversubscribed", "unknown", "no_base"


@dataclass(frozen=True)
class Point:
    """An arm of a family on one backend; seconds, and samples in a second.

    Attributes:
        batch: samples of each rank in an update, on the mean.
        parts: mean seconds of an update by `PARTS`, over ranks and seeds; empty with one rank.
        why_not: why there is no speed-up: `OVERSUBSCRIBED`, `UNKNOWN`, `NO_BASE`, or nothing.
        predicted: speed-up that the update of the parameters allows (Amdahl) or, for weak scaling,
            n; ``communicating``: with the measured communication, too.
    """

    family: Family
    arm: str
    backend: str
    n: int
    batch: float | None
    room: Room
    step: Spread
    epoch: Spread | None
    rate: Spread | None
    per_core: Spread | None
    parts: Mapping[str, float]
    why_not: str
    speedup: Spread | None = None
    efficiency: Spread | None = None
    predicted: float | None = None
    communicating: float | None = None


def steps(trials: Sequence[Trial]) -> dict[int, float]:
    """Seed → seconds of an update, all that happens between updates included."""
    return {t.seed: s for t in trials if (s := ranks.step_seconds(t)) is not None}


def points(run: Run, family: Family, backend: str) -> list[Point]:
    """The one rank first; arms without a successful trial are left out."""
    arms = [family.base, *family.arms]
    return [p for arm in arms if (p := _point(run, family, arm, backend)) is not None]


def _point(run: Run, family: Family, arm: str, backend: str) -> Point | None:
    trials = run.select(arm, backend)
    step = spread(steps(trials).values())
    if step is None:
        return None
    n, room = ranks.size(run, arm), families.room(run, arm, backend)
    used, rate = room.used, spread(t.throughput for t in trials)
    made = Point(
        family=family,
        arm=arm,
        backend=backend,
        n=n,
        batch=_batch(run, arm, n),
        room=room,
        step=step,
        epoch=spread(epoch_seconds(run, t) for t in trials),
        rate=rate,
        per_core=rate.scaled(1 / used) if rate and used else None,
        parts=parts(trials) if n > 1 else {},
        why_not=_why_not(run, family, arm, backend),
    )
    return made if n == 1 or made.why_not else _with_speedup(run, made)


def _batch(run: Run, arm: str, n: int) -> float | None:
    settings = run.arms[arm]
    whole = settings.get("batch_size") or settings.get("samples") or run.train_size
    return whole / n if whole else None


def _why_not(run: Run, family: Family, arm: str, backend: str) -> str:
    rooms = [families.room(run, a, backend) for a in (family.base, arm)]
    if any(room.enough is False for room in rooms):
        return OVERSUBSCRIBED
    if any(room.enough is None for room in rooms):
        return UNKNOWN
    one, mine = (steps(run.select(a, backend)) for a in (family.base, arm))
    return "" if one.keys() & mine.keys() else NO_BASE


def _with_speedup(run: Run, p: Point) -> Point:
    """Seed by seed against the one rank; the predictions from the means."""
    one, mine = (steps(run.select(a, p.backend)) for a in (p.family.base, p.arm))
    ratios: list[Callable[[float, float], float]] = [
        partial(f, p.family.kind, p.n) for f in (families.speedup, families.efficiency)
    ]
    told = [paired(one, mine, f) for f in ratios]
    base = spread(one.values())
    predicted: list[float | None] = [None, None]
    if base is not None and p.parts:
        sent = p.parts["wait"] + p.parts["transfer"]
        predicted = [prediction(p, base.mean, c) for c in (0.0, sent)]
    return Point(**{**vars(p), "speedup": told[0], "efficiency": told[1],
                    "predicted": predicted[0], "communicating": predicted[1]})  # fmt: skip


def prediction(p: Point, one: float, communication: float) -> float | None:
    """By Amdahl's law from the measured update of the parameters, or by Gustafson's."""
    if p.family.kind != STRONG:
        return families.gustafson(p.n, one, communication)
    serial = p.parts.get("update")
    return None if serial is None else families.amdahl(p.n, one, serial, communication)


def parts(trials: Sequence[Trial]) -> dict[str, float]:
    """Mean seconds of an update by `PARTS`; empty where they were not recorded."""
    found = [told for t in trials if t.ranks and (told := _parts(t))]
    if not found:
        return {}
    keys = [k for k in PARTS if all(k in told for told in found)]
    return {k: sum(told[k] for told in found) / len(found) for k in keys}


def _parts(trial: Trial) -> dict[str, float]:
    """Mean over the ranks; older records do not tell the update from the gradient."""
    mean = {
        k: sum(float(r[k]) for r in trial.ranks) / len(trial.ranks)
        for k in ("compute_s", "update_s", "wait_s", "transfer_s", "step_s")
        if all(k in r for r in trial.ranks)
    }
    if not {"compute_s", "wait_s", "transfer_s", "step_s"} <= mean.keys():
        return {}
    told = {k: mean[f"{k}_s"] for k in ("update", "wait", "transfer") if f"{k}_s" in mean}
    told["gradient"] = mean["compute_s"] - told.get("update", 0.0)
    told["rest"] = max(0.0, (ranks.step_seconds(trial) or 0.0) - mean["step_s"])
    return told


def all_points(run: Run) -> list[Point]:
    """Of every family and backend; those of a family that has no arm with ranks are left out."""
    found = []
    for family in families.families(run):
        for backend in run.backends:
            mine = points(run, family, backend)
            if any(p.n > 1 for p in mine):
                found += mine
    return found


# --- words ----------------------------------------------------------------------------------------


def name(family: Family, every: Sequence[Family], words: Words, key: str = "scaling") -> str:
    """``strong scaling``, with the strategy where there are several of the kind."""
    told = words(f"{key}.{family.kind}")
    same = {f.strategy for f in every if f.kind == family.kind}
    return told if len(same) < 2 else words("scaling.by", kind=told, strategy=family.strategy)


def reason(p: Point, words: Words) -> str:
    """Why there is no speed-up, in words."""
    if p.why_not != OVERSUBSCRIBED:
        return words(f"scaling.{p.why_not}", base=p.family.base) if p.why_not else ""
    return words("scaling.no_measurement", values=places(p.room, words))


def places(room: Room, words: Words) -> str:
    """``4 ranks on 2 cores``."""
    each = room.each or 0
    key = "scaling.places" if each == 1 else "scaling.places_each"
    cores = words.count("core", room.have or 0)
    return words(key, ranks=words.count("rank", room.ranks), each=each, cores=cores)


def notices(run: Run, words: Words) -> list[str]:
    """What the reader of the chapter must know first: where there is no speed-up, and why."""
    found: dict[str, dict[str, list[str]]] = {}
    for p in all_points(run):
        if p.n > 1 and p.why_not:
            arms = found.setdefault(_short(p, words), {}).setdefault(p.backend, [])
            if p.arm not in arms:
                arms.append(p.arm)
    shown = [b for b in run.backends if any(p.backend == b for p in all_points(run))]
    items = []
    for why, by_backend in found.items():
        same = len({tuple(arms) for arms in by_backend.values()}) == 1
        if same and list(by_backend) == shown:
            items.append(words("scaling.item", arms=words.join(by_backend[shown[0]]), why=why))
        else:
            items += [
                words("scaling.item_on", backend=b, arms=words.join(arms), why=why)
                for b, arms in by_backend.items()
            ]
    return [words("page.no_speedup", values=words.semicolons(items))] if items else []


def _short(p: Point, words: Words) -> str:
    return places(p.room, words) if p.why_not == OVERSUBSCRIBED else reason(p, words)
