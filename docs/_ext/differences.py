"""The catalogue of differences: one page for each entry, and an index.

The texts and figures are those of ``docs/differences.md``, which `dualml diffs --page` writes and a
test compares with the catalogue. This module only splits that page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from _ext.pages import DOCS, Page, SiteError
from _ext.words import words
from dualml.common.words import section_messages
from dualml.parity.diffs.code import helper_source, package_of
from dualml.parity.diffs.entry import DifferenceEntry, Lang
from dualml.parity.diffs.load import catalogue
from dualml.parity.diffs.page import PAGES, SIDES, render_listing

SECTION = re.compile(r"^### (\S+)\n\n(.*?)(?=^##|\Z)", re.M | re.S)
#: Fold tags around the listings, which a separate page does not need.
FOLD = re.compile(r"\n*<details><summary>.*?</summary>\n*(.*?)\n*</details>\s*", re.S)


def pages() -> Iterator[Page]:
    """Yield the index and a page for every entry of the catalogue.

    Raises:
        SiteError: the written page lacks an entry.
    """
    yield Page("differences/index", make=index)
    for name, entry in catalogue().items():
        for lang in PAGES:
            if name not in sections(lang):
                raise SiteError(f"docs/{PAGES[lang]} lacks {name}: dualml diffs --page docs")
        yield Page(f"differences/{name}", make=page_maker(entry), hidden=True)


def page_maker(entry: DifferenceEntry) -> Callable[[Lang], str]:
    """Return a function that makes the page of an entry in a language."""
    return lambda lang: page(entry, lang)


@cache
def read_catalogue_page(lang: Lang) -> str:
    """Return the written page of the catalogue in a language."""
    return (DOCS / PAGES[lang]).read_text("utf-8")


@cache
def sections(lang: Lang) -> dict[str, str]:
    """Return entry → its section of the written page."""
    return dict(SECTION.findall(read_catalogue_page(lang)))


def index(lang: Lang) -> str:
    """Return the written page's introduction and tables, with links to the pages of the entries."""
    text = read_catalogue_page(lang).partition("\n## ")[0]
    text = re.sub(r"^(?:\[English\].*|English · .*)\n", "", text, flags=re.M)
    text = re.sub(r"^\*\*(.+)\*\*$", r"## \1", text, flags=re.M)
    text = re.sub(r"\(#([\w-]+)\)", r"(\1.md)", text) + "\n"
    own = words(lang)["differences"]
    data = " ".join(f'data-{key}="{own[key]}"' for key in ("search", "topics", "any", "shown"))
    return text.replace("\n## ", f"\n<div data-filter {data}></div>\n\n## ", 1)


def page(entry: DifferenceEntry, lang: Lang) -> str:
    """Return the page of one entry: what the frameworks do, what was measured, and the code of both
    sides."""
    texts, own = section_messages(lang, "diffs"), words(lang)["differences"]
    heading, _, rest = sections(lang)[entry.name].partition("\n\n")
    rest = FOLD.sub(rf"\n\n## {texts['listing'].capitalize()}\n\n\1", rest)
    mark = re.sub(r"^\*\*.*\*\*\s*", "", heading).strip("()（）")
    helpers = [
        part
        for side in SIDES
        if (text := helper_source([entry], package_of(side)))
        for part in render_listing(side, "helpers", text, lang)
    ]
    parts = [
        f"# {getattr(entry.title, lang)}",
        f"`{entry.name}` · {texts[f'topic.{entry.topic}']} · {mark}",
        rest.strip(),
        *helpers,
        own["more"].format(name=entry.name),
    ]
    return "\n\n".join(parts) + "\n"
