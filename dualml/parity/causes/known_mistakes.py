"""Known mistakes of ports: those of ``known_mistakes.toml``, each with a public report."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.tables import OPERATOR_FUNCTIONS

#: Functions that compare: on whole numbers of one sign several of them give the same.
COMPARISONS = ("gt", "ge", "lt", "le", "eq", "ne")


@dataclass(frozen=True)
class KnownMistake:
    """A mistake of ports, as mutations that make it.

    Attributes:
        name: name of the mistake.
        report: address of a public report.
        action: action of the mutations.
        functions, arguments, transforms: functions, settings, and first words of values; empty:
            any.
    """

    name: str
    report: str
    action: str
    functions: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()

    def matches(self, change: Mutation) -> bool:
        """Return whether a mutation makes this mistake."""
        if change.action != self.action:
            return False
        function = OPERATOR_FUNCTIONS.get(change.operation, change.operation)
        word = change.value[0] if isinstance(change.value, tuple) and change.value else ""
        return (
            (not self.functions or function in self.functions)
            and (not self.arguments or str(change.argument) in self.arguments)
            and (not self.transforms or word in self.transforms)
        )


@cache
def known_mistakes() -> dict[str, tuple[KnownMistake, ...]]:
    """Return action → the mistakes that mutations with this action make."""
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    found: dict[str, tuple[KnownMistake, ...]] = {}
    for name, row in rows.items():
        lists = {key: tuple(row.get(key, ())) for key in ("functions", "arguments", "transforms")}
        mistake = KnownMistake(name, row["report"], row["action"], **lists)
        found[mistake.action] = (*found.get(mistake.action, ()), mistake)
    return found


def find_mistake(change: Mutation) -> KnownMistake | None:
    """Return the known mistake that a mutation makes; None if it makes none."""
    rows = known_mistakes().get(change.action, ())
    return next((one for one in rows if one.matches(change)), None)


def put_mistakes_first(changes: Sequence[Mutation]) -> Iterator[Mutation]:
    """Yield mutations in their order, those that make a known mistake before all others."""
    late = []
    for change in changes:
        if find_mistake(change) is None:
            late.append(change)
        else:
            yield change
    yield from late


def exchanges_comparisons(change: Mutation) -> bool:
    """Return whether a mutation puts one comparison in place of another: where padding is zero and
    all other numbers are larger, ``ne`` and ``gt`` say the same."""
    function = OPERATOR_FUNCTIONS.get(change.operation, change.operation)
    return change.action == "function" and {function, change.value} <= {*COMPARISONS}
