"""Process that lists the tensors of one side, and pairs them: ``python -m
dualml.parity.models.weights.pair_worker FOLDER SIDE``.

Side ``a`` goes first. Each side leaves in ``FOLDER/pairs/SIDE`` a trace with its tensors, the
values of its buffers and, if there are inputs, the operations of a forward pass; and the names of
its tensors in a checkpoint. Side ``b`` pairs them.
"""

from __future__ import annotations

import importlib
import sys
from functools import partial
from pathlib import Path
from typing import Any

from dualml.common.files import read_json, write_json
from dualml.launch.child import Emitter, report_to_owner
from dualml.parity.models.pairing import match_sides
from dualml.parity.models.trace import Trace, array_key, read_trace
from dualml.parity.models.weights.loading import PAIRS, STORED
from dualml.parity.models.worker import load_inputs, prepare_model, set_search_path


def run_pairing(emit: Emitter) -> dict[str, Any]:
    """List the tensors of the side that the command line names (``FOLDER SIDE``), pair them if it
    is side ``b``, write the result to ``FOLDER/pairs/SIDE``, and return an empty dict."""
    folder, side = Path(sys.argv[1]), sys.argv[2]
    job = read_json(folder / "job.json")
    own = job["sides"][side]
    set_search_path(job, own)
    emit(phase="import", done=0, total=1)
    backend: Any = importlib.import_module(f"{own['package']}.models")
    model, _ = prepare_model(backend, job, own, folder / f"{side}.framework")
    recorder = backend.Recorder(model, None, steps=1, draws=0, seed=job["seed"])
    tensors = recorder.tensors()
    trace = Trace(recorder.framework, {}, tensors, recorder.modules())
    named = recorder.named_tensors()
    trace.arrays = {
        array_key("parameters", 0, one.name): recorder.array(named[one.name])
        for one in tensors
        if not one.trained
    }
    calls = None
    if job["inputs"]:
        inputs = load_inputs(backend, job, own, folder)[: -1 if job["targets"] else None]
        forward = backend.step(model, None, None, recorder, False)
        calls = partial(recorder.trace_forward, forward, inputs)
    if side == "a":
        trace.operations = [] if calls is None else calls()
    else:
        labels = (job["sides"]["a"]["label"], job["sides"]["b"]["label"])
        given = read_trace(folder / PAIRS / "a")
        match_sides(given, trace, job["map"], labels, calls, complete=job.get("complete", True))
    place = folder / PAIRS / side
    trace.write(place)
    write_json(place / STORED, recorder.stored_names())
    return {}


if __name__ == "__main__":
    with report_to_owner() as emit:
        emit.result = run_pairing(emit)
