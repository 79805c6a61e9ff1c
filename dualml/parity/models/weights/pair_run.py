"""Pair the tensors of two models in processes of their own, without running a comparison."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.files import write_json
from dualml.common.machine import usable_cores
from dualml.launch.supervise import describe_exit, last_lines, supervise
from dualml.parity.models.side_jobs import FRAMEWORK_NOTE, make_launch
from dualml.parity.models.sides import LETTERS, ResolvedSide
from dualml.parity.models.weights.fitting import find_side, note_values
from dualml.parity.models.weights.loading import PAIRS, open_job_weights, read_sides

WORKER = "dualml.parity.models.weights.pair_worker"


def run_pairing(
    folder: Path,
    job: dict[str, Any],
    sides: Sequence[ResolvedSide],
    batches: Sequence[NDArray[Any]],
) -> None:
    """List and pair the tensors of both models, one side after the other; what they leave is in
    ``pairs`` of the folder, see `dualml.parity.models.weights.pair_worker`.

    Args:
        batches: inputs of a forward pass, for what names do not pair; may be empty.

    Raises:
        UserError: a model cannot be built, or too many parameters have no partner.
    """
    shutil.rmtree(folder / PAIRS, ignore_errors=True)
    write_json(folder / "job.json", {**job, "inputs": bool(batches)})
    with (folder / "inputs.npz").open("wb") as file:
        np.savez(file, **{f"{i:04d}": array for i, array in enumerate(batches)})
    for letter, side in zip(LETTERS, sides, strict=True):
        (folder / f"{letter}{FRAMEWORK_NOTE}").unlink(missing_ok=True)
        run_process(WORKER, folder, letter, side, job["timeout"])


def run_process(
    program: str, folder: Path, letter: str, side: ResolvedSide, timeout: float
) -> dict[str, Any]:
    """Run a program of one side, ``python -m PROGRAM FOLDER SIDE``, and return its result.

    Raises:
        UserError: it failed, with the reason, or took too long.
    """
    log = folder / f"{letter}.{program.rpartition('.')[2]}.log"
    launch = make_launch(side, [program, str(folder), letter], usable_cores(), log)
    ended = supervise([launch], lambda rank, event: None, limit=timeout, silence=timeout)
    result = ended.results.get(0)
    if not ended.code and not ended.reason and result is not None:
        return result
    if result is not None and "reason" in result:
        reason = str(result["reason"])
        shared = "without a partner" in reason or "map: " in reason
        raise UserError(reason if shared else f"{side.label}: {reason}")
    if ended.reason and "time limit" in ended.reason:
        raise UserError(f"{side.label} {ended.reason}; give it more with timeout=")
    why = ended.reason or describe_exit(ended.code)
    raise UserError("; ".join([f"{side.label} {why}", *last_lines(log)]))


def prepare_weights(
    folder: Path,
    job: dict[str, Any],
    sides: Sequence[ResolvedSide],
    batches: Sequence[NDArray[Any]],
) -> dict[str, Any]:
    """Pair both models for the weights that a job names, and return the job with the side that
    they belong to; a job without weights is returned as it is.

    Raises:
        UserError: they fit neither side, or the models cannot be paired.
    """
    given = job.get("weights")
    if not given:
        return job
    run_pairing(folder, job, sides, batches)
    models, _ = read_sides(folder, job)
    files = open_job_weights(job)
    # The user counts the sides as they were passed; the result may begin with the other one.
    chosen = [x for x, side in zip(LETTERS, sides, strict=True) if side.letter == given["side"]]
    letter, fit = find_side(files, models, "".join(chosen))
    return {**job, "weights": {**given, "side": letter, "note": note_values(fit, files.path)}}


def pair_for_weights(
    folder: Path,
    job: dict[str, Any],
    sides: Sequence[ResolvedSide],
    batches: Sequence[NDArray[Any]],
) -> None:
    """Pair both models anew where weights of the second side are carried to the first, because the
    job's map may be another one now."""
    if job.get("weights") and job["weights"]["side"] == "b":
        run_pairing(folder, job, sides, batches)
