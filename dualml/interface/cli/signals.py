"""Handle Ctrl-C, SIGTERM, and the SIGHUP of a terminal that is closed."""

from __future__ import annotations

import signal
from typing import Any

ENDINGS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_interrupted = False


def interrupt_on_signals() -> None:
    """Make SIGINT, SIGTERM and SIGHUP raise `KeyboardInterrupt`, except one that is ignored, as by
    ``nohup``."""
    for sign in ENDINGS:
        if signal.getsignal(sign) != signal.SIG_IGN:
            signal.signal(sign, raise_interrupt)


def raise_interrupt(number: int, frame: Any) -> None:
    """Raise `KeyboardInterrupt`, and remember it for `is_interrupted`."""
    global _interrupted
    _interrupted = True  # no `threading.Event`: a second signal inside its `set` would deadlock
    raise KeyboardInterrupt


def is_interrupted() -> bool:
    """Return whether `raise_interrupt` has been called: SIGINT, SIGTERM or SIGHUP has arrived."""
    return _interrupted


def ignore_signals() -> None:
    """Ignore SIGINT, SIGTERM and SIGHUP from now on."""
    for sign in ENDINGS:
        signal.signal(sign, signal.SIG_IGN)
