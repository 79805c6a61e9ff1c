"""Errors a user can act on: one clear line that names the problem, the numbers and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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


def plain(text: str) -> str:
    """Without line breaks and other letters that cannot be printed."""
    return text if text.isprintable() else repr(text)[1:-1]
