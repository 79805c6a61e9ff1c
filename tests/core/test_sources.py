"""`docs/sources.toml`: every path, arm, test and command in it exists and fits its backends."""

from __future__ import annotations

import re
import shlex
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from docs_scripts import load_script
from test_docs_blocks import parse

from dualml.experiment.load import load

ROOT = Path(__file__).resolve().parents[2]
MODULE = load_script("sources")

SOURCES = MODULE.read_sources()
ROWS = [(name, row) for name, source in SOURCES.items() for row in source.get("rows", ())]
#: Backend → test folders that can show it running, besides commands that name it.
FOLDERS = {
    "P": {"torch", "conformance", "system", "methods", "examples", "notebooks"},
    "M": {"mindspore", "conformance", "system", "methods", "examples", "notebooks"},
    "N": {"core", "conformance", "system"},
    "C": {"core", "system"},
}
IDS = [f"{name}-{row['en'][:40]}" for name, row in ROWS]


@cache
def functions_in(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE))


@cache
def arms_of(path: str) -> frozenset[str]:
    """Return the names of arms, as written and as expanded for several world sizes."""
    expanded = load(str(ROOT / path), arms=["all"]).arms
    written = tomllib.loads((ROOT / path).read_text("utf-8"))["arms"]
    return frozenset(expanded) | frozenset(written)


def problems_of(row: dict[str, Any]) -> list[str]:
    """Return everything that is wrong with one row."""
    wrong = []
    for place in row["where"]:
        path, _, arm = place.partition(": ")
        if not (ROOT / path).exists():
            wrong.append(f"{path} does not exist")
        elif arm and arm not in arms_of(path):
            wrong.append(f"{path} has no arm {arm}")
    folders = set()
    for seen in row["seen"]:
        found = MODULE.test_file_of(seen)
        if found is None:
            words = shlex.split(seen)
            parse(words[1:])
            folders |= {"system"} if "--backend" in words or "doctor" in words else {"core"}
        elif found[1] not in functions_in(ROOT / found[0]):
            wrong.append(f"{seen} does not exist")
        else:
            folders.add(found[0].parts[1])
    if not row["seen"]:
        wrong.append("nothing has seen it running")
    for backend in row["on"]:
        if not folders & FOLDERS[backend]:
            wrong.append(f"nothing shows it on {backend}")
    if "outside" in row and not (row["outside"]["en"] and row["outside"]["zh"]):
        wrong.append("its reason is empty")
    return wrong


def test_all_five_sources_are_there() -> None:
    counts = {name: len(source["rows"]) for name, source in SOURCES.items() if "rows" in source}
    assert len(counts) == 5
    assert min(counts.values()) >= 15
    assert sum(counts.values()) >= 150
    texts = [row[lang] for _, row in ROWS for lang in ("en", "zh")]
    assert all(texts)


@pytest.mark.parametrize("row", [row for _, row in ROWS], ids=IDS)
def test_a_row_is_where_it_says(row: dict[str, Any]) -> None:
    assert problems_of(row) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"where": ["docs/no.md"]}, "does not exist"),
        ({"where": ["experiments/lab1.toml: nobody"]}, "no arm"),
        ({"seen": ["core/test_sources::nothing"]}, "does not exist"),
        ({"seen": []}, "nothing has seen"),
        ({"on": "M", "seen": ["core/test_sources::all_five_sources_are_there"]}, "shows it on M"),
    ],
)
def test_a_wrong_row_is_noticed(change: dict[str, Any], word: str) -> None:
    right = {
        "where": ["README.md"],
        "seen": ["core/test_sources::a_wrong_row_is_noticed"],
        "on": "C",
    }
    assert problems_of(right) == []
    assert any(word in problem for problem in problems_of(right | change))


@pytest.mark.parametrize(("lang", "page"), [("en", "sources.md"), ("zh", "sources.zh.md")])
def test_the_pages_are_written_from_it(lang: str, page: str) -> None:
    assert (ROOT / "docs" / page).read_text("utf-8") == MODULE.render_page(SOURCES, lang)
