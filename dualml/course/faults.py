"""Faults of the machine that judges: they are no student's, and no grade."""

from __future__ import annotations

import errno

from dualml.course.exercise import NotJudged

#: Errors of the system, by what the machine has run out of; words: ``grade.machine.NAME``.
KINDS = {
    "disk": (errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    "files": (errno.EMFILE, errno.ENFILE),
    "memory": (errno.ENOMEM,),
    "processes": (errno.EAGAIN,),
    "device": (errno.EIO,),
}


def kind_of_fault(error: BaseException) -> str:
    """Return which fault of the machine an exception is; an empty text where it is none.

    Returns:
        a key of `KINDS`, or ``other``: the exception's text says what.
    """
    if isinstance(error, NotJudged):
        return "other"
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError):
        return next((name for name, numbers in KINDS.items() if error.errno in numbers), "")
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "processes"
    return ""
