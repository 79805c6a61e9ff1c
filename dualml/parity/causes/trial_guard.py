"""Keep a search going although some of its trials kill the process.

Kernels do not check everything: with sizes that no user would pass, one may read memory that is not
there, which kills the process at once, or write into memory of others, which kills it later, in a
trial that has done nothing wrong. The search therefore notes what it tries in a file that outlives
it. Changes of a kind that was tried before the death are suspects: in the next search a process of
their own tries each of them first. If the search dies again, they are refused.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dualml.common.files import read_json, write_json
from dualml.launch.child import on_death_of_parent
from dualml.parity.causes.mutation import Mutation

#: Files of a search: the kinds of its latest trials, what the guard does, and the changes that
#: killed a process of their own, one on each line.
TRIALS, GUARD, KILLED = "trials.bin", "guard.json", "killed.txt"
#: Number of kinds that the file of trials has, and maximum bytes of each.
SLOTS, SLOT_BYTES = 128, 96
#: Longest time that a suspect has in a process of its own, in seconds.
SUSPECT_S = 10.0
#: Sizes of blocks, in bytes, whose allocation finds memory that was written over.
BLOCK_BYTES = range(16, 4096, 48)


class RefusedTrialError(Exception):
    """A change that killed a process, or that may have."""


def trial_kind(change: Mutation) -> str:
    """Return the kind of a change as text: what is done to which argument of which function; cut to
    SLOT_BYTES characters."""
    return f"{change.action} {change.operation} {change.argument}"[:SLOT_BYTES]


@dataclass
class TrialGuard:
    """Notes what is tried, and tries suspects in a process of their own first.

    With a folder, its file of trials is emptied.

    Attributes:
        folder: for the files; None notes nothing.
        suspects: kinds of changes after which an earlier search died.
        refused: kinds of changes after which it died although they were suspects.
        survivors: suspects, as `repr` writes them, that have killed nothing.
    """

    folder: Path | None = None
    suspects: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    survivors: set[str] = field(default_factory=set)
    _slots: mmap.mmap | None = None
    _count: int = 0
    _last: str = ""

    def __post_init__(self) -> None:
        if self.folder is not None:
            path = self.folder / TRIALS
            path.write_bytes(bytes(SLOTS * SLOT_BYTES))
            with path.open("r+b") as file:
                self._slots = mmap.mmap(file.fileno(), 0)

    @contextlib.contextmanager
    def trial(self, change: Mutation | None) -> Iterator[None]:
        """Note a change before the block tries it; a suspect is tried in a process of its own
        first, which runs the block, too, and ends with it.

        Raises:
            RefusedTrialError: that process was killed, or changes of this kind are refused.
        """
        if change is None or self._slots is None:
            yield
            return
        kind = trial_kind(change)
        if kind in self.refused:
            raise RefusedTrialError(kind)
        if kind != self._last:
            self._note(kind)
        if kind not in self.suspects or (what := repr(change)) in self.survivors:
            yield
            return
        child = os.fork() if sys.platform == "linux" else -1
        if not child:
            on_death_of_parent(signal.SIGKILL)
            try:
                yield
                check_heap()
            finally:  # an error of the framework is no death
                os._exit(0)
        if child < 0 or not survives(child):
            self._report(what)
            raise RefusedTrialError(what)
        self.survivors.add(what)
        yield

    def _note(self, kind: str) -> None:
        """Write a kind into the next slot of the file."""
        assert self._slots is not None
        begin = self._count % SLOTS * SLOT_BYTES
        line = kind.encode("utf-8", "replace")[:SLOT_BYTES]
        self._slots[begin : begin + SLOT_BYTES] = line.ljust(SLOT_BYTES, b"\0")
        self._count, self._last = self._count + 1, kind

    def _report(self, what: str) -> None:
        """Add a change to the file of those that killed a process, once."""
        assert self.folder is not None
        path = self.folder / KILLED
        known = path.read_text("utf-8").splitlines() if path.exists() else []
        if what not in known:
            path.write_text("\n".join([*known, what]) + "\n", "utf-8")


def survives(child: int) -> bool:
    """Wait for a forked process, at most `SUSPECT_S` seconds, and return whether it ended without a
    signal; one that takes longer is killed."""
    until, pause = time.monotonic() + SUSPECT_S, 0.0002
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return not os.WIFSIGNALED(status)
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.01)


def check_heap() -> None:
    """Allocate and free memory of many sizes: the C library aborts the process if a trial has
    written over what it keeps between the blocks."""
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    for _ in range(2):
        blocks = [library.malloc(size) for size in BLOCK_BYTES for _ in range(8)]
        for block in blocks:
            library.free(block)


def read_trials(folder: Path) -> list[str]:
    """Return the kinds of the latest trials of a search that died; empty if it noted none."""
    path = folder / TRIALS
    data = path.read_bytes() if path.exists() else b""
    slots = (data[i : i + SLOT_BYTES] for i in range(0, len(data), SLOT_BYTES))
    return [line.decode("utf-8", "replace") for slot in slots if (line := slot.rstrip(b"\0"))]


def suspect_trials(folder: Path) -> bool:
    """Make the kinds of the latest trials of a search that died suspects of the next one; those
    that already were are refused from now on. Both are written to ``guard.json`` in the folder.

    Returns:
        Whether the search noted a trial before it died.
    """
    latest = {*read_trials(folder)}
    path = folder / GUARD
    known = read_json(path) if path.exists() else {"suspects": [], "refused": []}
    refused = {*known["refused"], *(latest & {*known["suspects"]})}
    suspects = {*known["suspects"], *latest} - refused
    write_json(path, {"suspects": sorted(suspects), "refused": sorted(refused)})
    return bool(latest)


def open_guard(folder: Path) -> TrialGuard:
    """Return the guard of a new search in this folder, with the suspects of earlier ones; the notes
    of their trials are deleted."""
    path = folder / GUARD
    known = read_json(path) if path.exists() else {"suspects": (), "refused": ()}
    return TrialGuard(folder, frozenset(known["suspects"]), frozenset(known["refused"]))


def count_killed(folder: Path) -> int:
    """Return the number of changes and kinds of changes that were left out because they killed a
    process, or may have."""
    changes, guard = folder / KILLED, folder / GUARD
    killed = len(changes.read_text("utf-8").splitlines()) if changes.exists() else 0
    return killed + (len(read_json(guard)["refused"]) if guard.exists() else 0)
