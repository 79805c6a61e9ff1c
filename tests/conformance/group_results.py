"""Results of a group of ranks, computed once for all tests that use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest
from conformance import split

Cases = Mapping[str, dict[str, Any]]
#: Function (backend, case) → results of each rank.
GroupResults = Callable[[str, str], list[dict[str, Any]]]


def make_group_results(
    folders: pytest.TempPathFactory, cases_of: Callable[[str], Cases], train: str, timeout: float
) -> GroupResults:
    """Return a function (backend, case) → results of each rank. All cases of one size run on one
    group, with ``train`` on each rank; unsupported cases are skipped with the backend's reason."""

    @cache
    def group(name: str, ranks: int) -> dict[str, list[dict[str, Any]]]:
        chosen = {t: c for t, c in cases_of(name).items() if c["ranks"] == ranks}
        folder = folders.mktemp(f"{name}{ranks}")
        return split.on_group(name, ranks, train, chosen, folder, timeout=timeout)

    def case_of(name: str, title: str) -> list[dict[str, Any]]:
        ranks = group(name, cases_of(name)[title]["ranks"])[title]
        if "unsupported" in ranks[0]:
            pytest.skip(ranks[0]["unsupported"])
        return ranks

    return case_of
