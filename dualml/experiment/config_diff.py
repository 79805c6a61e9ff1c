"""Controlled comparison: arms that agree in all settings except those that vary.

Settings are compared with their defaults filled in. An arm's group and its number of seeds do not
count; for a split the cut counts, not how it was chosen; for a partition the number of ranks that
it assigns samples to. Varying settings are named by dotted keys of the arm
(``split.micro_batches``, ``optimizer.lr``); a name without a dot is a whole table (``slow``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, TypeAlias

from pydantic import BaseModel

from dualml.algorithms.optim import LRSchedule, rule_from
from dualml.common.errors import UserError
from dualml.experiment.arm import Arm, StragglerSettings
from dualml.experiment.models import RecurrentSettings
from dualml.experiment.split import Split
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.offload.settings import Offload
from dualml.parallel.partition import partition_from

#: A validated arm, or the arm of a run folder, which may have unknown keys of a newer version.
Settings: TypeAlias = Arm | Mapping[str, Any]
#: Dotted key → value.
Decisions: TypeAlias = Mapping[str, Hashable]
#: Keys that do not change what an arm does: its group in a lab, and its number of repetitions.
IDLE = ("group", "seeds")
#: Used by arms of kind ``collectives`` alone.
TIMING = ("sizes", "strategies", "seconds")
#: Keys that choose the cut of a split if it is not given.
CHOOSES_CUT = ("stages", "balance")
#: Tables of an arm whose keys are known; those of a rule or a partition depend on its name.
TABLES: Mapping[str, type[BaseModel]] = {
    "aggregation": Aggregation,
    "split": Split,
    "slow": StragglerSettings,
    "offload": Offload,
    "recurrent": RecurrentSettings,
}
OPEN = ("optimizer", "partition")


class ConfigDiff:
    """Comparison of the arms of an experiment by their settings.

    Args:
        arms: arm → its settings, in the experiment's order.
        cuts: split arm → the layers at which the plan cuts its model, as far as known.

    Attributes:
        flat_configs: arm → dotted key → value, see `flat_config`.
    """

    def __init__(
        self, arms: Mapping[str, Settings], cuts: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        cuts = cuts or {}
        self.flat_configs = {name: flat_config(arm, cuts.get(name)) for name, arm in arms.items()}
        self._agreed: dict[tuple[str, tuple[str, ...]], Hashable] = {}

    def groups(
        self, among: Collection[str] | None = None, *, vary: Sequence[str]
    ) -> list[list[str]]:
        """Return the arms ``among`` (None: all) as lists of arms with equal settings outside
        ``vary``, in their order; a list may have one arm. ``vary`` has dotted keys, or names of
        tables."""
        groups: dict[Hashable, list[str]] = {}
        for name in self.flat_configs if among is None else among:
            groups.setdefault(self.key_without(name, vary), []).append(name)
        return list(groups.values())

    def partners(
        self, arm: str, *, vary: Sequence[str], where: Callable[[str], object] = lambda name: True
    ) -> list[str]:
        """Return all other arms, in their order, that agree with ``arm`` in all settings outside
        ``vary`` (they may agree in those, too) and satisfy ``where``, a predicate of an arm's
        name."""
        same = self.key_without(arm, vary)
        others = (name for name in self.flat_configs if name != arm)
        return [name for name in others if self.key_without(name, vary) == same and where(name)]

    def partner(
        self, arm: str, *, vary: Sequence[str], where: Callable[[str], object] = lambda name: True
    ) -> str | None:
        """Return the first arm that `partners` returns, or None if there is none."""
        return next(iter(self.partners(arm, vary=vary, where=where)), None)

    def arm_without_straggler(
        self, arm: str, where: Callable[[str], object] = lambda name: True
    ) -> str | None:
        """Return the first arm without a straggler that agrees with ``arm`` in all other settings;
        without such an arm, the first that may also train for longer or shorter; None if there is
        none either. Only arms that satisfy ``where``, a predicate of an arm's name, count."""

        def healthy(name: str) -> bool:
            return "slow" in self.flat_configs[name] and bool(where(name))  # a table is flat

        exactly = self.partner(arm, vary=("slow",), where=healthy)
        return exactly or self.partner(arm, vary=("slow", "epochs", "updates"), where=healthy)

    def varying_keys(self, among: Collection[str]) -> list[str]:
        """Return the dotted keys whose values differ between these arms; a key that only some of
        them have counts as different."""
        every = [self.flat_configs[name] for name in among]
        keys = dict.fromkeys(key for each in every for key in each)
        return [key for key in keys if len({each.get(key, ...) for each in every}) > 1]

    def key_without(self, arm: str, vary: Sequence[str]) -> Hashable:
        """Return a hashable key of the arm's settings except ``vary``, equal for arms that agree in
        all others. The name of a table in ``vary`` stands for all its keys; raise `ValueError` for
        a name that no arm has."""
        key = arm, tuple(vary)
        if key not in self._agreed:
            for name in vary:
                check_key(name)
            more = [f"split.{each}" for each in CHOOSES_CUT] if "split.cut" in vary else []
            names = (*vary, *more)
            self._agreed[key] = frozenset(
                item
                for item in self.flat_configs[arm].items()
                if not is_covered_key(item[0], names)
            )
        return self._agreed[key]


