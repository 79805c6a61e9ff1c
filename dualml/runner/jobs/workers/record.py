"""Files that each worker leaves in the folder of a job: ``rankR.log`` and ``rankR.json``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from dualml.experiment.store.jsonfile import Count, JsonFile, Number, Record
from dualml.launch.supervise import describe_exit

#: Exit code of a process ended by Ctrl-C or SIGTERM.
INTERRUPTED = 130
#: Codes of a process that SIGTERM ended: as Python has it, and as a shell reports it.
TERMINATED = (-15, 143)


class WorkerExit(Record):
    """End of a worker process.

    Attributes:
        rank: of the worker.
        host: its machine.
        code: its exit code, negative for a signal.
        seconds: from its start to its end.
        reason: why it was ended by others; None where it ended by itself.
        met: whether a connection was seen at the port where workers form a group; None where that
            could not be observed, or was another node's task.
    """

    rank: Count
    host: str
    code: int
    seconds: Number
    reason: str | None = None
    met: bool | None = None

    def describe_failure(self) -> str | None:
        """Return a line that says why the worker failed; None if it ended well."""
        if self.reason:
            return f"worker {self.rank} {self.reason}"
        how = describe_exit(self.code).removesuffix(" without a result")
        return f"worker {self.rank} {how}" if self.code else None


def status_from_code(code: int) -> Literal["ok", "stopped", "failed"]:
    """Return the status of a job from the exit code of its command: ``ok`` for 0, ``stopped`` for
    130, ``failed`` for any other."""
    return "ok" if code == 0 else "stopped" if code == INTERRUPTED else "failed"


def log_path(out: Path, rank: int) -> Path:
    """Return the path of the log of worker ``rank``, ``rankR.log`` in the folder ``out``."""
    return out / f"rank{rank}.log"


def exit_file(rank: int) -> JsonFile[WorkerExit]:
    """Return the description of the file ``rankR.json`` that records how the worker of a rank
    ended; nothing is read or written."""
    return JsonFile(f"rank{rank}.json", WorkerExit, version=1)


def read_exits(out: Path, size: int) -> list[WorkerExit]:
    """Read how the workers ended, by rank; those that have not ended are left out.

    Raises:
        UserError: a file is damaged.
    """
    found = (exit_file(rank).read_if_present(out) for rank in range(size))
    return [ending for ending in found if ending is not None]


def first_failure(exits: Sequence[WorkerExit]) -> WorkerExit | None:
    """Choose the worker to name for the failure of a job: one that failed by itself before one that
    was ended for a reason, of several the one with the lowest rank.

    Returns:
        How that worker ended; None where none failed.
    """
    failed = [ended for ended in exits if ended.code]
    return min(failed, key=lambda ended: (bool(ended.reason), ended.rank), default=None)


def first_failure_under_slurm(exits: Sequence[WorkerExit], size: int) -> WorkerExit | None:
    """Choose the worker to name for the failure of a job whose workers Slurm ends together.

    Slurm sends SIGTERM to all processes of the job, so a worker may die of it before the process
    that watches it has noted a reason. Such a worker is named only where no other failed and all
    have left a record: one without a record was lost before, with its machine perhaps.

    Args:
        size: workers of the job.

    Returns:
        How that worker ended; None where none failed, or one left no record.
    """
    failed = first_failure([e for e in exits if e.reason or e.code not in TERMINATED])
    if failed is not None and not failed.reason:
        return failed
    return first_failure(exits) if len(exits) == size else None


def failure_code(failed: WorkerExit | None) -> int | None:
    """Return a failed worker's exit code, as a shell reports it; None without one, or where the
    worker was ended for a reason."""
    if failed is None or failed.reason:
        return None
    return failed.code if failed.code > 0 else 128 - failed.code
