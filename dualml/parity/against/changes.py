"""What is another in the second of two runs: settings, versions, machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dualml.experiment.contrast import decisions
from dualml.store.side import Side
from dualml.words import numbers

#: Of a backend: what is another at every moment, and what is said of the run already.
PASSING = ("load", "kernels_reason", "git")


@dataclass(frozen=True)
class Change:
    """A setting, or a part of the environment, that is another in B; None where a side has none."""

    key: str
    a: Any
    b: Any

    def __str__(self) -> str:
        return f"{self.key} {numbers.plain(self.a)} → {numbers.plain(self.b)}"


def settings_of(sides: tuple[Side, Side], arms: tuple[str, str]) -> Iterator[Change]:
    """What the two arms, their models and losses decide otherwise."""
    decided = []
    for side, arm in zip(sides, arms, strict=True):
        layers = {f"model.{name}.{key}": value
                  for name, layer in side.spec(arm).layers
                  for key, value in vars(layer).items()}  # fmt: skip
        whole = {"loss": side.experiment.loss, **decisions(side.experiment.arms[arm]), **layers}
        decided.append(whole)
    yield from _changes(*decided)


def environment_of(
    sides: tuple[Side, Side], backends: Iterable[tuple[str, str]]
) -> Iterator[Change]:
    """What the versions, machines and threads of both sides say otherwise."""
    runs = [side.run for side in sides]
    yield from _changes(*({"dualml": run.dualml, "git": run.git or ""} for run in runs))
    for here, there in dict.fromkeys(backends):
        facts = [run.environment.get(name, {})
                 for run, name in zip(runs, (here, there), strict=True)]  # fmt: skip
        for change in _changes(*facts):
            if change.key not in PASSING:
                yield replace(change, key=f"{here}.{change.key}")


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Change]:
    for key in {**a, **b}:
        if a.get(key) != b.get(key):
            yield Change(key, a.get(key), b.get(key))
