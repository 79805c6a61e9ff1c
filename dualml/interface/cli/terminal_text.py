"""Find out how wide the terminal is, and which styles and letters it shows."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

#: Columns where the terminal's width is unknown.
DEFAULT_WIDTH, MIN_WIDTH = 80, 24
#: Corners, edge and side of a frame, drawn, and for encodings without such letters.
DRAWN, ASCII = ("╭╮╰╯", "─", "│"), ("++++", "-", "|")
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
    """Return the columns of the terminal, at least `MIN_WIDTH`: by ``TERMINAL_WIDTH`` or
    ``COLUMNS`` in ``environ``, else those of the terminal itself, or `DEFAULT_WIDTH` where they are
    unknown."""
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
    """Return whether standard output shows styles: never if ``NO_COLOR`` is set in ``environ``,
    always if one of `FORCING` is, else on a terminal that is not ``dumb`` or ``unknown``."""
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name) for name in FORCING):
        return True
    return sys.stdout.isatty() and environ.get("TERM", "").lower() not in ("dumb", "unknown")
