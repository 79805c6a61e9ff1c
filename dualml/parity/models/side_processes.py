"""The processes that a comparison starts: workers of both sides, and searches for causes."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.files import read_json, write_json
from dualml.common.json_types import JsonObject
from dualml.common.machine import usable_cores
from dualml.launch.process import Launch, close_other_servers
from dualml.launch.supervise import GroupResult, describe_exit, last_lines, supervise
from dualml.parity.causes.trial_guard import GUARD, KILLED, TRIALS, suspect_trials
from dualml.parity.models.activity import begin_phase
from dualml.parity.models.known_distances import DISTANCES, write_distances
from dualml.parity.models.resources import SIZE
from dualml.parity.models.side_jobs import FRAMEWORK_NOTE, make_launch
from dualml.parity.models.sides import LETTERS, ResolvedSide
from dualml.parity.models.trace import HEAD
from dualml.parity.models.trace_comparison import KnownDistances
from dualml.parity.models.trace_files import TEMPORARY

#: File with the result of a search for causes.
RESULT = "explanation.json"
#: How often a search begins after a kernel killed it, and how many seconds it gets at least.
ATTEMPTS, LEAST_S = 4, 5.0
#: Programs of the processes.
WORKER = "dualml.parity.models.worker"
COMPILED_MODULES = "dualml.parity.models.compiled_modules"
EXPLAINER = "dualml.parity.causes.explainer"


def run_processes(launches: Sequence[Launch], timeout: float) -> GroupResult:
    """Run processes until all end, one fails, or ``timeout`` seconds are over or pass without a
    message; return what happened, without raising."""
    return supervise(launches, lambda rank, event: None, limit=timeout, silence=timeout)


def run_workers(
    folder: Path, job: JsonObject, sides: Sequence[ResolvedSide], arrays: Sequence[NDArray[Any]]
) -> None:
    """Write the job and the batch into ``folder``, and run the workers of both sides until they
    end; they leave their traces in ``folder``, where earlier ones are deleted.

    Raises:
        UserError: a worker failed, or they took longer than the job's timeout.
    """
    begin_phase("run")
    for letter in LETTERS:
        (folder / f"{letter}{FRAMEWORK_NOTE}").unlink(missing_ok=True)
    for left in ("weights", ".weights", "a", "b"):  # left by an earlier comparison
        if (folder / left / HEAD).exists():
            shutil.rmtree(folder / left)
    write_json(folder / "job.json", job)
    with (folder / "inputs.npz").open("wb") as file:
        np.savez(file, **{f"{i:04d}": array for i, array in enumerate(arrays)})
    (folder / SIZE).unlink(missing_ok=True)
    timeout, cores = job["timeout"], usable_cores()
    labels = [side.label for side in sides]

    def make_worker(side: int, threads: int) -> Launch:
        """Return the description of the worker process of a side, 0 or 1."""
        words, log = [WORKER, str(folder), LETTERS[side]], folder / f"{LETTERS[side]}.log"
        return make_launch(sides[side], words, threads, log)

    watch = partial(run_processes, timeout=timeout)
    # Both at once, unless the first one says that the model is large.
    ended = watch([make_worker(side, max(1, cores // 2)) for side in range(2)])
    if ended.code or ended.reason:
        raise UserError(describe_failure(ended, folder, labels, timeout))
    if ended.results[1].get("deferred"):
        write_json(folder / SIZE, {"together": True, "threads": cores})
        ended = replace(watch([make_worker(1, max(1, cores // 2))]), rank=1)
        if ended.code or ended.reason:
            ended = replace(ended, results={1 + rank: r for rank, r in ended.results.items()})
            raise UserError(describe_failure(ended, folder, labels, timeout))


def search_causes(
    folder: Path,
    side: ResolvedSide,
    timeout: float,
    budget: float,
    known: KnownDistances | None = None,
) -> dict[str, Any] | None:
    """Search for the causes of the difference of the two traces in ``folder``, in a process of its
    own.

    Args:
        timeout: seconds after which the process is ended.
        budget: seconds for the search; if a mutation that it tries kills the process, the search
            continues without it in the rest of the time.
        known: distances of the two traces, so that they need not be measured again; None: they are.

    Returns:
        The explanation; None if the search itself failed, which is no verdict.
    """
    begin_phase("search")
    for left in (TRIALS, GUARD, KILLED, RESULT, DISTANCES):  # left by an earlier comparison
        (folder / left).unlink(missing_ok=True)
    if known is not None:
        write_distances(folder, known)
    large = (folder / SIZE).exists() and read_json(folder / SIZE)["threads"]
    until = time.monotonic() + budget
    for attempt in range(ATTEMPTS):
        seconds = max(until - time.monotonic(), LEAST_S) if attempt else budget
        # Thousands of small calls: a second thread would only spin and disturb other work.
        words = [EXPLAINER, str(folder), str(seconds)]
        launch = make_launch(side, words, 1, folder / "explainer.log")
        if large and not attempt:
            close_other_servers(launch)
        ended = run_processes([launch], timeout)
        if ended.code >= 0 or ended.reason or not suspect_trials(folder):
            break
    for rest in folder.glob(f"{TEMPORARY}*"):  # left by a process that a mutation killed
        shutil.rmtree(rest, ignore_errors=True)
    if ended.code or ended.reason or not (folder / RESULT).exists():
        return None
    explanation: dict[str, Any] = read_json(folder / RESULT)
    return explanation


def search_compiled(
    folder: Path, letter: str, side: ResolvedSide, timeout: float
) -> dict[str, Any] | None:
    """Search for the smallest module of a compiled side that computes something else when it is
    compiled alone, in a process of its own.

    Returns:
        The result that `dualml.parity.models.compiled_modules` writes; None if the search itself
            failed.
    """
    words = [COMPILED_MODULES, str(folder), letter]
    launch = make_launch(side, words, usable_cores(), folder / "compiled.log")
    (folder / RESULT).unlink(missing_ok=True)
    ended = run_processes([launch], timeout)
    if ended.code or ended.reason or not (folder / RESULT).exists():
        return None
    result: dict[str, Any] = read_json(folder / RESULT)
    return result


def run_side(
    program: str, folder: Path, letter: str, side: ResolvedSide, timeout: float
) -> dict[str, Any]:
    """Run a program of one side, ``python -m PROGRAM FOLDER SIDE``, and return its result.

    Raises:
        UserError: it failed (the message has the reason), or took longer than ``timeout`` seconds.
    """
    log = folder / f"{letter}.{program.rpartition('.')[2]}.log"
    launch = make_launch(side, [program, str(folder), letter], usable_cores(), log)
    ended = run_processes([launch], timeout)
    result = ended.results.get(0)
    if ended.code or ended.reason or result is None:
        raise UserError(describe_failure(ended, folder, [side.label], timeout, [log]))
    return result


def describe_failure(
    ended: GroupResult,
    folder: Path,
    labels: Sequence[str],
    timeout: float,
    logs: Sequence[Path] = (),
) -> str:
    """Return an error text about why the process of a side failed.

    Args:
        labels: names of the sides that ran, in order of their processes.
        logs: files with their standard error; without any, those of the two workers in ``folder``.
    """
    paths = logs or [folder / f"{letter}.log" for letter in LETTERS]
    label, log = labels[ended.rank], paths[ended.rank]
    result = ended.results.get(ended.rank)
    if result is not None:
        reason = str(result["reason"])
        of_both = "without a partner" in reason or "map: " in reason
        return reason if of_both else f"{label}: {reason}"
    if ended.reason and "time limit" in ended.reason:
        return f"{label} {ended.reason}; give it more with timeout="
    why = ended.reason or describe_exit(ended.code)
    if ended.code == -signal.SIGKILL:
        why += (
            ", as the system does when memory runs out; a smaller batch takes less, and so does a "
            "comparison without an optimizer, or with loss='none' (forward only)"
        )
    return "; ".join([f"{label} {why}", *last_lines(log)])
