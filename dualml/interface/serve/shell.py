"""Assemble a page from its sections, in the style of the report; live parts are updated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from markupsafe import Markup

from dualml.common.words import LANGUAGES, Messages
from dualml.report.blocks import Block
from dualml.report.draw import script
from dualml.report.page.html import page_css, render_blocks, tag

#: Seconds between two updates of a page: while something is running, and otherwise.
EVERY_S, IDLE_S = 2, 5


@dataclass(frozen=True)
class LiveBlock:
    """HTML that the page replaces when it has changed."""

    html: Markup


def make_live(*blocks: Block) -> LiveBlock:
    """Render blocks of a section as HTML that the page replaces when it has changed."""
    return LiveBlock(render_blocks(blocks, 3))


@dataclass(frozen=True)
class PageSection:
    """A section of a page; plain markup in it stays as it was when the page was opened."""

    name: str
    title: str
    content: Sequence[Markup | LiveBlock]

    def html(self) -> Markup:
        """Render the section as HTML."""
        parts = [tag("h2", self.title)]
        for number, each in enumerate(self.content):
            if isinstance(each, LiveBlock):
                each = tag("div", each.html, id=f"{self.name}-{number}", data_live="yes")
            parts.append(each)
        return tag("section", *parts, id=self.name)


def make_section(name: str, words: Messages, content: Sequence[Markup | LiveBlock]) -> PageSection:
    """Make a section with the title ``serve.part.NAME``."""
    return PageSection(name, words(f"serve.part.{name}"), content)


def render_page(
    words: Messages,
    title: str,
    about: str,
    parts: Sequence[PageSection],
    *,
    languages: dict[str, str],
    home: bool,
    is_running: bool,
) -> str:
    """Render a whole page.

    Args:
        about: text below the title.
        languages: language → URL of this page in that language.
        home: whether this is the list of all runs, to which other pages link.
        is_running: whether something is running, so that the page is updated more often.
    """
    links = [tag("li", tag("a", words("serve.home"), href="/"))] if not home else []
    links += [tag("li", tag("a", each.title, href=f"#{each.name}")) for each in parts]
    for lang in LANGUAGES:
        if lang != words.lang:
            name = Messages(lang)("serve.language")
            links.append(tag("li", tag("a", name, href=languages[lang], lang=lang, hreflang=lang)))
    return Markup(_read("shell.html")).format(
        lang=words("lang"),
        title=title,
        every=EVERY_S if is_running else IDLE_S,
        lost=words("serve.lost"),
        contents=words("page.contents"),
        links=Markup("").join(links),
        head=tag("h1", title) + tag("p", about, class_="question"),
        body=Markup("\n").join(each.html() for each in parts),
    )


@cache
def stylesheet() -> str:
    """Return the CSS of all pages."""
    return page_css() + _read("serve.css")


@cache
def script_text() -> str:
    """Return the JavaScript that makes figures interactive and updates pages."""
    return script() + _read("serve.js")


def _read(name: str) -> str:
    """Return the text of a file of this package."""
    return (files("dualml.interface.serve") / name).read_text(encoding="utf-8")
