"""Lines that a run prints before its first trial, and where it can be resumed."""

from __future__ import annotations

import contextlib
import os
import sys

from dualml.common import variables
from dualml.common.errors import escape_unprintable
from dualml.common.machine import default_threads
from dualml.common.words import Messages
from dualml.experiment.store.folder import RunFolder
from dualml.runner.request import RunRequest


def print_notice(text: str) -> None:
    """Print a line to standard error, prefixed with ``dualml:``."""
    with contextlib.suppress(OSError):  # the terminal is gone
        print(f"dualml: {escape_unprintable(text)}", file=sys.stderr, flush=True)


def resume_command(folder: RunFolder) -> str:
    """Return the command line that resumes a run or, if this process belongs to a job, the job."""
    job = os.environ.get(variables.JOB)
    return f"dualml resume {job}" if job else f"dualml run --resume {folder.path}"


def notices_before(request: RunRequest, folder: RunFolder, words: Messages) -> list[str]:
    """Return the lines to print before a run's first trial: on its dataset, on threads taken by
    other processes, and on trials resumed with another number of ranks."""
    lines = [*data_notices(folder, words), *thread_notices(request, folder, words)]
    return [*lines, *resize_notices(folder, words)]


def data_notices(folder: RunFolder, words: Messages) -> list[str]:
    """Return notices about the dataset: its size, a replacement, and what is adapted because it is
    small."""
    from dualml.experiment.small_data import small_data_values

    data, lang = folder.run.data, words.lang
    lines = [words("run.data", name=data.name, train=data.train, test=data.test)]
    if data.notice:
        lines.append(data.notice if isinstance(data.notice, str) else data.notice[lang])
    few = small_data_values(folder.run.experiment, {"name": data.name, "train": data.train})
    return [*lines, words("notice.small", **few)] if few else lines


def thread_notices(request: RunRequest, folder: RunFolder, words: Messages) -> list[str]:
    """Return a list with a notice if other processes leave fewer threads than the machine could
    offer; empty otherwise, for a resumed run, and where the user chose the threads."""
    threads, most = folder.run.options.threads, default_threads()
    if request.resume or request.threads or threads >= most:
        return []
    return [words("run.beside", threads=threads, most=most)]


def resize_notices(folder: RunFolder, words: Messages) -> list[str]:
    """Return a notice for each trial that has not ended and was resized to another number of
    ranks."""
    changes = [(trial, trial.resized[-1].describe()) for trial in folder.pending() if trial.resized]
    return [
        words("run.resized", arm=trial.arm, seed=trial.seed, backend=trial.backend, **told)
        for trial, told in changes
    ]
