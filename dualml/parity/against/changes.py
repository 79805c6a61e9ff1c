"""Find the settings, versions and machine properties that differ between two runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dualml.common.words import numbers
from dualml.experiment.config_diff import flat_config
from dualml.experiment.store.run_operand import RunOperand

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
    facts in PASSING.

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
