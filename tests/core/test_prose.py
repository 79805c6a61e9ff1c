"""The prose of pages and messages has none of the forms of `prose.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORMS: dict[str, list[dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("prose.toml").read_text("utf-8")
)
#: Beginning of a sentence, of a list item or of a cell of a table.
START = r"(?:(?<=[.:;?!] )|(?<=\n)|(?<=\A)|(?<=- )|(?<=\*\* )|(?<=\| ))"
#: Pages whose text is generated or quoted, and the list of former words.
LEFT_OUT = ("differences", "glossary", "CHANGELOG")
ALL = [(lang, form) for lang, forms in FORMS.items() for form in forms]
by_form = pytest.mark.parametrize(
    ("lang", "form"), ALL, ids=[f"{lang}-{n}" for n, (lang, _) in enumerate(ALL)]
)


def pages(lang: str) -> Iterator[Path]:
    """Yield the pages in a language."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found += [*(ROOT / "experiments").glob("*.md"), *(ROOT / "examples").rglob("*.md")]
    for path in found:
        is_chinese = path.name.endswith(".zh.md")
        if is_chinese == (lang == "zh") and not path.name.startswith(LEFT_OUT):
            yield path


def flowing(text: str) -> str:
    """Return a page without code, HTML and link targets, with each paragraph on one line."""
    text = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.M | re.S)
    text = re.sub(r"`[^`\n]*`", "C", text)
    text = re.sub(r"<[^>\n]*>|\]\([^)\n]*\)", "", text)
    return re.sub(r"(?<!\n)\n(?![\n|\-#>]| *\d+\.| *-)\s*", " ", text)


def messages(lang: str) -> Iterator[tuple[str, str]]:
    """Yield file and text of the messages in a language."""
    for path in ROOT.glob(f"dualml*/**/words/{lang}/*.toml"):
        text = "\n".join(re.findall(r'= "(.*)"$', path.read_text("utf-8"), re.M))
        yield path.relative_to(ROOT).as_posix(), text


def texts(lang: str) -> Iterator[tuple[str, str]]:
    """Yield file and text of pages and messages in a language."""
    for path in pages(lang):
        yield path.relative_to(ROOT).as_posix(), flowing(path.read_text("utf-8"))
    yield from messages(lang)


def matches(form: dict[str, Any], text: str) -> Iterator[str]:
    """Yield the places of a text that have a form, with what follows."""
    for match in re.finditer(form["pattern"].replace("START", START), text):
        yield text[match.start() : match.end() + 40].replace("\n", " ")


@by_form
def test_no_page_and_no_message_has_the_form(lang: str, form: dict[str, Any]) -> None:
    found = [f"{file}: {part}" for file, text in texts(lang) for part in matches(form, text)]
    assert found == [], form["reason"]


@by_form
def test_the_form_is_noticed_and_its_remedy_is_not(lang: str, form: dict[str, Any]) -> None:
    assert list(matches(form, form["wrong"]))
    assert not list(matches(form, form["right"]))
    assert form["reason"]


def test_a_form_is_noticed_across_lines_and_not_in_code() -> None:
    form = FORMS["en"][4]
    assert list(matches(form, flowing("The job ends, and so\ndoes its process.\n")))
    assert not list(matches(form, flowing("```\nThe job ends, and so does its process.\n```\n")))
