"""SECURITY.md lists the same entry points in both languages, and the tests it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text("utf-8")
ENGLISH, CHINESE = TEXT.split("\n# 安全\n")


def rows(text: str) -> list[list[str]]:
    """Return the cells of the table's rows, without the header."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def paths_in(cell: str) -> list[str]:
    """Return the paths of the tests that a row names; a bare name is in the folder of the one
    before."""
    found: list[str] = []
    for name in re.findall(r"`([^`]+)`", cell):
        found.append(name if "/" in name else str(Path(found[-1]).with_name(name)))
    return found


def test_each_door_names_a_test_that_is_there() -> None:
    table = rows(ENGLISH)
    assert len(table) >= 10
    for door, who, promise, tests in table:
        assert all((door, who, promise))
        names = paths_in(tests)
        assert names, door
        for name in names:
            assert (ROOT / name).is_file(), f"{door}: {name}"


def test_both_languages_have_the_same_doors() -> None:
    english, chinese = rows(ENGLISH), rows(CHINESE)
    assert [paths_in(row[3]) for row in english] == [paths_in(row[3]) for row in chinese]
