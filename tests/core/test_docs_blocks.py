"""Code in the documentation parses, its commands exist, and both languages agree."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer import Context, TyperException
from typer.main import get_command

from dualml.interface.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    path
    for pattern in ("README*.md", "CONTRIBUTING*.md", "docs/**/*.md", "experiments/*.md")
    for path in sorted(ROOT.glob(pattern))
]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)
#: The command that `docs/recipes/command.md` adds; test_contributing.py runs it.
ADDED_COMMAND = "seeds"
#: End of a shell command.
ENDS = {"|", "||", "&", "&&", ">", ">>", "<", ";", "·"}
#: Parts that depend on the language: comments, texts, the choice of the language.
SPOKEN = re.compile(r"""# .*$| --lang zh|, lang="zh"|"[^"\n]*"|'[^'\n]*'|[^\x00-\x7f]+""", re.M)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


every_page = pytest.mark.parametrize("page", PAGES, ids=name)


def blocks(text: str, *kinds: str) -> list[str]:
    """Return the code blocks of the given kinds, dedented."""
    return [
        re.sub(rf"^{indent}", "", body, flags=re.M)
        for indent, kind, body in BLOCK.findall(text)
        if kind in kinds
    ]


def commands(text: str) -> Iterator[list[str]]:
    """Return the words of every ``dualml …`` in shell blocks, up to two spaces; ``[…]`` may be
    omitted, ``…`` stands for more."""
    for block in blocks(text, "bash", ""):
        for line in re.sub(r"\s*\\\n\s*", " ", block).splitlines():
            match = re.match(r"(?:\$ )?(?:\w+=\S+ )*dualml (.*?)(?:\s{2}|$)", line)
            if match:
                words = shlex.split(match[1].replace("[-", "-").replace("] ", " "), comments=True)
                ends = [i for i, word in enumerate(words) if word in ENDS] + [len(words)]
                yield [
                    word.rstrip("]") if "[" not in word else word
                    for word in words[: ends[0]]
                    if word not in ("…", "...")
                ]


@cache
def cli_command() -> Any:
    return get_command(app)


def parse(words: list[str]) -> None:
    """Parse a command line as ``dualml`` does, without running it; some options act when they are
    parsed.

    Raises:
        KeyError: an unknown command.
        TyperException: an unknown option, one without its value, or an argument too many.
    """
    command, group = cli_command(), True
    while group:
        context = Context(command, **command.context_settings)
        options, rest, _ = command.make_parser(context).parse_args(list(words))
        group = hasattr(command, "commands")
        if group and not rest and options:  # --version, --help
            return
        if group:
            command = command.commands[rest[0].partition("|")[0] if rest else ""]
            words = rest[1:]
    if rest and not context.allow_extra_args:
        raise TyperException(f"unexpected {rest}")


@every_page
def test_python_and_toml_parse(page: Path) -> None:
    text = page.read_text("utf-8")
    for block in blocks(text, "python"):
        ast.parse(block)
    for block in blocks(text, "toml"):
        tomllib.loads(block)


@every_page
def test_commands_exist_with_their_options(page: Path) -> None:
    for words in commands(page.read_text("utf-8")):
        if words[0] != ADDED_COMMAND:
            parse(words)


@pytest.mark.parametrize("page", [page for page in PAGES if ".zh." in page.name], ids=name)
def test_code_is_the_same_in_both_languages(page: Path) -> None:
    english = next(
        one
        for suffix in (".md", ".en.md")
        if (one := page.with_name(page.name.replace(".zh.md", suffix))).exists()
    )

    def code(path: Path) -> list[list[str]]:
        found = blocks(path.read_text("utf-8"), "python", "toml", "bash", "diff")
        return [SPOKEN.sub("", block).split() for block in found]

    assert code(page) == code(english)


@pytest.mark.parametrize(
    "line",
    [
        "runn lab1",
        "run lab1 --quik",
        "partition a b",
        "data",
        "checkpoint shw x",
        "diffs --topic",
    ],
)
def test_a_wrong_command_is_noticed(line: str) -> None:
    with pytest.raises((KeyError, TyperException)):
        parse(line.split())


def test_blocks_are_found() -> None:
    text = "```bash\ndualml run lab1 \\\n  --quick  # all\n```\n- x\n\n  ```toml\n  a = 1\n  ```\n"
    assert list(commands(text)) == [["run", "lab1", "--quick"]]
    assert blocks(text, "toml") == ["a = 1\n"]
    assert sum(len(list(commands(page.read_text("utf-8")))) for page in PAGES) > 150
