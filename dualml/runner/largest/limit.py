"""A memory limit for this process that the system enforces.

``RLIMIT_DATA`` bounds the private memory that a process may write to (Linux 4.7 and later: the heap
and private mappings, and so everything that allocators take); it is counted as ``VmData``. A
framework takes much of it when it is imported: the limit applies to what comes on top.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from dualml.common.errors import TrialError, Unsupported

#: Settings of the GNU C library by which all but small allocations return to the system when they
#: are freed, so that a process holds only what it needs.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
#: Phrases in messages about failed allocations; the last is for a thread that gets no stack.
WORDS = ("alloc", "out of memory", "Cannot allocate", "Resource temporarily unavailable")
#: Signals that end a process whose library dereferences the null pointer of a failed allocation.
SIGNALS = ("SIGSEGV", "SIGABRT", "SIGBUS")


class OutOfMemory(TrialError):
    """An allocation failed under the limit."""


def data_bytes() -> int:
    """Return the bytes of private memory of this process that `limit_memory` limits (``VmData`` of
    Linux), after returning unused memory to the system.

    Raises:
        Unsupported: the system does not count them.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # of the GNU C library
        ctypes.CDLL(None).malloc_trim(0)
    try:
        text = Path("/proc/self/status").read_text("ascii")
    except OSError:
        raise Unsupported(f"{sys.platform} does not count VmData; use Linux") from None
    (line,) = (line for line in text.splitlines() if line.startswith("VmData:"))
    return 1024 * int(line.split()[1])


@contextlib.contextmanager
def limit_memory(base: int, nbytes: int) -> Iterator[None]:
    """Limit the memory of this process that `data_bytes` counts to ``base + nbytes`` bytes inside
    the block.

    Raises:
        OutOfMemory: the process exceeds the limit already, or asks for more.
    """
    now, (soft, hard) = data_bytes(), resource.getrlimit(resource.RLIMIT_DATA)
    if now > base + nbytes:
        raise OutOfMemory(
            f"out of memory: weights, gradients and what belongs to them take {now - base:,} bytes "
            f"of the limit of {nbytes:,} before the first update"
        )
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (base + nbytes, hard))
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        first = (str(error).strip().splitlines() or ["no more memory"])[0]
        raise OutOfMemory(
            f"out of memory: the limit of {nbytes:,} bytes is reached ({first[:200]})"
        ) from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error is a failed allocation: a `MemoryError`, or one whose text has a
    word of `WORDS` or the name of a signal of `SIGNALS`, with which libraries crash then (not
    SIGKILL)."""
    return isinstance(error, MemoryError) or any(word in str(error) for word in (*WORDS, *SIGNALS))


@contextlib.contextmanager
def return_freed_memory() -> Iterator[None]:
    """Make processes that are started inside the block return freed memory to the system at once,
    by environment variables, which are restored at its end."""
    before = {name: os.environ.get(name) for name in MALLOC}
    os.environ.update(MALLOC)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
