"""The pages of the site: their names, sources and sections."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LANGUAGES = ("en", "zh")


class SiteError(Exception):
    """An error that makes the site unbuildable; the text names the page."""


@dataclass(frozen=True)
class Page:
    """One page in both languages.

    Attributes:
        name: its path on the site, without a suffix.
        files: language → source file; empty if the page is made from the program.
        make: function that returns its Markdown in a language, if it is made.
        hidden: whether it is in no table of contents, because another page links to it.
    """

    name: str
    files: Mapping[str, Path] = field(default_factory=dict)
    make: Callable[[str], str] | None = None
    hidden: bool = False

    def text(self, lang: str) -> str:
        return self.make(lang) if self.make else self.files[lang].read_text("utf-8")


def source_pages(root: Path = ROOT) -> Iterator[Page]:
    """Yield the pages that are files of the repository.

    Raises:
        SiteError: a page is missing in one language.
    """
    docs = root / "docs"
    for path in sorted(docs.rglob("*.md")):
        name = path.relative_to(docs).as_posix().removesuffix(".md")
        if name in ("differences", "differences.zh"):
            continue  # a page for each entry takes their place
        if name.endswith(".zh"):
            if not path.with_name(path.name.replace(".zh.md", ".md")).exists():
                raise SiteError(f"{path.relative_to(root)} is there in Chinese only")
            continue
        yield pair(root, name, path, path.with_name(f"{path.stem}.zh.md"))
    for path in sorted((root / "experiments").glob("*.en.md")):
        stem = path.name.removesuffix(".en.md")
        yield pair(root, f"labs/{stem}", path, path.with_name(f"{stem}.zh.md"))
    for file, name in contents(root)["files"].items():
        path = root / file
        chinese = path.with_suffix(".zh.md")
        if path.exists():
            yield Page(name, {"en": path, "zh": chinese if chinese.exists() else path})


def pair(root: Path, name: str, english: Path, chinese: Path) -> Page:
    if not chinese.exists():
        raise SiteError(
            f"{english.relative_to(root)} is there in English only; "
            f"write {chinese.relative_to(root)}"
        )
    return Page(name, {"en": english, "zh": chinese})


def contents(root: Path = ROOT) -> dict[str, Any]:
    """Return the table of contents in ``docs/site.toml``."""
    return tomllib.loads((root / "docs" / "site.toml").read_text("utf-8"))


def sections(names: set[str], root: Path = ROOT) -> list[tuple[Mapping[str, str], list[str]]]:
    """Return the title (in each language) and the pages of every non-empty section.

    Raises:
        SiteError: a section names a page that does not exist, or a page is in no section.
    """
    listed = contents(root)
    words = [word for section in listed["section"] for word in section["pages"]]
    named = [word for word in words if "*" not in word]
    if missing := sorted(set(named) - names - set(listed["files"].values())):
        raise SiteError(f"docs/site.toml names {', '.join(missing)}, which does not exist")
    places = {word: [word] for word in named if word in names}
    left = sorted(names - {"index", *named})
    # The longest pattern says most; "*" takes what no other does.
    for pattern in sorted({word for word in words if "*" in word}, key=len, reverse=True):
        places[pattern] = [name for name in left if fnmatch(name, pattern)]
        left = [name for name in left if name not in places[pattern]]
    if left:
        raise SiteError(f"docs/site.toml has no section for {', '.join(left)}")
    found = [
        (section["title"], [name for word in section["pages"] for name in places.get(word, [])])
        for section in listed["section"]
    ]
    return [(title, pages) for title, pages in found if pages]


def tables_of_contents(names: set[str], lang: str, root: Path = ROOT) -> str:
    """Return the hidden tables of contents, one per section, that follow the first page's text."""
    parts = []
    for title, pages in sections(names, root):
        head = f"```{{toctree}}\n:hidden:\n:titlesonly:\n:caption: {title[lang]}\n"
        parts.append("\n".join([head, *(f"/{page}" for page in pages), "```"]))
    return "\n\n".join(parts) + "\n"
