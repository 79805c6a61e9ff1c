"""Process that loads a written checkpoint with its framework, and compares it bit for bit:
``python -m dualml.parity.models.weights.check_worker FOLDER SIDE``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError
from dualml.common.files import read_json
from dualml.launch.child import Emitter, report_to_owner
from dualml.parity.models.gap import is_bit_identical
from dualml.parity.models.weights.loading import carry_weights
from dualml.parity.models.weights.writing import round_values, side_kind
from dualml.parity.models.worker import prepare_model, set_search_path


def run_check(emit: Emitter) -> dict[str, Any]:
    """Load the checkpoint that the job names into a new model of the side, and compare every tensor
    bit for bit with what was to be written; return ``count``, their number, or raise `UserError` if
    one differs. The process's arguments are ``FOLDER SIDE``."""
    folder, side = Path(sys.argv[1]), sys.argv[2]
    job = read_json(folder / "job.json")
    own = job["sides"][side]
    set_search_path(job, own)
    emit(phase="import", done=0, total=1)
    backend: Any = importlib.import_module(f"{own['package']}.models")
    model, _ = prepare_model(backend, job, own)
    kind = side_kind(job, side)
    if kind != "F32":
        model = backend.move(model, own["device"], own["dtype"])
    recorder = backend.Recorder(model, None, steps=1, draws=0, seed=job["seed"])
    backend.load_checkpoint(model, Path(job["written"]))
    _, arrays = carry_weights(folder, job, side)
    named, wrong = recorder.named_tensors(), []
    for name in arrays:
        there = recorder.view(named[name])
        if not is_bit_identical(there, round_values(arrays[name], kind).astype(there.dtype)):
            wrong.append(name)
    if wrong:
        raise UserError(
            f"{len(wrong)} of {len(arrays)} tensors are others after loading, first {wrong[0]}"
        )
    return {"count": len(arrays)}


if __name__ == "__main__":
    with report_to_owner() as emit:
        emit.result = run_check(emit)
