"""One rank against several with cores of their own: the numbers behind tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from dualml.report import families, ranks
from dualml.report.families import STRONG, Family, Room
from dualml.report.results import Result
from dualml.report.spread import Spread, paired
from dualml.store.run import Run, Trial
from dualml.words import Words

#: Where the time of an update goes; ``rest`` lies between two updates.
PARTS = ("gradient", "update", "wait", "transfer", "rest")
OVERSUBSCRIBED, UNKNOWN, NO_BASE = "oversubscribed", "unknown", "no_base"


@dataclass(frozen=True, eq=False)
class Point(Result):
    """An arm of a family on one backend; ``one`` is the one rank there."""

    family: Family

    @cached_property
    def one(self) -> Point:
        return Point(self.run, self.family.base, self.backend, self.family)

    @cached_property
    def n(self) -> int:
        return ranks.size(self.run, self.arm)

    @cached_property
    def batch(self) -> float | None:
        """Samples of each rank in an update, on the mean."""
        settings = self.run.arms[self.arm]
        whole = settings.get("batch_size") or settings.get("samples") or self.run.train_size
        return whole / self.n if whole else None

    @cached_property
    def room(self) -> Room:
        return families.room(self.run, self.arm, self.backend)

    @property
    def crowded(self) -> bool:
        return self.room.enough is False

    @property
    def seconds(self) -> float:
        """Of an update, mean over the seeds."""
        return self.step.mean if self.step else float("nan")

    @cached_property
    def per_core(self) -> Spread | None:
        """``rate`` of each core."""
        return self.rate.scaled(1 / self.room.used) if self.rate and self.room.used else None

    @cached_property
    def parts(self) -> Mapping[str, float]:
        """Mean seconds of an update by `PARTS`, over ranks and seeds; empty with one rank, and
        where they were not recorded."""
        recorded = [p for t in self.trials if t.ranks and (p := _parts(t))] if self.n > 1 else []
        keys = [k for k in PARTS if recorded and all(k in p for p in recorded)]
        return {k: sum(p[k] for p in recorded) / len(recorded) for k in keys}

    def part(self, part: str) -> float | None:
        """A part of the whole."""
        whole = sum(self.parts.values())
        return self.parts[part] / whole if whole else None

    @property
    def sent(self) -> float:
        return self.parts.get("wait", 0.0) + self.parts.get("transfer", 0.0)

    @cached_property
    def why_not(self) -> str:
        """Why there is no speed-up: `OVERSUBSCRIBED`, `UNKNOWN`, `NO_BASE`, or nothing."""
        enough = [self.one.room.enough, self.room.enough]
        if False in enough:
            return OVERSUBSCRIBED
        if None in enough:
            return UNKNOWN
        return "" if self.one.steps.keys() & self.steps.keys() else NO_BASE

    @cached_property
    def speedup(self) -> Spread | None:
        """Seed by seed against the one rank."""
        if self.n == 1 or self.why_not:
            return None
        ratio = partial(families.speedup, self.family.kind, self.n)
        return paired(self.one.steps, self.steps, ratio)

    @cached_property
    def efficiency(self) -> Spread | None:
        return self.speedup and self.speedup.scaled(1 / self.n)

    @cached_property
    def predicted(self) -> float | None:
        """The speed-up that the update of the parameters allows (Amdahl) or, for weak scaling, n;
        from the means."""
        return self._prediction(0.0)

    @cached_property
    def communicating(self) -> float | None:
        """With the measured communication, too."""
        return self._prediction(self.sent)

    def _prediction(self, communication: float) -> float | None:
        serial, one = self.parts.get("update"), self.one.seconds
        if self.speedup and self.parts and self.family.kind != STRONG:
            return families.gustafson(self.n, one, communication)
        if self.speedup is None or serial is None:
            return None
        return families.amdahl(self.n, one, serial, communication)


def _parts(trial: Trial) -> dict[str, float]:
    """Mean over the ranks; older records do not tell the update from the gradient."""
    mean = {
        k: sum(float(r[k]) for r in trial.ranks) / len(trial.ranks)
        for k in ("compute_s", "update_s", "wait_s", "transfer_s", "step_s")
        if all(k in r for r in trial.ranks)
    }
    if not {"compute_s", "wait_s", "transfer_s", "step_s"} <= mean.keys():
        return {}
    parts = {k: mean[f"{k}_s"] for k in ("update", "wait", "transfer") if f"{k}_s" in mean}
    parts["gradient"] = mean["compute_s"] - parts.get("update", 0.0)
    parts["rest"] = max(0.0, (ranks.step_seconds(trial) or 0.0) - mean["step_s"])
    return parts


def all_points(run: Run) -> list[Point]:
    """Of every family and backend, the one rank first; families that have no arm with ranks are
    left out, and arms without a successful trial."""
    points = []
    for family in families.families(run):
        for backend in run.backends:
            arms = (family.base, *family.arms)
            every = [Point(run, arm, backend, family) for arm in arms]
            timed = [p for p in every if p.step]
            points += timed if any(p.n > 1 for p in timed) else []
    return points


# --- words ----------------------------------------------------------------------------------------


def name(family: Family, every: Sequence[Family], words: Words, key: str = "scaling") -> str:
    """``strong scaling``, with the strategy where there are several of the kind."""
    kind = words(f"{key}.{family.kind}")
    same = {f.strategy for f in every if f.kind == family.kind}
    return kind if len(same) < 2 else words("scaling.by", kind=kind, strategy=family.strategy)


def reason(p: Point, words: Words, *, long: bool = False) -> str:
    """Why there is no speed-up, in words."""
    if p.why_not == OVERSUBSCRIBED:
        turns = places(p.room, words)
        return words("scaling.no_measurement", values=turns) if long else turns
    return words(f"scaling.{p.why_not}", base=p.family.base)


def places(room: Room, words: Words) -> str:
    """``4 ranks on 2 cores``."""
    return words("scaling.places" if room.each == 1 else "scaling.places_each", room=room)


def notices(run: Run, words: Words) -> list[str]:
    """What the reader of the chapter must know first: where there is no speed-up, and why."""
    points = all_points(run)
    backends = [b for b in run.backends if any(p.backend == b for p in points)]
    absent = [(reason(p, words), p) for p in points if p.n > 1 and p.why_not]
    items = []
    for why in dict.fromkeys(why for why, _ in absent):
        arms = {
            b: list(dict.fromkeys(p.arm for w, p in absent if (w, p.backend) == (why, b)))
            for b in backends
        }
        if len({tuple(names) for names in arms.values()}) == 1:
            items.append(words("scaling.item", arms=arms[backends[0]], why=why))
        else:
            items += [words("scaling.item_on", backend=b, arms=names, why=why)
                      for b, names in arms.items() if names]  # fmt: skip
    return [words("page.no_speedup", values=words.semicolons(items))] if items else []
