"""Mutations for settings that the two sides state differently: in attributes of their modules, in
the arguments of their calls, or as numbers in their source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import isclose
from typing import Any

from dualml.parity.causes.context import constant_inputs, numeric_constants
from dualml.parity.causes.function_mutations import classify_setting
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.tables import FLAG_WORDS, IDLE, SETTING_NAMES
from dualml.parity.models.operations import Operation
from dualml.parity.models.stated import ModuleSettings

#: Relative distance up to which two numbers count as the same: one side may have stored it in
#: float32.
SAME_RTOL = 1e-6
#: Numbers that occur in any source and state nothing.
COMMON = (-1.0, 0.0, 0.5, 1.0, 2.0, 3.0)
#: Largest number of numbers of either side alone, in one pair of modules, that are tried.
MAX_NUMBERS = 3


@dataclass(frozen=True)
class StatedSettings:
    """The settings that the modules of both sides state.

    Attributes:
        a, b: attributes of the modules of either side.
        pairs: name of a module of the first side → its partner on the second.
    """

    a: ModuleSettings = field(default_factory=dict)
    b: ModuleSettings = field(default_factory=dict)
    pairs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StatedDifference:
    """A setting with another value in a module's partner.

    Attributes:
        name: its name in the terms of `canonical_name`; empty for a number without one.
        old, new: its value on the first side and on the second.
    """

    name: str
    old: Any
    new: Any


def stated_mutations(
    ours: Sequence[Operation], theirs: Sequence[Operation], stated: StatedSettings
) -> list[Mutation]:
    """Return one mutation for each setting that both sides state differently, at all calls of the
    first side where it applies; those with a name come first, then those of most calls."""
    mine, others = calls_by_module(ours), calls_by_module(theirs)
    found: dict[tuple[Any, ...], tuple[bool, list[int], Mutation]] = {}
    for x, y in {"": "", **stated.pairs}.items():
        calls, partners = mine.get(x, []), others.get(y, [])
        attributes = stated.a.get(x, {}), stated.b.get(y, {})
        rows = [
            *attribute_differences(*attributes),
            *call_differences(calls, partners),
            *number_differences(
                [*numbers_in(calls), *unnamed_numbers(*attributes)],
                [*numbers_in(partners), *unnamed_numbers(*attributes[::-1])],
            ),
        ]
        for difference, one in product(dict.fromkeys(rows), calls):
            for argument, old in one.attributes.items():
                if argument in IDLE or not is_stated_there(difference, argument, old):
                    continue
                key = (one.name, argument, repr(old), repr(difference.new))
                kind = classify_setting(one.name, argument, difference.new)
                change = Mutation(kind, "set", (), one.name, argument, difference.new, old)
                _, sites, _ = found.setdefault(key, (not difference.name, [], change))
                if one.number not in sites:
                    sites.append(one.number)
    order = sorted(found.values(), key=lambda row: (row[0], -len(row[1])))
    return [change.with_sites(sorted(sites)) for _, sites, change in order]


def calls_by_module(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    """Return the calls of each module, those of the modules inside left out."""
    rows: dict[str, list[Operation]] = defaultdict(list)
    for one in operations:
        rows[one.module].append(one)
    return rows


def canonical_name(name: str) -> str:
    """Return the name of a setting in PyTorch's terms: ``eps`` for everything that contains it,
    ``dim`` for ``axis``."""
    word = name.lower()
    return "eps" if "eps" in word else SETTING_NAMES.get(word, word)


def attribute_differences(
    mine: Mapping[str, Any], others: Mapping[str, Any]
) -> Iterator[StatedDifference]:
    """Yield the settings of two modules that have one canonical name and different values of one
    kind.

    A momentum is also compared with 1 − the other side's; where these agree it does not differ.
    """
    partners = {canonical_name(name): value for name, value in others.items()}
    for given, old in mine.items():
        name = canonical_name(given)
        if name not in partners or given in IDLE:
            continue
        new = FLAG_WORDS.get(name, {}).get(str(partners[name]), partners[name])
        if isinstance(old, list) and is_number(new):
            new = [new] * len(old)
        if name == "momentum" and is_number(new):  # a framework may count the other share
            share = float(f"{1 - new:.9g}")
            if is_number(old) and isclose(old, share, rel_tol=SAME_RTOL):
                continue
            yield StatedDifference(name, freeze(old), share)
        if same_kind(old, new) and not same_value(old, new):
            yield StatedDifference(name, freeze(old), freeze(new))


def call_differences(
    calls: Sequence[Operation], partners: Sequence[Operation]
) -> Iterator[StatedDifference]:
    """Yield the settings that the calls of one function have in both modules, with different
    values, where both call it equally often."""
    mine, others = calls_by_function(calls), calls_by_function(partners)
    for name, rows in mine.items():
        if len(rows) == len(others.get(name, ())):
            for one, other in zip(rows, others[name], strict=True):
                yield from attribute_differences(one.attributes, other.attributes)


def calls_by_function(calls: Iterable[Operation]) -> dict[str, list[Operation]]:
    """Return the calls of each function, by its name in lower case, without underscores and without
    ``ext`` at the end."""
    rows: dict[str, list[Operation]] = defaultdict(list)
    for one in calls:
        rows[one.name.lower().replace("_", "").removesuffix("ext")].append(one)
    return rows


def numbers_in(calls: Iterable[Operation]) -> Iterator[float]:
    """Yield the numbers among the settings and the inputs of calls."""
    for one in calls:
        yield from numeric_constants(one.attributes)
        yield from constant_inputs(one.inputs)


def unnamed_numbers(mine: Mapping[str, Any], others: Mapping[str, Any]) -> list[float]:
    """Return the numbers among a module's settings that its partner has under no name."""
    known = set(map(canonical_name, others))
    return numeric_constants({n: v for n, v in mine.items() if canonical_name(n) not in known})


