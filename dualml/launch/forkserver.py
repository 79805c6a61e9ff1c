"""Fork server from which workers start quickly: ``python -m dualml.launch.forkserver FD CORES
MODULE …``.

It imports the modules once, on CORES cores (0: all), since frameworks count the cores they find,
and then waits without computing for requests on the Unix socket FD. For each request it forks a
process that continues as ``python -m …`` would. Importing a framework takes more than a second of
processor time, a fork takes milliseconds; and each worker is a process of its own, untouched by
other trials.

A request is a JSON list of words (module, arguments) with three file descriptors: standard input,
output and error. The answers are ``{"pid": …}``, sent by the new process once it leads a session of
its own, and ``{"pid": …, "code": …}`` when it has ended. The server ends when the owner closes its
end of the socket, and its processes with it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from typing import Any

from dualml.common.machine import pin_cores
from dualml.launch.child import on_death_of_parent

MAX_REQUEST_BYTES = 64 * 1024  # maximum bytes of a request
#: Modules that workers of every backend import.
CORE = tuple(
    f"dualml.{name}"
    for name in (
        "runner.worker.trial",
        "runner.worker.replay",
        "runner.worker.join",
        "runner.worker.collectives",
        "experiment.store.plan",
    )
)


def main() -> None:
    """Import the modules that the command line names, on its number of cores, then serve requests
    until the owner is gone; a process forked for a request continues as its module."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides
    pin_cores(0, int(sys.argv[2]))
    for module in (*sys.argv[3:], *CORE):
        with contextlib.suppress(ImportError):  # the worker will say what is missing
            importlib.import_module(module)
    gc.freeze()  # none of it becomes garbage, so no worker's collector needs to scan it
    request = serve_requests(channel)
    if request is not None:  # in the new process
        become_module(*request, channel)


def serve_requests(channel: socket.socket) -> tuple[list[str], list[int]] | None:
    """Fork for every request, and report processes that end, until the owner is gone: then return
    None. In each new process return its request: the words, and three file descriptors."""
    awake, alarm = os.pipe()
    for end in (awake, alarm):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(alarm)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting = selectors.DefaultSelector()
    waiting.register(channel, selectors.EVENT_READ)
    waiting.register(awake, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fd == awake:
                os.read(awake, 4096)
                report_exits(channel)
                continue
            message, descriptors, *_ = socket.recv_fds(channel, MAX_REQUEST_BYTES, 3)
            if not message:
                return None
            if not os.fork():
                signal.set_wakeup_fd(-1)
                waiting.close()
                os.close(awake)
                os.close(alarm)
                return json.loads(message), descriptors
            for descriptor in descriptors:
                os.close(descriptor)


def report_exits(channel: socket.socket) -> None:
    """Report to the owner the pid and exit code of every process that has ended since the last
    call; does not wait."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            send_answer(channel, pid=ended[0], code=os.waitstatus_to_exitcode(ended[1]))


def send_answer(channel: socket.socket, **message: Any) -> None:
    """Send an answer to the owner; errors are ignored, because the owner may be gone."""
    with contextlib.suppress(OSError):
        channel.send(json.dumps(message).encode())


def become_module(words: list[str], descriptors: list[int], channel: socket.socket) -> None:
    """Continue as ``python -m WORDS`` in a session of its own, with ``descriptors`` as standard
    input, output and error; first report the pid to the owner, over ``channel``."""
    os.setsid()
    on_death_of_parent(signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    send_answer(channel, pid=os.getpid())
    channel.close()
    sys.argv = words
    sys.orig_argv = [sys.executable, "-m", *words]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
