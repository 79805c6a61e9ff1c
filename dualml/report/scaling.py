"""Scaling results: several ranks with their own cores compared with one rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData, Trial
from dualml.report import ranks, scaling_families
from dualml.report.confidence import MeanInterval, paired_interval
from dualml.report.results import ArmResult
from dualml.report.scaling_families import STRONG, CoreBudget, Family

#: Parts of the time of an update; ``rest`` lies between two updates.
PARTS = ("gradient", "update", "wait", "transfer", "rest")
OVERSUBSCRIBED, UNKNOWN, NO_BASE = "oversubscribed", "unknown", "no_base"


@dataclass(frozen=True, eq=False)
class ScalingPoint(ArmResult):
    """An arm of a scaling family (`scaling_families.Family`) on one backend."""

    family: Family

    @cached_property
    def single_rank(self) -> ScalingPoint:
        """The family's single-rank arm on the same backend."""
        return ScalingPoint(self.run, self.family.base, self.backend, self.family)

    @cached_property
    def n(self) -> int:
        """Number of ranks of the arm."""
        return ranks.world_size(self.run, self.arm)

    @cached_property
    def batch(self) -> float | None:
        """Mean number of samples per rank in an update, None if unknown."""
        settings = self.run.arms[self.arm]
        whole = settings.get("batch_size") or settings.get("samples") or self.run.train_size
        return whole / self.n if whole else None

    @cached_property
    def core_budget(self) -> CoreBudget:
        """The CPU cores for the arm's ranks."""
        return scaling_families.core_budget(self.run, self.arm, self.backend)

    @property
    def crowded(self) -> bool:
        """Whether there were fewer CPU cores than the ranks need, so that they took turns; False if
        unknown."""
        return self.core_budget.has_enough_cores is False

    @property
    def seconds(self) -> float:
        """Seconds of an update, mean over the seeds; NaN if unknown."""
        return self.step.mean if self.step else float("nan")

    @cached_property
    def per_core(self) -> MeanInterval | None:
        """Samples per second and core, None if unknown."""
        return (
            self.rate.scaled(1 / self.core_budget.used_cores)
            if self.rate and self.core_budget.used_cores
            else None
        )

    @cached_property
    def parts(self) -> Mapping[str, float]:
        """Mean seconds of an update by `PARTS`, over ranks and seeds; empty with one rank, or if
        they were not recorded."""
        recorded = [p for t in self.trials if t.ranks and (p := _parts(t))] if self.n > 1 else []
        keys = [k for k in PARTS if recorded and all(k in p for p in recorded)]
        return {k: sum(p[k] for p in recorded) / len(recorded) for k in keys}

    def part_share(self, part: str) -> float | None:
        """Return the share of a part in the update, as a fraction, None if the parts are unknown;
        ``part`` must be one of `parts`, which lacks ``update`` in older records."""
        whole = sum(self.parts.values())
        return self.parts[part] / whole if whole else None

    @property
    def communication_seconds(self) -> float:
        """Seconds of waiting and transferring in an update; 0 if unknown."""
        return self.parts.get("wait", 0.0) + self.parts.get("transfer", 0.0)

    @cached_property
    def no_speedup_reason(self) -> str:
        """Why there is no speed-up: `OVERSUBSCRIBED`, `UNKNOWN` (number of cores), `NO_BASE` (no
        seed in common with the single rank), or empty if nothing prevents one."""
        enough = [self.single_rank.core_budget.has_enough_cores, self.core_budget.has_enough_cores]
        if False in enough:
            return OVERSUBSCRIBED
        if None in enough:
            return UNKNOWN
        return "" if self.single_rank.steps.keys() & self.steps.keys() else NO_BASE

    @cached_property
    def speedup(self) -> MeanInterval | None:
        """Speed-up over the single rank, paired by seed; None with one rank or without a
        comparison."""
        if self.n == 1 or self.no_speedup_reason:
            return None
        ratio = partial(scaling_families.speedup, self.family.kind, self.n)
        return paired_interval(self.single_rank.steps, self.steps, ratio)

    @cached_property
    def efficiency(self) -> MeanInterval | None:
        """Speed-up divided by the number of ranks, None without a speed-up."""
        return self.speedup and self.speedup.scaled(1 / self.n)

    @cached_property
    def predicted(self) -> float | None:
        """Speed-up allowed by the serial parameter update (Amdahl's law) or, for weak scaling, n;
        computed from the means. None without a speed-up or without the parts it needs."""
        return self._predict(0.0)

    @cached_property
    def predicted_with_communication(self) -> float | None:
        """Predicted speed-up if the measured communication time is included, None where `predicted`
        is."""
        return self._predict(self.communication_seconds)

    def _predict(self, communication: float) -> float | None:
        """Return the speed-up predicted with ``communication`` seconds per update, None if
        unknown."""
        serial, one = self.parts.get("update"), self.single_rank.seconds
        if self.speedup and self.parts and self.family.kind != STRONG:
            return scaling_families.gustafson(self.n, one, communication)
        if self.speedup is None or serial is None:
            return None
        return scaling_families.amdahl(self.n, one, serial, communication)


