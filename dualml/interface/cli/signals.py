"""Handle signals like Ctrl-C: SIGTERM of the system, and SIGHUP of a terminal that is closed."""

from __future__ import annotations

import os
import signal
from typing import Any

ENDINGS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
#: Standard output and error, where they are terminals.
TERMINALS = [stream for stream in (1, 2) if os.isatty(stream)]


def interrupt_on_signals() -> None:
    """Make these signals raise `KeyboardInterrupt`, except one that is ignored, as by ``nohup``."""
    for sign in ENDINGS:
        if signal.getsignal(sign) != signal.SIG_IGN:
            signal.signal(sign, raise_interrupt)


def raise_interrupt(number: int, frame: Any) -> None:
    """Raise `KeyboardInterrupt`; redirect closed terminals to the null device first."""
    for stream in TERMINALS:
        if not os.isatty(stream):  # it was closed: writing to it would fail
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    raise KeyboardInterrupt


def ignore_signals() -> None:
    """Ignore these signals and Ctrl-C from now on."""
    for sign in (signal.SIGINT, *ENDINGS):
        signal.signal(sign, signal.SIG_IGN)
