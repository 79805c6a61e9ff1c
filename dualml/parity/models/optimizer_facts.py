"""Facts about an optimizer that a trace keeps: settings by group, and the state it begins with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field

from dualml.experiment.store.jsonfile import Count, Number, Record

#: Names of settings in a framework → the one name of each.
SETTING_NAMES = {
    "use_nesterov": "nesterov",
    "use_amsgrad": "amsgrad",
    "epsilon": "eps",
    "decay": "alpha",
}
#: Settings that change no numbers, or that a schedule keeps for itself.
NEUTRAL = frozenset(("params", "foreach", "fused", "capturable", "differentiable", "initial_lr"))


class ParameterGroup(Record):
    """Parameters with the same settings of the optimizer, such as ``lr`` and ``weight_decay``;
    flags are 0 or 1."""

    names: list[str]
    settings: dict[str, Number]


class OptimizerStart(Record):
    """The state of an optimizer before the first recorded step.

    Attributes:
        updates: number of updates that it has made; 0 if it does not count them.
        slots: name of a state that is not zero → its value, if that is the same everywhere.
    """

    updates: Count = 0
    slots: dict[str, Number | None] = Field(default_factory=dict)


def plain_settings(group: Mapping[str, Any]) -> dict[str, float]:
    """Return name → value of the settings of a group that are numbers or flags, under names that
    are the same for all frameworks: ``betas`` become ``beta1`` and ``beta2``. Settings that change
    no numbers (`NEUTRAL`) are left out."""
    found: dict[str, float] = {}
    for key, value in group.items():
        if key == "betas" and isinstance(value, Sequence):
            found |= {f"beta{i}": float(one) for i, one in enumerate(value, 1)}
        elif key not in NEUTRAL and isinstance(value, bool | int | float):
            found[SETTING_NAMES.get(key, key)] = float(value)
    return found


def join_groups(settings: Iterable[tuple[str, Mapping[str, float]]]) -> list[ParameterGroup]:
    """Return the groups of parameters that have the same settings.

    Args:
        settings: name of a parameter and its settings, for each parameter.
    """
    groups: dict[tuple[tuple[str, float], ...], list[str]] = {}
    for name, one in settings:
        groups.setdefault(tuple(one.items()), []).append(name)
    return [ParameterGroup(names=names, settings=dict(one)) for one, names in groups.items()]