def _parts(trial: Trial) -> dict[str, float]:
    """Return the mean seconds of an update by `PARTS` over the ranks; empty if they were not
    recorded. Older records do not separate the update, which ``gradient`` then includes."""
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


def scaling_points(run: RunData) -> list[ScalingPoint]:
    """Return the results of every scaling family on every backend, the single rank first. Arms
    without a successful trial are left out, and families without a multi-rank arm."""
    points = []
    for family in scaling_families.families(run):
        for backend in run.backends:
            arms = (family.base, *family.arms)
            every = [ScalingPoint(run, arm, backend, family) for arm in arms]
            timed = [p for p in every if p.step]
            points += timed if any(p.n > 1 for p in timed) else []
    return points


# --- words ----------------------------------------------------------------------------------------


def family_name(
    family: Family, every: Sequence[Family], words: Messages, key: str = "scaling"
) -> str:
    """Return the name of a family's kind of scaling, the message ``KEY.KIND``, e.g. ``strong
    scaling``, with the strategy if the families of this kind in ``every`` have several."""
    kind = words(f"{key}.{family.kind}")
    same = {f.strategy for f in every if f.kind == family.kind}
    return kind if len(same) < 2 else words("scaling.by", kind=kind, strategy=family.strategy)


def no_speedup_text(p: ScalingPoint, words: Messages, *, long: bool = False) -> str:
    """Return the text that says why there is no speed-up (`ScalingPoint.no_speedup_reason`, not
    empty); ``long`` makes a sentence of the numbers of ranks and cores."""
    if p.no_speedup_reason == OVERSUBSCRIBED:
        turns = format_core_budget(p.core_budget, words)
        return words("scaling.no_measurement", values=turns) if long else turns
    return words(f"scaling.{p.no_speedup_reason}", base=p.family.base)


def format_core_budget(budget: CoreBudget, words: Messages) -> str:
    """Return the use of cores as text, e.g. ``4 ranks on 2 cores``."""
    return words("scaling.places" if budget.each == 1 else "scaling.places_each", room=budget)


def notices(run: RunData, words: Messages) -> list[str]:
    """Return a list of one notice to read before the scaling section: for which multi-rank arms
    there is no speed-up, and why. Empty if every one has one."""
    points = scaling_points(run)
    backends = [b for b in run.backends if any(p.backend == b for p in points)]
    absent = [(no_speedup_text(p, words), p) for p in points if p.n > 1 and p.no_speedup_reason]
    items = []
    for why in dict.fromkeys(why for why, _ in absent):
        arms = {
            b: list(dict.fromkeys(p.arm for w, p in absent if (w, p.backend) == (why, b)))
            for b in backends
        }
        if len({tuple(names) for names in arms.values()}) == 1:
            items.append(words("scaling.item", arms=arms[backends[0]], why=why))
        else:
            items += [
                words("scaling.item_on", backend=b, arms=names, why=why)
                for b, names in arms.items()
                if names
            ]
    return [words("page.no_speedup", values=words.semicolons(items))] if items else []
