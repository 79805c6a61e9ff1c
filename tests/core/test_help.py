"""Every command and option has help texts in both languages, and no text is unused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer import Context
from typer.main import get_command

from dualml.common.errors import UserError
from dualml.common.words import LANGUAGES, load_messages
from dualml.interface.cli.app import app
from dualml.interface.cli.help import localise, requested_language

CHINESE = re.compile(r"[\u4e00-\u9fff]")


def help_texts(command: Any) -> Iterator[str]:
    yield command.help
    for parameter in command.get_params(Context(command)):
        yield parameter.help
    for sub in getattr(command, "commands", {}).values():
        yield from help_texts(sub)


def panel_names(command: Any) -> Iterator[str]:
    yield from (p.rich_help_panel for p in command.params if p.rich_help_panel)
    for sub in getattr(command, "commands", {}).values():
        yield from panel_names(sub)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_command_and_option_has_its_text(lang: str) -> None:
    command = get_command(app)
    localise(command, lang)
    texts = list(help_texts(command))
    assert len(texts) > 120
    names_only = re.compile(r"[\w:@/.\[\]-]+([,、或和 ]+[\w:@/.\[\]-]+)*[.。]?")
    for text in texts:
        assert text.endswith((".", "。", "…")), text
        if lang == "en":
            assert not CHINESE.search(text), text
        else:
            assert CHINESE.search(text) or names_only.fullmatch(text), text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_no_text_is_left_over(lang: str) -> None:
    command = get_command(app)
    localise(command, lang)
    shown = {*help_texts(command), command.epilog}
    kept = {
        "help.arguments",
        "help.options",
        "help.commands",
        "help.default",
        "help.required",
        "help.variable",
        "help.usage",
        *(f"help.panel.{name}" for name in panel_names(command)),
    }
    left = {
        k for k, text in load_messages(lang, "help").items() if k not in kept and text not in shown
    }
    assert left == set()


@pytest.mark.parametrize(
    ("arguments", "variable", "lang"),
    [
        ([], "", "en"),
        ([], "zh", "zh"),
        (["run", "--lang", "zh"], "", "zh"),
        (["--lang=zh", "--help"], "en", "zh"),
        (["--lang", "en"], "zh", "en"),
        (["--lang"], "", "en"),
        (["--lang", "fr"], "", "en"),
    ],
)
def test_language_of_a_command_line(
    arguments: list[str], variable: str, lang: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALML_LANG", variable)
    assert requested_language(arguments) == lang


@pytest.mark.parametrize("command", ["report x", "parity x", "list", "simulate", "partition"])
def test_another_language_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="--lang must be en or zh; received 'fr'"):
        get_command(app).main([*command.split(), "--lang", "fr"], standalone_mode=False)
