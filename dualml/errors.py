"""Errors a user can act on: one clear line that names the problem, the numbers and the remedy."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable

#: What is looked at one by one: all but printable ASCII.
ODD = re.compile(r"[^ -~]")


class UserError(ValueError):
    """Wrong usage or input. The command line prints it as one line and exits with 2."""


class TrialError(RuntimeError):
    """A trial cannot go on (a loss that is not finite, an optimizer that moves nothing)."""


class CommunicationError(TrialError):
    """Ranks could not talk: one is missing, too late, or asked for something else."""


class Unsupported(RuntimeError):
    """This backend or device cannot do what the trial asks; the text is the reason."""


def nearest(
    word: str,
    known: Iterable[str],
    *,
    most: int = 1,
    cutoff: float = 0.5,
    otherwise: str | None = None,
) -> str:
    """`"; did you mean 'lab1'?"` when known words are close to ``word``, else the list of them.

    Args:
        most: how many are named.
        cutoff: how alike they are at least, from 0 to 1.
        otherwise: said instead of the list.
    """
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=most, cutoff=cutoff)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    return f"; known: {', '.join(names)}" if otherwise is None else otherwise


class NotAFile(UserError, OSError):
    """A path leads to a pipe, a device, a socket or a link where a regular file is expected."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.strerror = text


def plain(text: str, keep: str = "") -> str:
    """Return a text that no terminal takes as a command: line breaks, control characters, unpaired
    surrogates and marks that change the direction of writing become escapes, as ``\\x1b``.

    Args:
        keep: characters that stay as they are.
    """
    return text if text.isprintable() else ODD.sub(lambda match: _shown(match[0], keep), text)


def _shown(letter: str, keep: str) -> str:
    if letter in keep or letter.isprintable() or unicodedata.category(letter) == "Zs":
        return letter
    return letter.encode("unicode_escape").decode()
