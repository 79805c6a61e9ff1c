"""The pages of `docs/recipes`, as a reader follows them: their files, edits, commands and names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "docs" / "recipes"
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.M | re.S)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
#: Placeholders in the path of a file that the reader adds.
PLACEHOLDER = re.compile(r"(NAME|TASK|TOPIC|PHASE|LAB)(?![A-Z])")
#: What a command's own output makes, or what is no file of the repository.
ELSEWHERE = ("build/", "runs/", "./", "mnist/")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return language and text of every code block of a page."""
    return [(kind, text) for _, kind, text in BLOCK.findall(page.read_text("utf-8"))]


def follow(page: Path, tree: Path) -> list[str]:
    """Write the files of a recipe into a copy of the repository, make its edits there, and return
    the new files. Folders that the copy lacks are left out."""
    written = []
    for kind, text in blocks(page):
        if named := FILE.match(text):
            path = tree / named[1]
            if path.parent.is_dir():
                assert not path.exists(), f"{page.name}: {named[1]} exists already"
                path.write_text(text.removeprefix(named[0]), "utf-8")
                written.append(named[1])
        elif kind == "diff":
            edit(tree, text)
    return written


def edit(tree: Path, diff: str) -> None:
    """Apply a ``diff`` block: ``--- FILE``, then lines that begin with ``-``, ``+`` or a space."""
    head, *lines = diff.splitlines()
    path = tree / head.removeprefix("--- ")
    if not path.parent.is_dir():
        return
    old, new = ("\n".join(x[1:] for x in lines if x[:1] in signs) for signs in ("- ", "+ "))
    text = path.read_text("utf-8")
    assert text.count(old) == 1, f"{path.name}: {old!r} is there {text.count(old)} times"
    path.write_text(text.replace(old, new), "utf-8")


def commands(page: Path) -> list[list[str]]:
    """Return the words of every line in the page's shell blocks."""
    lines = "".join(text for kind, text in blocks(page) if kind == "bash").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def missing_paths(page: Path) -> list[str]:
    """Return the paths in a page's code that lead to no file of the repository. A placeholder
    stands for any name: the folder must hold such a file."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    paths = [span for span in SPAN.findall(text) if re.fullmatch(r"[\w./{},-]+", span)]
    paths += [word for words in commands(page) for word in words[1:] if "/" in word]
    return [path for path in paths if not path.startswith(ELSEWHERE) and not exists(path)]


def exists(path: str) -> bool:
    """Whether a path, or a module that is named without its folder, is in the repository; whatever
    is neither counts as there."""
    pattern = PLACEHOLDER.sub("*", path).rstrip("/")
    if "/" in path:
        return any(ROOT.glob(pattern))
    return not path.endswith(".py") or any(ROOT.rglob(pattern))


def unknown_names(page: Path, known: set[str]) -> list[str]:
    """Return the identifiers in a page's code spans that no source file has.

    Args:
        page: a page of the repository.
        known: all words of the source files.
    """
    text = page.read_text("utf-8")
    own = set(re.findall(r"\w+", " ".join(code for _, code in blocks(page))))
    spans = SPAN.findall(BLOCK.sub("", text))
    names = [span.removesuffix("(…)") for span in spans if is_identifier(span.removesuffix("(…)"))]
    return [
        name
        for name in names
        if not set(name.split(".")) <= known | own and not PLACEHOLDER.search(name)
    ]


def is_identifier(span: str) -> bool:
    """Whether a code span is a dotted name with an underscore, a dot or a capital inside."""
    dotted = re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", span)
    return bool(dotted) and not span.endswith("_") and bool(re.search(r"[a-z][A-Z_.]", span))


def words_of(folders: tuple[str, ...]) -> Iterator[str]:
    """Yield the words of all Python and TOML files of these folders, and the files' names."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".toml"):
                yield path.stem
                yield from re.findall(r"\w+", path.read_text("utf-8"))
