"""Choose few cases that cover the settings of many.

A product of settings grows with every setting, and a framework that compiles each case takes
minutes for it. Mistakes come from one setting, or from two that meet: `covering` keeps every value,
or every pair of values, that some case has. ``--slow`` runs all cases.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

#: Variable that `tests/conftest.py` sets with ``--slow``.
ALL = "DUALML_TEST_ALL_CASES"
#: Keys of a case that only decide how long it takes.
COST = frozenset({"sizes"})

Values = frozenset[tuple[str, str]]


def values_of(case: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every setting of a case with its value; those of nested tables by their path."""
    for key, value in case.items():
        if key in COST:
            continue
        if isinstance(value, Mapping):
            yield (prefix + key, "present")
            yield from values_of(value, f"{prefix}{key}.")
        else:
            yield (prefix + key, str(value))


def goals(values: Values, strength: int) -> set[Values]:
    """Return the sets of ``strength`` values that a case covers."""
    return {frozenset(chosen) for chosen in combinations(sorted(values), strength)}


def covering(cases: Mapping[str, Mapping[str, Any]], strength: int = 2) -> list[str]:
    """Return titles of few cases that cover what all of them cover, in their order.

    Greedy: the case that covers most of what is missing comes next, the earlier of two equals.
    """
    covered = {title: goals(frozenset(values_of(case)), strength) for title, case in cases.items()}
    missing = set().union(*covered.values())
    chosen = set[str]()
    while missing:
        title = max(covered, key=lambda one: len(covered[one] & missing))
        chosen.add(title)
        missing -= covered.pop(title)
    return [title for title in cases if title in chosen]


def runs_all_cases() -> bool:
    """Return whether this session runs all cases (``--slow``)."""
    return bool(os.environ.get(ALL))


def chosen_cases(
    cases: Mapping[str, dict[str, Any]], strength: int = 2
) -> dict[str, dict[str, Any]]:
    """Return the covering cases; with ``--slow`` all of them."""
    if runs_all_cases():
        return dict(cases)
    return {title: cases[title] for title in covering(cases, strength)}
