"""A trial of one run and its partner in another run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dualml.common.json_types import JsonObject
from dualml.experiment.store.manifest import TrialRecord
from dualml.parity.against.changes import Change


@dataclass(frozen=True)
class CostComparison:
    """Cost of a trial in runs A and B: seconds per update, or bytes."""

    a: float
    b: float

    @property
    def ratio(self) -> float:
        """Cost in B divided by the cost in A."""
        return self.b / self.a

    def describe(self) -> dict[str, float]:
        """Return both costs and their ratio as JSON."""
        return {"a": self.a, "b": self.b, "ratio": self.ratio}


@dataclass(frozen=True)
class RunPair:
    """A trial of run A and its partner in run B, with their verdict.

    Attributes:
        arms, backends: their names in A and in B.
        seed: seed of both trials.
        judged: the comparison as `dualml.parity.pairs.compare_trajectories` returns it.
        settings: settings of the arms, their models and losses that differ.
        trials: the records of A and B; None if a run has no such trial.
    """

    arms: tuple[str, str]
    backends: tuple[str, str]
    seed: int
    judged: Mapping[str, Any]
    settings: tuple[Change, ...]
    trials: tuple[TrialRecord | None, ...]

    @property
    def verdict(self) -> str:
        """Verdict on the pair, for example ``equal``."""
        return str(self.judged["verdict"])

    @property
    def reason(self) -> str:
        """Reason of the verdict, as a key."""
        return str(self.judged["reason"])

    @property
    def arm(self) -> str:
        """Name of both arms, or ``a → b`` if they differ."""
        return " → ".join(dict.fromkeys(self.arms))

    @property
    def backend(self) -> str:
        """Name of both backends, or ``a → b`` if they differ."""
        return " → ".join(dict.fromkeys(self.backends))

    @property
    def ratio(self) -> float | None:
        """Largest ratio of distance to envelope; None if nothing was judged."""
        ratio: float | None = self.judged["evidence"].get("worst_ratio")
        return ratio

    @property
    def costs(self) -> dict[str, CostComparison]:
        """``time`` (median seconds per update) and ``memory`` (peak bytes of one rank, see
        `_peak_memory`), left out where a trial recorded none."""
        a, b = self.trials
        if a is None or b is None:
            return {}
        known = {"time": (_update_seconds(a), _update_seconds(b)), "memory": _peak_memory(a, b)}
        return {
            name: CostComparison(one, other)
            for name, (one, other) in known.items()
            if one and other
        }

    def describe(self) -> JsonObject:
        """Return the pair as JSON: names in A and B, seed, what `judged` holds (None for a missing
        entry), changed settings, and ``time`` and ``memory`` if they were recorded."""
        kept = ("verdict", "reason", "evidence", "steps", "phases", "first_divergence", "outcome")
        return {
            "arm": list(self.arms),
            "backend": list(self.backends),
            "seed": self.seed,
            **{key: self.judged.get(key) for key in kept},
            "settings": [vars(change) for change in self.settings],
            **{name: cost.describe() for name, cost in self.costs.items()},
        }


def _update_seconds(trial: TrialRecord) -> float | None:
    """Return the median seconds per update, or the mean if no quartiles were recorded; None if
    neither is known."""
    if len(trial.step_s) == 3:
        return trial.step_s[1]
    return trial.train_s / trial.updates if trial.train_s and trial.updates else None


def _peak_memory(a: TrialRecord, b: TrialRecord) -> tuple[float | None, float | None]:
    """Return the peak memory in bytes of each trial: device memory on the rank that uses most.

    If the device memory of any rank of either trial is unknown, the peak resident memory of rank
    0's process for both; None for a trial without either.
    """
    held = [[rank.peak_bytes for rank in trial.device_memory] for trial in (a, b)]
    if all(each and None not in each for each in held):
        most = [max(n for n in each if n is not None) for each in held]
        return most[0], most[1]
    one, other = (n * 2**20 if (n := trial.peak_memory_mb) else None for trial in (a, b))
    return one, other
