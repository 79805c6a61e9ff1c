"""Pair the tensors of two models in processes of their own, without running a comparison."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.files import write_json
from dualml.parity.models.side_jobs import FRAMEWORK_NOTE
from dualml.parity.models.side_processes import run_side
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
    """List and pair the tensors of both models, in a process for each side, one after the other;
    they leave the result in ``FOLDER/pairs``, see `dualml.parity.models.weights.pair_worker`.

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
        run_side(WORKER, folder, letter, side, job["timeout"])


def prepare_weights(
    folder: Path,
    job: dict[str, Any],
    sides: Sequence[ResolvedSide],
    batches: Sequence[NDArray[Any]],
) -> dict[str, Any]:
    """Pair both models for the weights that a job names, and return a copy of the job with the side
    that they belong to; a job without weights is returned as it is.

    Args:
        batches: inputs of a forward pass, for what names do not pair; may be empty.

    Raises:
        UserError: the weights fit neither side or cannot be read, or the models cannot be paired.
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
    """Pair both models anew if the job loads weights of the second side, which are carried to the
    first, because the job's map may be another one now; else do nothing."""
    if job.get("weights") and job["weights"]["side"] == "b":
        run_pairing(folder, job, sides, batches)
