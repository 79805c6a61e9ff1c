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
    """Note what the comparison does from now on."""
    ACTIVITY.phase, ACTIVITY.trials = phase, trials


@contextlib.contextmanager
def tell_activity(
    tell: Callable[[Activity, float], object], seconds: float = LINE_S
) -> Iterator[None]:
    """Call ``tell`` inside the block every so many seconds, with what the comparison is doing and
    the seconds since the block began; from another thread."""
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
