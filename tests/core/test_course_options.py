"""Commands on the task pages, in reports and in messages to students exist, with their options."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from dualml.common.words import LANGUAGES, load_messages
from dualml.course.labs import LABS, load_lab
from dualml.course.workspace import read_page, task_names, task_stem
from dualml.interface.cli.app import app

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
#: A command begins a line, is code, or follows a colon at the end: "dualml says" is none.
COMMAND = re.compile(
    r"(?:`|^[ \t]*|[:：] ?(?=dualml [a-z]+$))dualml +([a-z]+)([^`\n#|]*)", re.MULTILINE
)
OPTION = re.compile(r"(?<![-\w])--[a-z][-a-z]*")
#: Messages to students and graders, by file.
MESSAGES = (
    "course",
    "course_errors",
    "course_relations",
    "grading",
    *(f"course_{n}" for n in LABS),
)
PAGES = [(lab, page) for lab in LABS for page in (*task_names(load_lab(lab).files), "report")]


@cache
def options_of(command: str) -> frozenset[str]:
    """Return the options of a command; raise `KeyError` if there is none of this name."""
    found: Any = get_command(app)
    return frozenset(o for p in found.commands[command].params for o in p.opts)


def commands_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield each ``dualml COMMAND`` in a text, as the command and the rest of the line."""
    for match in COMMAND.finditer(text):
        yield match[1], match[2]


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(("lab", "page"), PAGES)
def test_commands_on_a_page_exist(lab: str, page: str, lang: str) -> None:
    text = read_page(lab, page, lang)
    found = list(commands_in(text))
    for command, rest in found:
        assert set(OPTION.findall(rest)) <= options_of(command), rest
    inside = {option for _, rest in found for option in OPTION.findall(rest)}
    assert set(OPTION.findall(text)) <= inside, "an option without its command"


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(("lab", "page"), PAGES)
def test_what_a_page_checks_or_runs_is_there(lab: str, page: str, lang: str) -> None:
    files = load_lab(lab).files
    known = {n for f in files for n in (f.name, f.task, task_stem(f), *f.targets)}
    known |= {r.name for f in files for r in f.requirements}
    for command, rest in commands_in(read_page(lab, page, lang)):
        words = [word for word in rest.split() if not word.startswith("-")]
        if command == "check":
            assert set(words) <= known, rest
        if command == "run":
            arms = tomllib.loads((EXPERIMENTS / f"{words[0]}.toml").read_text("utf-8"))["arms"]
            there = arms.keys() | {arm.get("group") for arm in arms.values()}
            assert set(words[1:]) <= there, rest


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("file", MESSAGES)
def test_options_in_messages_to_students_exist(file: str, lang: str) -> None:
    known = options_of("check") | options_of("grade") | options_of("new") | options_of("report")
    for key, text in load_messages(lang, file).items():
        assert set(OPTION.findall(text)) <= known, key


def test_an_option_that_does_not_exist_is_found() -> None:
    (found,) = commands_in("run `dualml check GD --nothing` first")
    assert found == ("check", " GD --nothing")
    assert OPTION.findall(found[1]) == ["--nothing"]
    assert "--nothing" not in options_of("check")
    assert OPTION.findall("a -- b, x--y, --arm lr") == ["--arm"]
