"""The outcome of a run, and the exit codes of commands that run or compare."""

from __future__ import annotations

from dataclasses import dataclass, field

from dualml.experiment.store.folder import RunFolder
from dualml.experiment.store.trial_comparison import RunVerdicts

#: Exit codes of a run.
EXIT_INTERRUPTED, EXIT_DIFFERENT, EXIT_FAILED, EXIT_OK = 130, 3, 1, 0


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run.

    Attributes:
        code: the exit code.
        folder: the run folder; None for a rank of a launcher that only did its part.
        parity: the verdicts, as in ``parity.json``; empty if the run was interrupted before it.
        why: why the run failed: a lost rank, or the reason of the first failed trial; empty on
            success.
        remedy: a line that says how to resume, where none has been printed yet.
    """

    code: int
    folder: RunFolder | None = None
    parity: RunVerdicts = field(default_factory=RunVerdicts)
    why: str = ""
    remedy: str = ""
