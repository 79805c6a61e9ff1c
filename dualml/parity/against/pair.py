"""A trial of one run and its partner in another run, with what changed between the runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dualml.common.json_types import JsonObject
from dualml.common.words import numbers
from dualml.experiment.config_diff import flat_config
from dualml.experiment.store.manifest import TrialRecord
from dualml.experiment.store.run_operand import RunOperand
from dualml.experiment.store.trial_comparison import TrialComparison

#: Backend facts that are not compared: transient ones, and those reported for the run already.
PASSING = ("load", "kernels_reason", "git")


@dataclass(frozen=True)
class Change:
    """A setting or part of the environment that differs in run B; None where a run does not have
    it."""

    key: str
    a: Any
    b: Any

    def __str__(self) -> str:
        return f"{self.key} {numbers.plain(self.a)} → {numbers.plain(self.b)}"


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


@dataclass(frozen=True, kw_only=True, repr=False)
class RunPair(TrialComparison):
    """A trial of run A and its partner in run B, with their verdict; ``sides`` are their backends.

    Attributes:
        settings: settings of the arms, their models and losses that differ.
        trials: the records of A and B; None if a run has no such trial.
    """

    settings: tuple[Change, ...] = ()
    trials: tuple[TrialRecord | None, ...] = (None, None)

    @property
    def arm(self) -> str:
        """Name of both arms, or ``a → b`` if they differ."""
        return " → ".join(dict.fromkeys(self.arms))

    @property
    def backends(self) -> tuple[str, str]:
        """Names of the backend in A and in B."""
        return self.sides

    @property
    def backend(self) -> str:
        """Name of both backends, or ``a → b`` if they differ."""
        return " → ".join(dict.fromkeys(self.sides))

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
        """Return the pair as JSON: names in A and B, seed, the result (None for a missing entry),
        changed settings, and ``time`` and ``memory`` if they were recorded."""
        kept = ("verdict", "reason", "evidence", "steps", "phases", "first_divergence", "outcome")
        result = self.describe_result()
        return {
            "arm": list(self.arms),
            "backend": list(self.sides),
            "seed": self.seed,
            **{key: result.get(key) for key in kept},
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


def diff_settings(sides: tuple[RunOperand, RunOperand], arms: tuple[str, str]) -> Iterator[Change]:
    """Yield the settings that differ between the arm of run A and the arm of run B, with those of
    their models' layers and their losses.

    Args:
        arms: name of the arm in A and in B.
    """
    decided = []
    for side, arm in zip(sides, arms, strict=True):
        layers = {
            f"model.{name}.{key}": value
            for name, layer in side.spec(arm).layers
            for key, value in vars(layer).items()
        }
        whole = {"loss": side.experiment.loss, **flat_config(side.experiment.arms[arm]), **layers}
        decided.append(whole)
    yield from _diff(*decided)


def diff_environments(
    sides: tuple[RunOperand, RunOperand], backends: Iterable[tuple[str, str]]
) -> Iterator[Change]:
    """Yield the versions, machine properties and thread counts that differ between two runs, except
    facts in PASSING; keys of facts of a backend begin with its name in A.

    Args:
        backends: pairs of a backend of A and a backend of B; a pair that occurs again counts once.
    """
    runs = [side.run for side in sides]
    yield from _diff(*({"dualml": run.dualml, "git": run.git or ""} for run in runs))
    for here, there in dict.fromkeys(backends):
        facts = [
            run.environment.get(name, {}) for run, name in zip(runs, (here, there), strict=True)
        ]
        for change in _diff(*facts):
            if change.key not in PASSING:
                yield replace(change, key=f"{here}.{change.key}")


def _diff(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Change]:
    """Yield the keys whose values differ, with both values; a missing key counts as None."""
    for key in {**a, **b}:
        if a.get(key) != b.get(key):
            yield Change(key, a.get(key), b.get(key))
