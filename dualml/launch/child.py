"""The child's side of a supervised process: its channel to the owner, its lifeline, its pulse, and
its result.

A child sends JSON lines to its owner on the standard output with which it was started; everything
the framework prints goes to standard error, which the owner keeps as the log. Its standard input is
a lifeline: when it closes, the owner is gone and the child ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

from dualml.common.errors import TrialError, Unsupported, UserError
from dualml.common.json_types import JsonObject

PULSE_S = 1.0
#: Class name of the error of a rank that waited in vain for another one.
SECONDARY = "CommunicationError"


def open_channel() -> Any:
    """Return the pipe to the owner, a copy of standard output, and redirect file descriptor 1 to
    standard error, which is the log."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return channel


def end_with_parent() -> None:
    """Start to watch for the end of the owner, which closes standard input; then end this process
    at once. On Linux it ends even while it is stopped or busy. Does not wait."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os._exit(70)

    threading.Thread(target=wait, daemon=True).start()
    on_death_of_parent(signal.SIGKILL)


def on_death_of_parent(number: signal.Signals) -> None:
    """Ask the system to send this process the signal when its parent dies; Linux only, no effect
    elsewhere."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG


def describe_exit(code: int) -> str:
    """Return the description of the exit code, 0 included, of a process that sent no result;
    negative codes are signals."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"was ended by {name}"
    return f"ended with exit code {code} without a result"


class Emitter:
    """Sends events to the owner: a call with the fields of an event as keywords sends it as JSON.

    So that a fast loop is not slowed down, events of one phase within 0.1 s of the last one are
    dropped, except one whose ``done`` equals its ``total``, and those that have neither.

    Attributes:
        result: further fields of the result that `report_to_owner` sends at the end.
    """

    def __init__(self, channel: Any) -> None:
        self.channel, self.last, self.phase = channel, 0.0, ""
        self.result: JsonObject = {}

    def __call__(self, **event: Any) -> None:
        now = time.monotonic()
        final = event.get("done") == event.get("total")
        if now - self.last < 0.1 and not final and event.get("phase") == self.phase:
            return
        self.last, self.phase = now, str(event.get("phase"))
        self.send(event)

    def send(self, event: JsonObject) -> None:
        """Write an event to the channel as one line of JSON, without the limit on their rate."""
        self.channel.write(json.dumps(event, default=str) + "\n")

    def start_pulse(self, comm: Any) -> None:
        """Send the owner a pulse every second from now on: how many collectives this rank has
        entered, and which one it is waiting in (``inside``; empty for none). The owner finds the
        rank that blocks the others by it."""

        def beat() -> None:
            while True:
                time.sleep(PULSE_S)
                with contextlib.suppress(OSError, ValueError):
                    self.send({"event": "pulse", "calls": comm.calls, "inside": comm.inside})

        threading.Thread(target=beat, daemon=True).start()


def failure_reason(error: BaseException) -> tuple[str, str]:
    """Return the status (``unsupported`` or ``failed``) and the reason for the exception that ended
    the work."""
    if isinstance(error, Unsupported):
        return "unsupported", str(error)
    if isinstance(error, TrialError | UserError):
        return "failed", str(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "failed", f"no space left on the device for {error.filename or 'what it writes'}"
    if isinstance(error, MemoryError):
        return "failed", "out of memory; use a smaller batch, chunk or model"
    first = (str(error).strip().splitlines() or [""])[0]
    return "failed", f"{type(error).__name__}: {first}"


@contextlib.contextmanager
def report_to_owner(channel: Any = None) -> Iterator[Emitter]:
    """Provide an `Emitter` for the work of this process; after the block, send ``emitter.result``,
    or the reason of the failure, to the owner, and exit the process.

    Code behind the block never runs; the exit code is 0, or 1 after an error.

    Args:
        channel: pipe to the owner; None for the standard output. With a channel the caller must see
            to it that this process ends when the owner does.
    """
    emit = Emitter(channel or open_channel())
    if channel is None:
        end_with_parent()
    code = 0
    try:
        yield emit
        result = {"status": "ok", "reason": None, **emit.result}
    except BaseException as error:
        with contextlib.suppress(OSError):  # the log may lie on a full disk
            traceback.print_exc()
        status, reason = failure_reason(error)
        result, code = {"status": status, "reason": reason, "kind": type(error).__name__}, 1
    with contextlib.suppress(OSError):
        emit.send({"event": "result", **result})
        emit.channel.flush()
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)  # the frameworks' own teardown can hang or abort after the work is done
