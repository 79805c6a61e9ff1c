"""The page of ``--help``: nothing is lost at any width, and printing it imports nothing heavy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer import Context
from typer.main import get_command

from dualml.common.text_width import display_width, wrap_text
from dualml.common.words import LANGUAGES
from dualml.interface.cli.app import app
from dualml.interface.cli.help import HELP, localise
from dualml.interface.cli.help_page import format_page
from dualml.interface.cli.terminal_text import Terminal, shows_styles, terminal_width

#: Libraries that no page of help may import, nor `list` and `--version`.
HEAVY = {"rich", "pygments", "markdown_it", "pydantic", "pydantic_core", "numpy", "yaml", "attr"}
#: The packages of dualml that every command may import before it knows which command it is.
START = (
    "dualml.common",
    "dualml.interface.cli",
    "dualml.interface.schemas",
    "dualml.launch.local_rank",
)


def walk_commands(command: Any, context: Context) -> Iterator[tuple[Any, Context]]:
    yield command, context
    for name, sub in getattr(command, "commands", {}).items():
        yield from walk_commands(sub, Context(sub, info_name=name, parent=context))


def make_root(lang: str) -> Any:
    command = get_command(app)
    localise(command, lang)
    return command


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("width", [32, 60, 80, 132])
def test_no_page_is_too_wide_or_loses_a_text(lang: str, width: int) -> None:
    root = make_root(lang)
    top = Context(root, info_name="dualml", help_option_names=[*HELP])
    pages = 0
    for command, context in walk_commands(root, top):
        lines = list(format_page(command, context, Terminal(width)))
        assert max(map(display_width, lines)) <= width, context.command_path
        shown = re.sub(r"[│\s]", "", "".join(lines))
        texts = [command.help, *(parameter.help for parameter in command.get_params(context))]
        texts += [about for _, about in getattr(command, "describe_commands", list)()]
        for text in texts:
            squeezed = re.sub(r"\s", "", text)
            assert squeezed in shown or width < 60, (context.command_path, text)
        pages += 1
    assert pages > 40


def test_frames_are_straight() -> None:
    root = make_root("zh")
    lines = list(format_page(root, Context(root, info_name="dualml"), Terminal(80)))
    framed = [line for line in lines if line[:1] in tuple("╭│╰")]
    assert len(framed) > 40
    assert {display_width(line) for line in framed} == {80}


def test_narrow_pages_put_texts_below_the_names() -> None:
    root = make_root("en")
    command = root.commands["run"]
    context = Context(command, info_name="run", help_option_names=[*HELP])
    assert "│ --quick  " in "\n".join(format_page(command, context, Terminal(100)))
    narrow = list(format_page(command, context, Terminal(50)))
    at = next(i for i, line in enumerate(narrow) if line.startswith("│ --quick"))
    assert narrow[at].strip("│ ") == "--quick"
    assert narrow[at + 1].startswith("│     ")


def test_a_long_value_moves_its_own_text_only() -> None:
    root = make_root("en")
    command = root.commands["submit"]
    lines = list(format_page(command, Context(command, info_name="submit"), Terminal(80)))
    at = next(i for i, line in enumerate(lines) if line.startswith("│ --on"))
    assert lines[at].strip("│ ") == "--on  local|slurm|compose|kubernetes"
    column = lines[at + 1].index("local (the default)")
    beside = next(line for line in lines if line.startswith("│ --gpus "))
    assert beside[column:].startswith("GPUs of this machine")


def test_an_encoding_without_frames_gets_ascii() -> None:
    root = make_root("en")
    page = "\n".join(format_page(root, Context(root), Terminal(80, has_unicode=False)))
    assert "+- Options ---" in page
    assert "╭" not in page


def test_styles_change_no_letter() -> None:
    root = make_root("en")
    command = root.commands["new"]
    plain, styled = (
        list(format_page(command, Context(command, info_name="new"), Terminal(80, styles)))
        for styles in (False, True)
    )
    assert any("\x1b[1;36m--backend\x1b[0m" in line for line in styled)
    assert any("[required]" in line for line in plain)
    assert [re.sub(r"\x1b\[[\d;]*m", "", line) for line in styled] == plain


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 7, ["one two", "three"]),
        ("unbreakable", 5, ["unbre", "akabl", "e"]),
        ("一二三四五", 4, ["一二", "三四", "五"]),
        ("一二，三", 4, ["一", "二，", "三"]),
        ("用 rank 启动（可选）", 10, ["用 rank 启", "动（可选）"]),
        ("", 5, [""]),
    ],
)
def test_lines_end_where_a_reader_expects(text: str, width: int, lines: list[str]) -> None:
    assert wrap_text(text, width) == lines


def test_the_environment_decides_width_and_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    assert terminal_width({"COLUMNS": "61"}) == 61
    assert terminal_width({"COLUMNS": "1"}) == 24
    assert shows_styles({"FORCE_COLOR": "1"})
    assert not shows_styles({"FORCE_COLOR": "1", "NO_COLOR": "1"})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert shows_styles({"TERM": "xterm"})
    assert not shows_styles({"TERM": "dumb"})


def modules_of(*words: str, **variables: str) -> set[str]:
    """Return the modules that a command has imported when it ends."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dualml", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **variables},
    )
    assert done.returncode in (0, 2), done.stderr
    lines = done.stderr.splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


@pytest.mark.parametrize(
    ("words", "command_modules"),
    [
        ((), set()),
        (("--help",), set()),
        (("--help", "--lang", "zh"), set()),
        (("--version",), set()),
        (("run", "--help"), {"run", "limits", "separator"}),
        (("--lang", "zh", "list"), {"experiments", "limits"}),
    ],
)
def test_a_command_imports_no_other_and_nothing_heavy(
    words: tuple[str, ...], command_modules: set[str]
) -> None:
    loaded = modules_of(*words)
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()
    package = "dualml.interface.cli."
    files = {name.removeprefix(package) for name in loaded if name.startswith(package)}
    shared = files - command_modules
    commands = {place.partition(":")[0] for place in app_modules()}
    assert shared & commands == set()
    if not command_modules:
        core = {name for name in loaded if name.startswith("dualml.") and name.count(".") > 1}
        assert {name for name in core if not name.startswith(START)} == set()


def app_modules() -> tuple[str, ...]:
    from dualml.interface.cli.app import COMMANDS, GROUPS

    return (*COMMANDS, *GROUPS)


@pytest.mark.parametrize("words", ["dualml ", "dualml ru", "dualml run --ba"])
def test_completion_imports_nothing_heavy(words: str) -> None:
    loaded = modules_of(
        _DUALML_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(words.count(" ")),
    )
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()
