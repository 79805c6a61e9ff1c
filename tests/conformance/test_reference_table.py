"""The CPU columns of the reference table in docs/primitives.md match what the engines do."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conformance.backends import DEVICE, on_ranks, tested_backends

from dualml.algorithms.communicator import PRIMITIVES

DOCS = Path(__file__).resolve().parents[2] / "docs"
#: Backend → its column in the table.
COLUMNS = {"torch": "gloo, CPU", "mindspore": "mccl, CPU"}
BITWISE = {"bitwise reductions", "按位归约"}
BITS = ("band", "bor", "bxor")
pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="these columns are of CPUs")


@cache
def table(page: str) -> dict[str, dict[str, str]]:
    """Return column → primitive (or ``bitwise``) → ✓, ✘ or ?."""
    rows = re.findall(r"^\|(.*)\|$", (DOCS / page).read_text("utf-8"), re.M)
    cells = [[cell.strip().strip("*") for cell in row.split("|")] for row in rows]
    heads = next(row for row in cells if COLUMNS["torch"] in row)
    found: dict[str, dict[str, str]] = {head: {} for head in heads[1:]}
    for first, *marks in cells:
        name = re.match(r"`(\w+)`", first)
        if len(marks) != len(heads) - 1 or not (name or first in BITWISE):
            continue
        for head, mark in zip(heads[1:], marks, strict=True):
            found[head][name[1] if name else "bitwise"] = mark
    return found


def test_both_languages_say_the_same() -> None:
    assert table("primitives.md") == table("primitives.zh.md")
    for marks in table("primitives.md").values():
        assert marks.keys() == {*PRIMITIVES, "bitwise"}
        assert set(marks.values()) <= {"✓", "✘", "?"}


@cache
def probe_entries(backend: str) -> list[Any]:
    """Return primitive, dtype, operation, kind and detail of everything that was tried on two
    ranks."""
    tried = on_ranks(backend, 2, "dualml.runner.capabilities.probe:probe", timeout=20, limit=240)
    return [entry for told in tried for entry in told["entries"]]


@pytest.mark.parametrize("backend", tested_backends())
def test_what_it_says_of_cpus_is_found_there(backend: str) -> None:
    if backend not in COLUMNS:
        pytest.skip("docs/primitives.md has no column for this backend")
    marks, wrong = table("primitives.md")[COLUMNS[backend]], []
    for name, mark in marks.items():
        if name == "bitwise":
            own = [e for e in probe_entries(backend) if e[0] == "all_reduce" and e[2] in BITS]
        else:
            own = [e for e in probe_entries(backend) if e[0] == name and e[2] not in BITS]
        usual = [entry[3] for entry in own if entry[1] in ("float32", "int32")]
        assert usual, name
        assert not [e for e in own if e[3] == "failed"], name
        if (mark == "✓") != (set(usual) == {"native"}):
            wrong.append(f"{name}: the page says {mark}, found {sorted(set(usual))}")
    assert not wrong
