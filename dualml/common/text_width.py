"""Columns of texts, wide Chinese letters included, and texts broken into lines."""

from __future__ import annotations

import re
import unicodedata

#: Letters that must not begin a line, and that must not end one.
NO_START, NO_END = "，。、；：？！”’）》】〉」』…,.;:!?)]}", "“‘（《【〈「『([{"


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
    not before a closing mark or after an opening one; a longer word is cut. An empty text is one
    empty line."""
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
