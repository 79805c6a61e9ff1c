"""The pages' figures for the namespace network match `benchmarks/network.json` and today's cost
model; nothing is measured here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
NAMES = ("network_tables", "netbed", "pages", "tables")


@pytest.fixture(scope="module")
def tables() -> Iterator[Any]:
    """Load the benchmark scripts, which import each other and are no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        import network_tables

        yield network_tables
        for name in NAMES:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / "network.json").read_text("utf-8"))
    return content


def test_the_pages_have_these_tables(tables: Any, measured: dict[str, Any]) -> None:
    for name, (render, _, pages) in tables.TABLES.items():
        for page in pages:
            lang = "zh" if page.name.endswith(".zh.md") else "en"
            assert render(measured, lang) in page.read_text("utf-8"), (name, page.name)


def test_predictions_from_two_nodes_are_within_a_tenth(
    tables: Any, measured: dict[str, Any]
) -> None:
    every = list(tables.checks(measured["predictions"]))
    assert len(every) == 120
    assert max(abs(c.error) for c in every) <= tables.LIMIT
    other = tables.of_other_sizes(measured)
    far = [(c.name, c.n) for c in other if abs(c.error) > tables.LIMIT]
    assert (len(other), far) == (60, [("all_gather", 4)])


def test_an_interface_counts_little_more_than_was_to_be_sent(
    tables: Any, measured: dict[str, Any]
) -> None:
    cases = [*measured["predictions"], *measured["mindspore"]]
    every = [tables.Bytes.from_record(case, row) for case in cases for row in case["rows"]]
    assert len(every) == 200
    assert max(b.more for b in every) <= 0.03
