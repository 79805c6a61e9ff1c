"""Parent process of a comparison block by block: start both sides, and judge what they leave."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.files import read_json, write_json
from dualml.common.json_types import JsonObject
from dualml.common.machine import usable_cores
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.lockstep.exchange import RESULT
from dualml.parity.models.lockstep.judge import judge_blocks
from dualml.parity.models.side_jobs import FRAMEWORK_NOTE, make_launch
from dualml.parity.models.side_processes import describe_failure, run_processes
from dualml.parity.models.sides import LETTERS, ResolvedSide
from dualml.parity.models.weights.options import WeightOptions

WORKER = "dualml.parity.models.lockstep.worker"
#: Seconds for both sides together, unless the user says otherwise: four hours.
LOCKSTEP_TIMEOUT = 4 * 3600.0


def describe_lockstep(
    lockstep: bool,
    blocks: Sequence[str] | None,
    files: WeightOptions,
    optimizer: Any,
    steps: int,
    loss: Any,
) -> dict[str, Any]:
    """Check the options of `dualml.parity.compare` for a comparison block by block, and return its
    part of the job; empty if ``lockstep`` is False.

    Raises:
        UserError: the options do not go together.
    """
    if not lockstep:
        if blocks is not None:
            raise UserError("blocks are for a comparison with lockstep")
        return {}
    if steps != 1:
        raise UserError(
            "lockstep compares one step: outputs, loss, gradients and the update of each block; "
            f"received steps={steps}; leave it out"
        )
    if optimizer is not None and loss == "none":
        raise UserError(
            "lockstep with an optimizer needs gradients to update with; name a loss, or leave the "
            "optimizer out"
        )
    if blocks is not None and not blocks:
        raise UserError("--blocks: name at least one module of the first model")
    if files != WeightOptions(files.weights):
        raise UserError(
            "lockstep reads the first side's weights from safetensors files, and writes none; of "
            "all options about weights use --weights alone"
        )
    path = None if files.weights is None else str(Path(files.weights).expanduser().resolve())
    return {"lockstep": {"blocks": list(blocks or ()), "weights": path}}


def compare_blocks(
    folder: Path,
    job: JsonObject,
    sides: Sequence[ResolvedSide],
    batches: Sequence[NDArray[Any]],
) -> ModelComparison:
    """Run the two models of a job block by block in ``folder``, and return the comparison.

    Raises:
        UserError: a side is compiled, a model cannot be cut into blocks, a process failed, or the
            job's timeout is over.
    """
    if compiled := [side.label for side in sides if side.is_compiled]:
        raise UserError(
            f"--lockstep: {compiled[0]} is compiled, and blocks of a compiled model cannot be "
            "called one by one; leave the mode out"
        )
    for letter in LETTERS:
        (folder / f"{letter}{FRAMEWORK_NOTE}").unlink(missing_ok=True)
        (folder / f"{letter}{RESULT}").unlink(missing_ok=True)
    shutil.rmtree(folder / "exchange", ignore_errors=True)
    write_json(folder / "job.json", job)
    with (folder / "inputs.npz").open("wb") as file:
        np.savez(file, **{f"{i:04d}": array for i, array in enumerate(batches)})
    timeout, threads = job["timeout"], max(1, usable_cores() // len(sides))
    labels = [side.label for side in sides]
    launches = [
        # Weights and gradients of whole blocks come and go; at 159 million parameters keeping their
        # memory took a tenth more of it.
        make_launch(
            side, [WORKER, str(folder), letter], threads, folder / f"{letter}.log", reuses=False
        )
        for letter, side in zip(LETTERS, sides, strict=True)
    ]
    ended = run_processes(launches, timeout)
    if ended.code or ended.reason:
        raise UserError(describe_failure(ended, folder, labels, timeout))
    a, b = (read_json(folder / f"{letter}{RESULT}") for letter in LETTERS)
    shutil.rmtree(folder / "exchange", ignore_errors=True)
    dtypes = [side.dtype for side in sides]
    return judge_blocks(a, b, (labels[0], labels[1]), job["margin"], dtypes)
