"""Say what a comparison is doing, every few seconds while it takes long."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: Seconds between two lines.
LINE_S = 5.0


@dataclass
class Activity:
    """The phase that a comparison is in, and how many patches it has tried.

    Attributes:
        phase: ``run``, ``search`` or ``patch``; keys of messages.
        trials: number of patches that were begun.
    """

    phase: str = "run"
    trials: int = 0


#: The activity of the comparison of this process; there is one at a time.
ACTIVITY = Activity()


def begin_phase(phase: str, trials: int = 0) -> None:
    """Set what the comparison of this process does from now on.

    Args:
        phase: ``run``, ``search`` or ``patch``.
        trials: number of patches that were begun.
    """
    ACTIVITY.phase, ACTIVITY.trials = phase, trials


@contextlib.contextmanager
def tell_activity(
    tell: Callable[[Activity, float], object], seconds: float = LINE_S
) -> Iterator[None]:
    """Set the phase to ``run``; within the context, call ``tell`` every ``seconds`` seconds from
    another thread, with the `Activity` of this process and the seconds since the context began."""
    begin_phase("run")
    began, over = time.monotonic(), threading.Event()

    def tell_regularly() -> None:
        while not over.wait(seconds):
            tell(ACTIVITY, time.monotonic() - began)

    teller = threading.Thread(target=tell_regularly, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