def number_differences(
    mine: Iterable[float], others: Iterable[float]
) -> Iterator[StatedDifference]:
    """Yield every pair of a number of the first module alone and one of the second alone, without a
    name; nothing where there are more than MAX_NUMBERS of either. Whole numbers and those of
    `COMMON` are left out."""
    sides = [
        [n for n in dict.fromkeys(float(f"{n:.6g}") for n in one) if n not in COMMON]
        for one in (mine, others)
    ]
    alone = [
        [n for n in own if not any(same_value(n, other) for other in rest)]
        for own, rest in (sides, sides[::-1])
    ]
    if all(len(one) <= MAX_NUMBERS for one in alone):
        for old, new in product(*alone):
            if not (float(old).is_integer() or float(new).is_integer()):
                yield StatedDifference("", old, new)


def is_stated_there(difference: StatedDifference, argument: str, old: Any) -> bool:
    """Return whether a call's argument has the old value of a difference: the argument of its name,
    or, if both values are floats, one of another name."""
    if difference.name and canonical_name(argument) == difference.name:
        return same_kind(old, difference.new) and same_value(old, difference.old)
    number = isinstance(difference.old, float) and isinstance(old, float)
    return number and same_value(old, difference.old)


def is_number(value: Any) -> bool:
    """Return whether a value is a number and no flag."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def same_kind(old: Any, new: Any) -> bool:
    """Return whether two values are of one kind: numbers, flags, texts, lists of one length."""
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return len(old) == len(new)
    return (is_number(old) and is_number(new)) or type(old) is type(new)


def same_value(old: Any, new: Any) -> bool:
    """Return whether two values are the same, numbers up to a relative distance of SAME_RTOL."""
    if is_number(old) and is_number(new):
        return isclose(old, new, rel_tol=SAME_RTOL)
    return bool(freeze(old) == freeze(new))


def freeze(value: Any) -> Any:
    """Return a list as a tuple, so that it can be a key; other values unchanged."""
    return tuple(value) if isinstance(value, list) else value
