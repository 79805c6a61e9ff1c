"""Dualml commands on a terminal of their own, which tests read, stall and close."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Any

from forked import Forked


class OnTerminal:
    """A dualml command in its own session and on its own terminal; leaving the block kills its
    process group.

    Args:
        words: arguments of the command.
        hangup: what SIGHUP does, whatever this process has inherited; ``SIG_IGN`` as by ``nohup``.
        cwd: its current folder.
    """

    def __init__(
        self, *words: object, hangup: Any = signal.SIG_DFL, cwd: Path | None = None
    ) -> None:
        self.master, self.slave = pty.openpty()
        self.shown = b""

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, hangup)

        self.process = Forked(
            [sys.executable, "-m", "dualml", *map(str, words)],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            cwd=cwd or tempfile.gettempdir(),
            env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
            preexec_fn=take_terminal,
        )

    def __enter__(self) -> OnTerminal:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.close()
        self.process.wait(10)

    def read_until(self, text: bytes, times: int = 1, seconds: float = 60) -> None:
        """Read into ``shown`` until it contains ``text`` so many times."""
        deadline = time.monotonic() + seconds
        while self.shown.count(text) < times:
            if not self.read(0.5):
                assert self.process.poll() is None, self.shown
            assert time.monotonic() < deadline, self.shown

    def read(self, seconds: float) -> bool:
        """Read once into ``shown``; return whether something came within ``seconds``."""
        came = bool(select.select([self.master], [], [], seconds)[0])
        if came:
            self.shown += os.read(self.master, 2**16)
        return came

    def stall(self) -> None:
        """Fill the terminal, which nobody reads from now on."""
        terminal = os.open(os.ttyname(self.slave), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(terminal, b"x" * 256)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(terminal, b"x")
        os.close(terminal)

    def close(self) -> None:
        """Close the terminal, as its window or connection does."""
        for end in (self.slave, self.master):
            if end >= 0:
                os.close(end)
        self.slave = self.master = -1

    def wait(self, seconds: float) -> int:
        """Wait for the command's end, read what is left, and return the exit code."""
        code = self.process.wait(seconds)
        while self.master >= 0 and self.read(0):
            pass
        return code
