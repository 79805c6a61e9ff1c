"""Members of public classes answer to the names that they had in version 0.1."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import tomllib
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dualml.algorithms.communicator import Communicator, MemoryStore, RankContext
from dualml.algorithms.optim import SGD, OptimizerSpec
from dualml.common.former_members import FORMER_MEMBERS, FormerMember, keep_former_members
from dualml.parallel.aggregation import Transfer
from dualml.parallel.partition import Contiguous, Partition
from dualml.runner.checkpoint import Slice

#: Everywhere else a former name is an error.
pytestmark = pytest.mark.filterwarnings("default:.* is now :DeprecationWarning")
#: Public class of 0.1 → its members.
MEMBERS_0_1: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("public_members_0_1.toml").read_text("utf-8")
)
#: Framework that a backend's modules import.
FRAMEWORKS = {"dualml_torch": "torch", "dualml_ms": "mindspore"}


def find_class(path: str) -> type:
    module, _, name = path.rpartition(".")
    framework = FRAMEWORKS.get(module.partition(".")[0])
    if framework:
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    found: type = getattr(importlib.import_module(module), name)
    return found


def has_member(cls: type, name: str) -> bool:
    """Return whether a class or one of its bases defines, annotates or sets a member."""
    return any(
        name in vars(base)
        or name in inspect.get_annotations(base)
        or (base.__module__.startswith("dualml") and f"self.{name}" in inspect.getsource(base))
        for base in cls.__mro__
    )


@pytest.mark.parametrize("path", MEMBERS_0_1)
def test_a_public_class_has_all_its_members_of_0_1(path: str) -> None:
    cls = find_class(path)
    assert [name for name in MEMBERS_0_1[path] if not has_member(cls, name)] == []


@pytest.mark.parametrize("path", FORMER_MEMBERS)
def test_a_former_name_leads_to_a_member(path: str) -> None:
    cls = find_class(path)
    for former, present in FORMER_MEMBERS[path].items():
        member = vars(cls)[former]
        assert isinstance(member, FormerMember)
        assert (member.former, member.present) == (former, present)
        assert has_member(cls, present)
        assert not has_member(cls, "nothing_of_this_name")


def test_every_former_name_was_public() -> None:
    listed = {name for names in MEMBERS_0_1.values() for name in names}
    unlisted = {name for names in FORMER_MEMBERS.values() for name in names} - listed
    assert unlisted == set()


def test_a_class_method_and_a_class_variable_are_read() -> None:
    with pytest.warns(DeprecationWarning, match=r"^Slice\.whole is now Slice\.full$") as caught:
        made = Slice.whole("w", np.zeros(3))  # type: ignore[attr-defined]
    assert isinstance(made, Slice)
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(DeprecationWarning, match="repartitions_each_epoch"):
        assert Contiguous.redeals is False  # type: ignore[attr-defined]


def test_the_present_names_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Slice.full("w", np.zeros(3))
        Contiguous().partition(8, 2)
        Transfer(0, 1, 0, 1, op="put")

        @dataclasses.dataclass(frozen=True, kw_only=True)
        class Halves(Partition):
            name: ClassVar[str] = "halves"

            def assign(self, samples: Any, ranks: int, draw: Any) -> Any:
                return np.split(np.arange(samples), ranks)

        assert len(Halves(shuffle=False).partition(8, 2)) == 2


def test_a_renamed_field_is_a_keyword_and_an_attribute() -> None:
    with pytest.warns(DeprecationWarning, match="the parameter then of Transfer is now op"):
        transfer = Transfer(source=0, target=1, first=0, last=1, then="put")  # type: ignore[call-arg]
    assert transfer == Transfer(0, 1, 0, 1, "put")
    board = MemoryStore()
    with pytest.warns(DeprecationWarning, match="store"):
        place = RankContext(0, 2, board=board)  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match=r"RankContext\.store"):
        assert place.board is board  # type: ignore[attr-defined]
    other = MemoryStore()
    with pytest.warns(DeprecationWarning, match="board"):
        assert dataclasses.replace(place, board=other).store is other  # type: ignore[call-arg]


def test_an_optimizer_written_for_0_1_trains() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"Sign overrides (one|slots), which is now"
    ) as all_:

        @dataclasses.dataclass(frozen=True, kw_only=True)
        class Sign(OptimizerSpec):
            name: ClassVar[str] = "sign"

            @property
            def slots(self) -> tuple[str, ...]:
                return ("steps",)

            def one(self, p: Any, g: Any, s: Any, step: int, lr: float) -> Any:
                return p - lr * np.sign(g), {"steps": s["steps"] + 1}

    assert [warning.filename for warning in all_] == [__file__] * 2
    rule, params = Sign(lr=0.5), {"w": np.ones(2)}
    new, state = rule.update(params, {"w": np.array([3.0, -2.0])}, rule.init(params), 1)
    np.testing.assert_array_equal(new["w"], [0.5, 1.5])
    np.testing.assert_array_equal(state["steps"]["w"], 1)
    with pytest.warns(DeprecationWarning, match="slots"):
        assert rule.slots == rule.state_keys == ("steps",)


def test_an_override_calls_the_one_below() -> None:
    with pytest.warns(DeprecationWarning, match="Doubled overrides one"):

        @dataclasses.dataclass(frozen=True, kw_only=True)
        class Doubled(SGD):
            def one(self, p: Any, g: Any, s: Any, step: int, lr: float) -> Any:
                return super().one(p, 2 * g, s, step, lr)  # type: ignore[misc]

    class Quadrupled(Doubled):
        def update_param(self, p: Any, g: Any, s: Any, step: int, lr: float) -> Any:
            return super().update_param(p, 2 * g, s, step, lr)

    args: Any = (np.ones(1), np.ones(1), {}, 1, 0.5)
    with pytest.warns(DeprecationWarning, match=r"SGD\.one|Doubled\.one"):
        assert Doubled(lr=0.5).one(*args)[0] == 0.0
    with pytest.warns(DeprecationWarning, match=r"Quadrupled\.one is now"):
        assert Quadrupled(lr=0.5).one(*args)[0] == -1.0


def test_a_partition_written_for_0_1_deals() -> None:
    with pytest.warns(DeprecationWarning, match="Odd overrides (own|redeals)"):

        @dataclasses.dataclass(frozen=True, kw_only=True)
        class Odd(Partition):
            name: ClassVar[str] = "odd"
            redeals: ClassVar[bool] = True

            def own(self, samples: Any, ranks: int, draw: Any) -> Any:
                return [np.arange(rank, samples, ranks) for rank in range(ranks)]

    rule = Odd(shuffle=False)
    assert rule.repartitions_each_epoch
    with pytest.warns(DeprecationWarning, match=r"Odd\.deal is now Odd\.partition"):
        dealt = rule.deal(5, 2)  # type: ignore[attr-defined]
    assert [part.tolist() for part in dealt] == [[0, 2, 4], [1, 3]]


def test_an_abstract_method_is_implemented_by_its_former_name() -> None:
    assert "implementation_of" in Communicator.__abstractmethods__
    with pytest.warns(DeprecationWarning, match="Old overrides how"):

        class Old(Communicator):
            def how(self, primitive: str, dtype: str = "float32", op: str = "sum") -> Any:
                return primitive

    assert "implementation_of" not in Old.__abstractmethods__


class Counter:
    def __init__(self) -> None:
        self.steps = 0


def test_an_attribute_is_set_by_its_former_name(monkeypatch: pytest.MonkeyPatch) -> None:
    members: Any = FORMER_MEMBERS
    monkeypatch.setitem(members, f"{__name__}.Counter", {"now": "steps"})
    keep_former_members(Counter)

    class Fast(Counter):
        def count(self) -> None:
            self.now += 2  # type: ignore[attr-defined]

    counter = Fast()
    with pytest.warns(DeprecationWarning, match="Fast.now is now Fast.steps"):
        counter.count()
    assert counter.steps == 2
