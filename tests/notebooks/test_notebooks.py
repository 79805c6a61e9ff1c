"""The notebooks of the labs: executed from their sources, the same in both languages, up to
date."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from conformance.backends import require

for needed in ("jupytext", "nbclient", "ipykernel"):
    require(needed)

HERE = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
sys.path.insert(0, str(HERE))
import build  # noqa: E402

sys.path.remove(str(HERE))

import nbformat  # noqa: E402

PAIRS = [(source, lang) for source in build.SOURCES for lang in build.LANGUAGES]
MOST_BYTES = 300_000


def code(book: Any) -> list[str]:
    return [cell.source for cell in book.cells if cell.cell_type == "code"]


def test_both_languages_have_the_same_cells() -> None:
    for source in build.SOURCES:
        books = [build.notebook(source, lang) for lang in build.LANGUAGES]
        english, chinese = ([cell.cell_type for cell in book.cells] for book in books)
        assert english == chinese
        assert english[0] == "markdown"
        texts = ["".join(c.source for c in b.cells if c.cell_type == "markdown") for b in books]
        assert [any("一" <= letter <= "鿿" for letter in text) for text in texts] == [False, True]
        languages = [
            sum(f'LANG = "{lang}"' in c for c in code(b))
            for lang, b in zip(build.LANGUAGES, books, strict=True)
        ]
        assert languages == [1, 1]


@pytest.mark.parametrize("source", build.SOURCES)
def test_it_runs(source: str, tmp_path: Path) -> None:
    for framework in ("torch", "mindspore"):
        require(framework)
    book = nbformat.read(build.build(source, "en", tmp_path), as_version=4)
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output.text for output in outputs if output.get("name") == "stderr"]


@pytest.mark.parametrize(("source", "lang"), PAIRS)
def test_the_committed_one_is_of_this_source(source: str, lang: str) -> None:
    path = HERE / build.name(source, lang)
    committed = nbformat.read(path, as_version=4)
    fresh = build.notebook(source, lang)
    assert [cell.source for cell in committed.cells] == [cell.source for cell in fresh.cells]
    assert all(cell.execution_count for cell in committed.cells if cell.cell_type == "code")
    assert path.stat().st_size < MOST_BYTES
