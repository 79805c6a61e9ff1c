"""Errors that a user can act on: one line that names the problem, the numbers and the remedy."""

from __future__ import annotations

import contextlib
import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator

#: Characters that need a closer look: everything but printable ASCII.
ODD = re.compile(r"[^ -~]")


class UserError(ValueError):
    """Raised for wrong usage or invalid input; the command line prints one line and exits with
    2."""


class TrialError(RuntimeError):
    """Raised when a trial cannot continue, for example because its loss is not finite."""


class CommunicationError(TrialError):
    """Raised when ranks cannot communicate: one is missing, late, or asks for something else."""


class Unsupported(RuntimeError):
    """Raised when a backend or device does not support what a trial asks for; the text says why."""


@contextlib.contextmanager
def prefix_errors(place: str) -> Iterator[None]:
    """Add ``place`` and a colon before the text of a `UserError` that the block raises, as in
    ``arms.ring: ...``."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


def did_you_mean(
    word: str,
    known: Iterable[str],
    *,
    max_names: int = 1,
    cutoff: float = 0.5,
    fallback: str | None = None,
) -> str:
    """Return a hint such as ``; did you mean 'lab1'?``, or the list of known words if none is
    close.

    Args:
        max_names: how many close words to name.
        cutoff: minimum similarity, from 0 to 1.
        fallback: text to return instead of the list.
    """
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=max_names, cutoff=cutoff)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    return f"; known: {', '.join(names)}" if fallback is None else fallback


class NotAFile(UserError, OSError):
    """Raised when a path leads to a pipe, device, socket or link instead of a regular file."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.strerror = text


def escape_unprintable(text: str, keep: str = "") -> str:
    """Escape characters that a terminal would interpret as commands, as ``\\x1b``.

    Line breaks, control characters, unpaired surrogates and marks that change the direction of
    writing are escaped.

    Args:
        keep: characters to leave unchanged.
    """
    return text if text.isprintable() else ODD.sub(lambda match: _escape_char(match[0], keep), text)


def _escape_char(letter: str, keep: str) -> str:
    """Return a character unchanged if it is printable or in ``keep``, otherwise its escape."""
    if letter in keep or letter.isprintable() or unicodedata.category(letter) == "Zs":
        return letter
    return letter.encode("unicode_escape").decode()
