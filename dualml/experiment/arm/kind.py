"""Base of the kinds of arms.

A kind has the settings of an `Arm`, and some of them for their default alone (``without``) or for
fewer values (``only``): the type of such a field raises an error with a reason. Nothing that is
written has a tag; it is inferred.
"""

from collections.abc import Callable, Mapping
from operator import getitem
from typing import Annotated, Any, ClassVar, Self, get_type_hints

from pydantic import Field, model_validator
from pydantic_core import to_jsonable_python

from dualml.algorithms.optim import LRSchedule
from dualml.common.errors import UserError
from dualml.common.strict_model import Restricted
from dualml.experiment.arm import reasons as why
from dualml.experiment.arm.base import Arm
from dualml.experiment.arm.settings import Optimizer
from dualml.parallel.aggregation import ASYNCHRONOUS


def make_choice(*values: Any) -> Callable[[Any], bool]:
    """Return a predicate that is true of these values."""
    return lambda value: value in values


def make_minimum(least: int) -> Callable[[int], bool]:
    """Return a predicate that is true of numbers from ``least``."""
    return lambda value: value >= least


def is_constant(schedule: Mapping[str, Any]) -> bool:
    """Return whether a schedule keeps the optimizer's own learning rate."""
    return LRSchedule(**schedule).constant


#: Setting → its type.
_HINTS = get_type_hints(Arm, include_extras=True)


class ArmKind(Arm):
    """One kind of arm.

    Attributes:
        tag: name of the kind.
        absent: settings that the kind does not have.
    """

    tag: ClassVar[str] = ""
    absent: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(
        cls,
        tag: str = "",
        without: Mapping[str, str] = {},
        only: Mapping[str, tuple[Callable[[Any], bool], str]] = {},
        **more: Any,
    ) -> None:
        """Restrict the types of settings.

        Args:
            without: settings that the kind does not have → reason.
            only: settings of which the kind takes fewer values → which ones, and the reason.
        """
        super().__init_subclass__(**more)
        cls.tag, cls.absent = tag, cls.absent | without.keys()
        defaults = {name: Arm.model_fields[name].default for name in (*without, *only)}
        taken = {name: Restricted(text, accepts) for name, (accepts, text) in only.items()}
        for name, text in without.items():
            constant = {"const": to_jsonable_python(defaults[name])}
            taken[name] = Restricted(text, make_choice(defaults[name]), constant)
        for name, restricted in taken.items():
            hint = (_HINTS[name], Field(validate_default=True), restricted)
            cls.__annotations__[name] = getitem(Annotated, hint)
            setattr(cls, name, defaults[name])

    @model_validator(mode="after")
    def _is_inferred(self) -> Self:
        """Raise `UserError` if the settings are those of another kind."""
        if (tag := infer_kind(vars(self))) != self.tag:
            raise UserError(f"an arm of kind {self.tag} has no such settings; they are of {tag}")
        return self


class TrainingArm(ArmKind, only={"kind": (make_choice("train"), "leave out kind")}):
    """Arm that trains: all kinds but `CollectivesArm`."""

    optimizer: Optimizer


class OwnUpdatesArm(TrainingArm, without={"method": why.ENGINE, "method_config": why.CONFIG}):
    """Arm that trains by dualml's own updates: all kinds that train but `MethodArm`."""


def infer_kind(settings: Any) -> str:
    """Return the tag of the kind that the settings of an arm are of. Settings that exclude each
    other are of the first kind, whose errors name the others."""
    table = vars(settings) if isinstance(settings, Arm) else settings
    if not isinstance(table, dict):
        return "single"
    if table.get("kind") == "collectives":
        return "collectives"
    if table.get("method"):
        return "method"
    if (split := table.get("split")) is not None:
        if (engine := _setting(split, "engine")) in ("rpc", "devices"):
            return f"split_{engine}"
        asynchronous = _setting(split, "arrival") == "asynchronous"
        return "split_asynchronous" if asynchronous else "split"
    if table.get("zero") not in (0, None):
        return "sharded"
    sharing, ranks = table.get("aggregation"), table.get("world_size")
    if _setting(sharing, "strategy") == ASYNCHRONOUS:
        return "asynchronous"
    if _setting(sharing, "of") == "parameters":
        return "averaging"
    return "data_parallel" if isinstance(ranks, int) and ranks > 1 else "single"


def _setting(table: Any, key: str) -> Any:
    """Return a setting in a table of an arm, validated or not; None without one."""
    return table.get(key) if isinstance(table, dict) else getattr(table, key, None)
