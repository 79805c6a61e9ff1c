"""A trial of one run and its partner in another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dualml.parity.against.changes import Change
from dualml.store.manifest import TrialRecord


@dataclass(frozen=True)
class Cost:
    """What a trial took in A and in B: seconds of an update, or bytes."""

    a: float
    b: float

    @property
    def ratio(self) -> float:
        return self.b / self.a

    def describe(self) -> dict[str, float]:
        return {"a": self.a, "b": self.b, "ratio": self.ratio}


@dataclass(frozen=True)
class RunPair:
    """A trial of A and its partner in B.

    Attributes:
        arms, backends: their names in A and in B.
        judged: the comparison as `dualml.parity.pairs.compare` makes it.
        settings: what the arms, their models and losses decide otherwise.
        trials: of A and of B; None where there is none.
    """

    arms: tuple[str, str]
    backends: tuple[str, str]
    seed: int
    judged: Mapping[str, Any]
    settings: tuple[Change, ...]
    trials: tuple[TrialRecord | None, ...]

    @property
    def verdict(self) -> str:
        return str(self.judged["verdict"])

    @property
    def reason(self) -> str:
        return str(self.judged["reason"])

    @property
    def arm(self) -> str:
        """The name of both arms, or ``a → b``."""
        return " → ".join(dict.fromkeys(self.arms))

    @property
    def backend(self) -> str:
        return " → ".join(dict.fromkeys(self.backends))

    @property
    def ratio(self) -> float | None:
        """Largest distance over its envelope; None where nothing was judged."""
        ratio: float | None = self.judged["evidence"].get("worst_ratio")
        return ratio

    @property
    def costs(self) -> dict[str, Cost]:
        """``time`` (seconds of an update) and ``memory`` (bytes), where both sides have them."""
        a, b = self.trials
        if a is None or b is None:
            return {}
        known = {"time": (_update_s(a), _update_s(b)), "memory": _memory(a, b)}
        return {name: Cost(one, other) for name, (one, other) in known.items() if one and other}

    def describe(self) -> dict[str, Any]:
        """As JSON holds it."""
        kept = ("verdict", "reason", "evidence", "steps", "phases", "first_divergence", "outcome")
        return {
            "arm": list(self.arms), "backend": list(self.backends), "seed": self.seed,
            **{key: self.judged.get(key) for key in kept},
            "settings": [vars(change) for change in self.settings],
            **{name: cost.describe() for name, cost in self.costs.items()},
        }  # fmt: skip


def _update_s(trial: TrialRecord) -> float | None:
    """The median of the updates, or their mean where no quartiles were kept."""
    if len(trial.step_s) == 3:
        return trial.step_s[1]
    return trial.train_s / trial.updates if trial.train_s and trial.updates else None


def _memory(a: TrialRecord, b: TrialRecord) -> tuple[float | None, float | None]:
    """Bytes on the device of the rank that needs most, else those of the processes."""
    held = [[rank.held for rank in trial.device_memory] for trial in (a, b)]
    if all(each and None not in each for each in held):
        most = [max(n for n in each if n is not None) for each in held]
        return most[0], most[1]
    one, other = (n * 2**20 if (n := trial.peak_memory_mb) else None for trial in (a, b))
    return one, other
