"""Text for terminals: its width in columns, its lines, and what the terminal can show."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

#: Columns where the terminal's width is unknown.
DEFAULT_WIDTH, MIN_WIDTH = 80, 24
#: Corners, edge and side of a frame, drawn, and for encodings without such letters.
DRAWN, ASCII = ("╭╮╰╯", "─", "│"), ("++++", "-", "|")
#: Letters that must not begin a line, and that must not end one.
NO_START, NO_END = "，。、；：？！”’）》】〉」』…,.;:!?)]}", "“‘（《【〈「『([{"
#: Variables that ask for colours where standard output is no terminal.
FORCING = ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS")


@dataclass(frozen=True)
class Terminal:
    """The abilities of standard output.

    Attributes:
        width: columns.
        has_styles: whether it interprets the sequences of ECMA-48 for bold and colours.
        has_unicode: whether its encoding has the letters that draw a frame.
    """

    width: int
    has_styles: bool = False
    has_unicode: bool = True

    @property
    def frame(self) -> tuple[str, str, str]:
        """Corners, edge and side of a frame."""
        return DRAWN if self.has_unicode else ASCII

    def style(self, text: str, style: str) -> str:
        """Return the text in a style, the parameters of ``ESC [ … m``, if the terminal has any."""
        return f"\x1b[{style}m{text}\x1b[0m" if self.has_styles and text and style else text


def find_terminal() -> Terminal:
    """Return what standard output can show: its width by ``COLUMNS`` or the terminal itself, styles
    on a terminal unless ``NO_COLOR`` is set, or if ``FORCE_COLOR`` is."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower()
    return Terminal(terminal_width(os.environ), shows_styles(os.environ), "utf" in encoding)


def terminal_width(environ: Mapping[str, str]) -> int:
    """Return the columns of the terminal, at least `MIN_WIDTH`."""
    for name in ("TERMINAL_WIDTH", "COLUMNS"):
        if environ.get(name, "").isdecimal():
            return max(MIN_WIDTH, int(environ[name]))
    for descriptor in (0, 1, 2):  # with a pager, only one of them is the terminal
        try:
            return max(MIN_WIDTH, os.get_terminal_size(descriptor).columns or DEFAULT_WIDTH)
        except (OSError, ValueError):
            continue
    return DEFAULT_WIDTH


def shows_styles(environ: Mapping[str, str]) -> bool:
    """Return whether standard output shows styles."""
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name) for name in FORCING):
        return True
    return sys.stdout.isatty() and environ.get("TERM", "").lower() not in ("dumb", "unknown")


def display_width(text: str) -> int:
    """Return the columns that a text takes on a terminal: two for each wide letter, none for a
    combining one."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if is_wide(letter) else 1 for letter in text
    )


def is_wide(letter: str) -> bool:
    """Return whether a terminal shows a letter in two columns, as Chinese ones."""
    return letter > "\u10ff" and unicodedata.east_asian_width(letter) in "WF"


def wrap_text(text: str, width: int) -> list[str]:
    """Break a text into lines of at most ``width`` columns: at spaces and between wide letters, but
    not before a closing mark or after an opening one; a longer word is cut."""
    lines, line = list[str](), ""
    for piece in split_pieces(text):
        if display_width(line + piece.rstrip()) <= width:
            line += piece
            continue
        if line.strip():
            lines.append(line.rstrip())
        line = piece.lstrip()
        while display_width(line.rstrip()) > width:
            cut = count_fitting_letters(line, width)
            lines.append(line[:cut])
            line = line[cut:]
    return [*lines, line.rstrip()] if line.strip() or not lines else lines


def count_fitting_letters(text: str, width: int) -> int:
    """Return how many letters of a text fit into ``width`` columns; at least one."""
    count = 1
    while count < len(text) and display_width(text[: count + 1]) <= width:
        count += 1
    return count


def split_pieces(text: str) -> list[str]:
    """Split a text into the pieces between which a line may end; each keeps the spaces after it."""
    pieces = list[str]()
    for word in re.findall(r"\S+\s*|\s+", text):
        start = len(pieces)
        for letter in word:
            last = pieces[-1] if len(pieces) > start else ""
            glued = letter.isspace() or letter in NO_START or last[-1:] in tuple(NO_END)
            narrow = last and not is_wide(letter) and not is_wide(last[-1])
            if last and (glued or narrow):
                pieces[-1] += letter
            else:
                pieces.append(letter)
    return pieces
