"""Classification of faults of the judging machine, which must not affect grades."""

from __future__ import annotations

import errno

from dualml.course.exercise import MachineFault

#: System errors by the exhausted resource; the message is ``grade.machine.NAME``.
KINDS = {
    "disk": (errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    "files": (errno.EMFILE, errno.ENFILE),
    "memory": (errno.ENOMEM,),
    "processes": (errno.EAGAIN,),
    "device": (errno.EIO,),
}


def kind_of_fault(error: BaseException) -> str:
    """Return the kind of machine fault that an exception is; an empty text if it is none.

    Returns:
        a key of `KINDS`, or ``other``, whose exception text names the fault.
    """
    if isinstance(error, MachineFault):
        return "other"
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError):
        return next((name for name, numbers in KINDS.items() if error.errno in numbers), "")
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "processes"
    return ""
