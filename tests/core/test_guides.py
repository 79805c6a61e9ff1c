"""Start page, tutorials, how-tos, explanations, recipes: the same in both languages, without dead
links."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command import DOCS

from dualml.course.grading.rubric import load_rubric as read_rubric
from dualml.course.labs import load_lab
from dualml.experiment.load import load
from dualml.launch.hosts.file import read_hosts as read_hosts

PAGES = [
    DOCS / "start.md",
    *(
        p
        for f in ("tutorials", "howto", "explanation", "recipes")
        for p in sorted((DOCS / f).glob("*.md"))
    ),
]
ENGLISH = [page for page in PAGES if not page.name.endswith(".zh.md")]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
by_page = pytest.mark.parametrize("page", ENGLISH, ids=lambda page: page.stem)


def chinese(page: Path) -> Path:
    return page.with_suffix(".zh.md")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return language and text of each block that is not output."""
    found = BLOCK.findall(page.read_text("utf-8"))
    return [(kind, text) for _, kind, text in found if kind not in ("", "text")]


def bare(text: str) -> str:
    """Return code without comments, except a file name in the first line."""
    head, _, rest = text.partition("\n")
    named = re.fullmatch(r"# [\w./-]+\.\w+", head)
    body = re.sub(r"(?:^| +)# .*", "", rest if named else text, flags=re.M)
    return head + body if named else body


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, as GitHub makes them."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def dead(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    found = []
    for link in LINK.findall(text):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" not in link and not (
            target.exists() and (not anchor or anchor in anchors(target))
        ):
            found.append(link)
    return found


def languages(page: Path) -> list[str]:
    """Return the links that leave the page's language, except the one to its counterpart."""
    here = ".zh.md" in page.name
    links = [link.partition("#")[0] for link in LINK.findall(page.read_text("utf-8"))]
    links = [link for link in links if ":" not in link]  # elsewhere there may be one language
    pages = [link for link in links if link.endswith(".md") and "CONTRIBUTING" not in link]
    other = page.name.replace(".zh.md", ".md") if here else chinese(page).name
    return [link for link in pages if link.endswith(".zh.md") != here and link != other]


@by_page
def test_both_languages_show_the_same_code(page: Path) -> None:
    ours, theirs = blocks(page), blocks(chinese(page))
    assert [(kind, bare(text)) for kind, text in ours] == [(k, bare(text)) for k, text in theirs]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_link_is_dead_or_leaves_the_language(page: Path) -> None:
    assert dead(page) == []
    assert languages(page) == []


def test_dead_links_and_other_code_are_noticed(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# A b\n[x](a.md#a-b) [y](a.md#b) [z](c.md)\n```bash\nls  # all\n```\n", "utf-8"
    )
    chinese(page).write_text("```bash\nls  # 全部\n```\n[x](b.md)", "utf-8")
    assert dead(page) == ["a.md#b", "c.md"]
    assert languages(chinese(page)) == ["b.md"]
    (ours,), (theirs,) = blocks(page), blocks(chinese(page))
    assert bare(ours[1]) == bare(theirs[1]) != bare("ls -l\n")


def test_every_file_that_a_page_shows_can_be_read(tmp_path: Path) -> None:
    read: dict[str, Callable[[Path], object]] = {
        "hosts": read_hosts,
        "rubric": lambda path: read_rubric(path, load_lab("lab1")),
    }
    known = ("name = ", "[here]", "lab = ")
    own = [page for page in PAGES if page.parent.name != "recipes" and "strategy" not in page.name]
    for page in own:  # the others name components of their own
        for kind, text in blocks(page):
            if kind == "toml" and text.partition("\n")[2].startswith(known):
                path = tmp_path / text.splitlines()[0].removeprefix("# ")
                path.write_text(text, "utf-8")
                read.get(path.stem, lambda path: load(str(path), arms=["all"]))(path)
