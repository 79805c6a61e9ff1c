"""What is left of each worker in the folder of a job: ``rankR.log`` and ``rankR.json``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from dualml.launch.supervise import died
from dualml.store.jsonfile import Count, JsonFile, Number, Record

#: Exit code of what was ended by Ctrl-C, or by a polite signal.
INTERRUPTED = 130
#: Exit codes of a process that died of SIGTERM: the system's, and a shell's.
TERMINATED = (-15, 143)


class Ending(Record):
    """How a worker ended.

    Attributes:
        host: its machine.
        code: its exit code, negative for a signal.
        seconds: from its start to its end.
        reason: why it was ended by others; None where it ended by itself.
        met: whether a connection to the port was seen where workers meet; None where nobody could
            look, or it is another node's to look.
    """

    rank: Count
    host: str
    code: int
    seconds: Number
    reason: str | None = None
    met: bool | None = None

    def describe_failure(self) -> str | None:
        """Say in a line why it did not end well; None where it did."""
        if self.reason:
            return f"worker {self.rank} {self.reason}"
        how = died(self.code).removesuffix(" without a result")
        return f"worker {self.rank} {how}" if self.code else None


def status_of(code: int) -> Literal["ok", "stopped", "failed"]:
    """Return the status of a job from the exit code of its command, any script's."""
    return "ok" if code == 0 else "stopped" if code == INTERRUPTED else "failed"


def log_path(out: Path, rank: int) -> Path:
    """Where a worker's output is."""
    return out / f"rank{rank}.log"


def ending_file(rank: int) -> JsonFile[Ending]:
    """The file of a worker's end."""
    return JsonFile(f"rank{rank}.json", Ending, version=1)


def read_endings(out: Path, size: int) -> list[Ending]:
    """Read how the workers ended that have, by rank.

    Raises:
        UserError: a damaged file.
    """
    found = (ending_file(rank).read_if_there(out) for rank in range(size))
    return [ending for ending in found if ending is not None]


def first_failure(endings: Sequence[Ending]) -> Ending | None:
    """Choose the worker to name for the failure of a job: one that failed by itself before one that
    was ended for a reason, of several the one with the lowest rank.

    Returns:
        How that worker ended; None where none failed.
    """
    failed = [e for e in endings if e.code]
    return min(failed, key=lambda e: (bool(e.reason), e.rank), default=None)


def first_failure_under_slurm(endings: Sequence[Ending], size: int) -> Ending | None:
    """Choose the worker to name for the failure of a job whose workers Slurm ends together.

    Slurm sends SIGTERM to all processes of the job, so a worker may die of it before the process
    that watches it has noted a reason. Such a worker is named only where no other failed and all
    have left a record: one without a record was lost before, with its machine perhaps.

    Args:
        size: workers of the job.

    Returns:
        How that worker ended; None where none failed, or one left no record.
    """
    failed = first_failure([e for e in endings if e.reason or e.code not in TERMINATED])
    if failed is not None and not failed.reason:
        return failed
    return first_failure(endings) if len(endings) == size else None


def code_of_failure(failed: Ending | None) -> int | None:
    """Return a failed worker's exit code, as a shell has it; None without one, or where the worker
    was ended for a reason."""
    if failed is None or failed.reason:
        return None
    return failed.code if failed.code > 0 else 128 - failed.code
