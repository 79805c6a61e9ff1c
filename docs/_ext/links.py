"""Rewrite links of repository files for the site.

A link to a page becomes a link to that page of the site, a link to any other file or folder one to
the repository; pictures are copied. A link to a missing file is an error.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from _ext.pages import ROOT, Page, SiteError

PICTURES = (".svg", ".png", ".jpg")
#: Code on a line (left alone), or the target of a link.
LINK = re.compile(r"(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)|\]\((?P<target>[^()\s]+)\)")
FENCE = re.compile(r"\s*(`{3,}|~{3,})")
#: The language links below a title for readers on GitHub; the site has a switch on every page.
OTHER_LANGUAGE = re.compile(
    r"^(?:(?:English · )?\[中文\]\([^)]*\)|\[English\]\([^)]*\)(?: · 中文)?)(?: · )?", re.M
)
#: A link whose text is a file name; on the site it gets the title of the page.
FILE_NAME = re.compile(r"\[[\w./-]+\.md\]\((?![a-z+]+:)")
CATALOGUE = re.compile(r"docs/differences(?:\.zh)?\.md")


def repository() -> str:
    """Return the repository's web address, without a trailing slash."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["urls"]["Source"]).rstrip("/")


class Links:
    """Resolves the links of all pages.

    Attributes:
        pictures: file → its path on the site, where pages refer to it.
    """

    def __init__(self, pages: Mapping[str, Page], root: Path = ROOT) -> None:
        self.root, self.pictures = root, dict[Path, str]()
        self.names = {
            path.relative_to(root).as_posix(): page.name
            for page in pages.values()
            for path in page.files.values()
        } | {"README.md": "index", "README.zh.md": "index"}
        self.url = repository()

    def page(self, page: Page, lang: str) -> str:
        """Return the Markdown of a page with its links rewritten for the site."""
        text = page.text(lang)
        if not page.files:
            return text
        head, _, rest = text.partition("\n\n")
        text = f"{head}\n\n{OTHER_LANGUAGE.sub('', rest, count=1)}"
        at = page.files[lang]
        # An English page stands in for a Chinese one; its anchors are not those of Chinese pages.
        anchors = lang == "en" or at != page.files["en"]
        return outside_code(text, lambda target: self.target(target, at, page.name, anchors))

    def target(self, target: str, at: Path, name: str, anchors: bool = True) -> str:
        """Resolve a link in the file ``at``, which is the page ``name``; without ``anchors``, links
        to pages of the site lead to their top.

        Raises:
            SiteError: the target does not exist.
        """
        if re.match(r"[a-z+]+:|#", target):
            return target
        path, mark, fragment = target.partition("#")
        file = normpath((at.parent / path).relative_to(self.root).as_posix())
        if CATALOGUE.fullmatch(file):
            return relative_page(name, f"differences/{fragment or 'index'}") + ".md"
        if file in self.names:
            page = f"{relative_page(name, self.names[file])}.md"
            return f"{page}{mark}{fragment}" if anchors else page
        here = self.root / file
        if not here.exists():
            raise SiteError(f"{at.relative_to(self.root)} links to {target}, which does not exist")
        if here.suffix in PICTURES:
            self.pictures[here] = file.removeprefix("docs/")
            return relative_page(name, file.removeprefix("docs/"))
        return f"{self.url}/{'tree' if here.is_dir() else 'blob'}/main/{file}{mark}{fragment}"


def relative_page(name: str, other: str) -> str:
    """Return the relative path from the page ``name`` to another page.

    >>> relative_page("labs/lab1", "split")
    '../split'
    """
    return relpath(other, PurePosixPath(name).parent.as_posix())


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Return ``text`` with every link target changed, and page titles in place of file names; code
    is left alone."""

    def link(match: re.Match[str]) -> str:
        return match[0] if match["ticks"] else f"]({change(match['target'])})"

    lines = [
        line if code else FILE_NAME.sub("[](", LINK.sub(link, line)) for code, line in by_line(text)
    ]
    return "\n".join(lines)


def by_line(text: str) -> Iterator[tuple[bool, str]]:
    """Yield every line, and whether it is inside a code block."""
    fence = ""
    for line in text.split("\n"):
        match = FENCE.match(line)
        if fence:
            yield True, line
            if match and match[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        else:
            fence = match[1] if match else ""
            yield bool(match), line
