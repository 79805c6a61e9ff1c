"""The glossary defines every term once in both languages, and pages and messages keep to it.

`test_docs_tables.py` compares its tables of former names with the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from language import RULES

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"en": ROOT / "docs" / "glossary.md", "zh": ROOT / "docs" / "glossary.zh.md"}
#: Words of version 0.1 in prose; a code span or a file name may still contain them.
FORMER = re.compile("|".join(RULES["former_prose"]), re.IGNORECASE)
#: The glossary and the list of changes name them; notebooks' outputs and reports are of their time.
HISTORY = {"docs/glossary.md", "docs/glossary.zh.md", "CHANGELOG.md"}


def rows(lang: str, width: int) -> list[list[str]]:
    """Return the cells of all table rows of a page with ``width`` columns."""
    lines = PAGES[lang].read_text("utf-8").splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line[:1] == "|"]
    return [row for row in cells if len(row) == width and "---" not in row[0]][1:]


def prose() -> Iterator[tuple[str, str]]:
    """Yield the file and the text without code of every page and message catalogue."""
    pages = [ROOT / "README.md", ROOT / "README.zh.md", *(ROOT / "docs").rglob("*.md")]
    pages += [*(ROOT / "experiments").glob("*.md"), *(ROOT / "dualml").rglob("*.md")]
    for path in pages:
        text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.M | re.S)
        yield path.relative_to(ROOT).as_posix(), re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    for path in ROOT.glob("dualml*/**/words/*/*.toml"):
        text = path.read_text("utf-8")
        yield path.relative_to(ROOT).as_posix(), " ".join(re.findall(r'= "(.*)"$', text, re.M))


def test_both_languages_define_the_same_terms() -> None:
    english = [(term, chinese) for term, chinese, *_ in rows("en", 4)]
    assert [(term, chinese) for chinese, term, *_ in rows("zh", 4)] == english
    assert len(english) > 60


def test_terms_are_unique_and_in_order() -> None:
    terms = [row[0].lower() for row in rows("en", 4)]
    assert terms == sorted(set(terms))


@pytest.mark.parametrize("lang", PAGES)
def test_every_term_links_to_a_page(lang: str) -> None:
    for term, _, meaning, link in rows(lang, 4):
        assert meaning, term
        (target,) = re.findall(r"^\[[^]]+\]\(([^)#]+)(?:#[^)]+)?\)$", link)
        assert (PAGES[lang].parent / target).is_file(), f"{term}: {target}"


def test_pages_and_messages_avoid_former_words() -> None:
    found = [
        f"{file}: {match[0]}"
        for file, text in prose()
        if file not in HISTORY
        for match in FORMER.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "former"),
    [
        ("held against the referee", True),
        ("a lone kink", True),
        ("与裁判一致", True),
        ("what the ranks share out", True),
        ("the plan deals a batch", True),
        ("compared with the reference", False),
        ("a deal of work, dealing with errors", False),
        ("two answers cannot be told apart", False),
    ],
)
def test_former_words_are_noticed(text: str, former: bool) -> None:
    assert bool(FORMER.search(text)) == former
