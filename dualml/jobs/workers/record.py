"""What is left of each worker in the folder of a job: ``rankR.log`` and ``rankR.json``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from dualml.launch.supervise import died
from dualml.store.jsonfile import Count, JsonFile, Number, Record

#: Exit code of what was ended by Ctrl-C, or by a polite signal.
INTERRUPTED = 130


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


def code_of_failure(endings: Sequence[Ending]) -> int | None:
    """Return the exit code of the worker that failed by itself, as a shell has it; None where each
    ended well or was ended by others."""
    code = next((e.code for e in endings if e.code and not e.reason), None)
    return code if code is None or code > 0 else 128 - code