def flat_config(arm: Settings, cut: Sequence[str] | None = None) -> Decisions:
    """Flatten the settings of an arm to dotted key → hashable value, with defaults filled in and
    without the settings that do not count in a comparison (`IDLE`, and for training `TIMING`; for a
    split with a known cut how it was chosen).

    Args:
        cut: the layers at which the plan cuts the arm's model; None: unknown.
    """
    given = arm.model_dump(mode="json") if isinstance(arm, Arm) else arm
    whole = {**_defaults(Arm), **given}
    for key, table in TABLES.items():
        whole[key] = _with_defaults(_defaults(table), whole[key])
    whole["schedule"] = _with_defaults(LRSchedule().describe(), whole["schedule"])
    whole["optimizer"] = _describe_known(
        lambda x: rule_from(x).hyperparameters(), whole["optimizer"]
    )
    whole["partition"] = _describe_known(lambda x: partition_from(x).describe(), whole["partition"])
    # With one rank it is the number of ranks of the partition; with more it only repeats the world
    # size.
    dealt_to = whole["dealt_to"] or whole["world_size"]
    whole["dealt_to"] = dealt_to if whole["partition"] else 0
    split = whole["split"]
    if isinstance(split, dict):
        split["cut"] = split["cut"] if cut is None else cut
        if split["cut"] or cut is not None:
            whole["split"] = {k: v for k, v in split.items() if k not in CHOOSES_CUT}
    for key in (*IDLE, *(TIMING if whole["kind"] == "train" else ())):
        whole.pop(key)
    return dict(_flatten(whole))


def check_key(name: str) -> None:
    """Raise `ValueError` for the name of a setting that no arm has, since it would never vary; any
    key inside the tables of `OPEN` is accepted."""
    outer, _, inner = name.partition(".")
    inside = {key: list(table.model_fields) for key, table in TABLES.items()}
    inside["schedule"] = [field.name for field in fields(LRSchedule)]
    if outer not in Arm.model_fields or (inner and outer not in (*inside, *OPEN)):
        raise ValueError(f"no arm has {name!r}")
    if inner and inner not in inside.get(outer, [inner]):
        raise ValueError(f"{outer} has no {inner!r}; it has {', '.join(inside[outer])}")


def is_covered_key(key: str, names: Collection[str]) -> bool:
    """Return whether a dotted key is one of these names or lies in a table among them."""
    return any(key == name or key.startswith(f"{name}.") for name in names)


@cache
def _defaults(table: type[BaseModel]) -> Mapping[str, Any]:
    """Return field → default, as JSON values, of a table's fields; fields without a default are
    left out."""
    every = {
        name: field.get_default(call_default_factory=True)
        for name, field in table.model_fields.items()
        if not field.is_required()
    }
    return {
        k: v.model_dump(mode="json") if isinstance(v, BaseModel) else v for k, v in every.items()
    }


def _with_defaults(usual: Mapping[str, Any], given: Any) -> Any:
    """Return the table ``given`` with the defaults ``usual`` filled in; any other value
    unchanged."""
    return {**usual, **given} if isinstance(given, Mapping) else given


def _describe_known(read: Callable[[Any], dict[str, Any]], given: Any) -> Any:
    """Return ``given``, an optimizer or a partition, with its defaults filled in by ``read``;
    unchanged if it is empty, or this version does not know it or its settings."""
    try:
        return read(given) if given else given
    except (UserError, TypeError, AttributeError):
        return given


def _flatten(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Hashable]]:
    """Return the pairs of dotted key and hashable value of nested tables; an empty table stays one
    pair."""
    pairs: list[tuple[str, Hashable]] = []
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            pairs += _flatten(value, f"{prefix}{key}.")
        else:
            pairs.append((prefix + key, _make_hashable(value)))
    return pairs


def _make_hashable(value: Any) -> Hashable:
    """Convert a value to a hashable one: a table to a frozenset of its items, a list to a tuple,
    anything else that is not hashable to its `repr`."""
    if isinstance(value, Mapping):
        return frozenset((key, _make_hashable(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(_make_hashable(each) for each in value)
    return value if isinstance(value, Hashable) else repr(value)
