"""The controlled comparison: arms that agree in everything but what is said to vary.

Everything is what an arm's settings decide, defaults filled in. Its group and the number of its
seeds decide nothing; of a split counts where it is cut, not how that place was chosen; of a
partition the number of ranks it deals to. What varies is named by dotted keys of the arm
(``split.micro_batches``, ``optimizer.lr``); a name without a dot is the whole table (``slow``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, TypeAlias

from pydantic import BaseModel

from dualml.aggregation.settings import Aggregation
from dualml.errors import UserError
from dualml.experiment.arm import Arm, Slow
from dualml.experiment.models import Recurrent
from dualml.experiment.split import Split
from dualml.offload.settings import Offload
from dualml.optim import Schedule, rule_from
from dualml.partition import partition_from

#: An arm as it was validated, or as a run folder has it: of a newer version, with unknown keys.
Settings: TypeAlias = Arm | Mapping[str, Any]
#: Dotted key → value.
Decisions: TypeAlias = Mapping[str, Hashable]
#: Where an arm stands in a lab, and how often it is repeated: neither changes what it does.
IDLE = ("group", "seeds")
#: Used by arms of kind ``collectives`` alone.
TIMING = ("sizes", "strategies", "seconds")
#: What chooses the place of a cut that is not given.
CHOOSES_CUT = ("stages", "balance")
#: The tables of an arm whose keys are known; those of a rule or a partition depend on its name.
TABLES: Mapping[str, type[BaseModel]] = {
    "aggregation": Aggregation, "split": Split, "slow": Slow, "offload": Offload,
    "recurrent": Recurrent,
}  # fmt: skip
OPEN = ("optimizer", "partition")


class Contrast:
    """The arms of an experiment, to be held against one another.

    Args:
        arms: in the experiment's order.
        cuts: where the plan cuts the split ones, as far as that is known.
    """

    def __init__(
        self, arms: Mapping[str, Settings], cuts: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        cuts = cuts or {}
        self.decisions = {name: decisions(arm, cuts.get(name)) for name, arm in arms.items()}
        self._agreed: dict[tuple[str, tuple[str, ...]], Hashable] = {}

    def groups(
        self, among: Collection[str] | None = None, *, vary: Sequence[str]
    ) -> list[list[str]]:
        """Arms that agree in all but ``vary``, in their order; also groups of one."""
        groups: dict[Hashable, list[str]] = {}
        for name in self.decisions if among is None else among:
            groups.setdefault(self.agreed(name, vary), []).append(name)
        return list(groups.values())

    def partners(
        self, arm: str, *, vary: Sequence[str], where: Callable[[str], object] = lambda name: True
    ) -> list[str]:
        """The other arms that differ from ``arm`` in nothing but ``vary``, if ``where`` holds."""
        same = self.agreed(arm, vary)
        others = (name for name in self.decisions if name != arm)
        return [name for name in others if self.agreed(name, vary) == same and where(name)]

    def partner(
        self, arm: str, *, vary: Sequence[str], where: Callable[[str], object] = lambda name: True
    ) -> str | None:
        """The first of them."""
        return next(iter(self.partners(arm, vary=vary, where=where)), None)

    def without_slow_node(
        self, arm: str, where: Callable[[str], object] = lambda name: True
    ) -> str | None:
        """The arm that does the same with healthy nodes only; else one that does so for longer or
        shorter."""

        def healthy(name: str) -> bool:
            return "slow" in self.decisions[name] and bool(where(name))  # a table is flat

        exactly = self.partner(arm, vary=("slow",), where=healthy)
        return exactly or self.partner(arm, vary=("slow", "epochs", "updates"), where=healthy)

    def varied(self, among: Collection[str]) -> list[str]:
        """The dotted keys in which these arms differ."""
        every = [self.decisions[name] for name in among]
        keys = dict.fromkeys(key for each in every for key in each)
        return [key for key in keys if len({each.get(key, ...) for each in every}) > 1]

    def agreed(self, arm: str, vary: Sequence[str]) -> Hashable:
        """What the arm decides but for ``vary``: equal for arms that agree in it."""
        key = arm, tuple(vary)
        if key not in self._agreed:
            for name in vary:
                known(name)
            more = [f"split.{each}" for each in CHOOSES_CUT] if "split.cut" in vary else []
            names = (*vary, *more)
            self._agreed[key] = frozenset(
                item for item in self.decisions[arm].items() if not covered(item[0], names)
            )
        return self._agreed[key]


def decisions(arm: Settings, cut: Sequence[str] | None = None) -> Decisions:
    """All that the settings of an arm decide.

    Args:
        cut: where the plan cuts it.
    """
    given = arm.model_dump(mode="json") if isinstance(arm, Arm) else arm
    whole = {**_defaults(Arm), **given}
    for key, table in TABLES.items():
        whole[key] = _filled(_defaults(table), whole[key])
    whole["schedule"] = _filled(Schedule().describe(), whole["schedule"])
    whole["optimizer"] = _described(lambda x: rule_from(x).hyperparameters(), whole["optimizer"])
    whole["partition"] = _described(lambda x: partition_from(x).describe(), whole["partition"])
    # With one rank alone it says for how many the samples are dealt; with more it repeats them.
    dealt_to = whole["dealt_to"] or whole["world_size"]
    whole["dealt_to"] = dealt_to if whole["partition"] else 0
    split = whole["split"]
    if isinstance(split, dict):
        split["cut"] = split["cut"] if cut is None else cut
        if split["cut"] or cut is not None:
            whole["split"] = {k: v for k, v in split.items() if k not in CHOOSES_CUT}
    for key in (*IDLE, *(TIMING if whole["kind"] == "train" else ())):
        whole.pop(key)
    return dict(_flat(whole))


def known(name: str) -> None:
    """Raises `ValueError` for a name of something that no arm has, and that so never varies."""
    outer, _, inner = name.partition(".")
    inside = {key: list(table.model_fields) for key, table in TABLES.items()}
    inside["schedule"] = [field.name for field in fields(Schedule)]
    if outer not in Arm.model_fields or (inner and outer not in (*inside, *OPEN)):
        raise ValueError(f"no arm has {name!r}")
    if inner and inner not in inside.get(outer, [inner]):
        raise ValueError(f"{outer} has no {inner!r}; it has {', '.join(inside[outer])}")


def covered(key: str, names: Collection[str]) -> bool:
    """Whether a dotted key is one of these or in one of these tables."""
    return any(key == name or key.startswith(f"{name}.") for name in names)


@cache
def _defaults(table: type[BaseModel]) -> Mapping[str, Any]:
    every = {
        name: field.get_default(call_default_factory=True)
        for name, field in table.model_fields.items()
        if not field.is_required()
    }
    return {k: v.model_dump(mode="json") if isinstance(v, BaseModel) else v
            for k, v in every.items()}  # fmt: skip


def _filled(usual: Mapping[str, Any], given: Any) -> Any:
    return {**usual, **given} if isinstance(given, Mapping) else given


def _described(read: Callable[[Any], dict[str, Any]], given: Any) -> Any:
    """With the defaults of a rule or partition that this version knows."""
    try:
        return read(given) if given else given
    except (UserError, TypeError, AttributeError):
        return given


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Hashable]]:
    pairs: list[tuple[str, Hashable]] = []
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            pairs += _flat(value, f"{prefix}{key}.")
        else:
            pairs.append((prefix + key, _frozen(value)))
    return pairs


def _frozen(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return frozenset((key, _frozen(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(_frozen(each) for each in value)
    return value if isinstance(value, Hashable) else repr(value)
