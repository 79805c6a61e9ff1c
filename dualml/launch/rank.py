"""One rank of `run_ranks`: ``python -m dualml.launch.rank FOLDER RANK``."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from dualml.common.json_types import JsonObject
from dualml.launch.child import Emitter, report_to_owner


def run_target(emit: Emitter) -> JsonObject:
    """Join the process group and call the function that job.json names; return ``{"value": …}``
    with its result. Folder and rank come from the command line."""
    from dualml.algorithms.communicator import FileStore, RankContext
    from dualml.backend import ProcessGroups, backends

    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    job = json.loads((folder / "job.json").read_text("utf-8"))
    backend = backends()[job["backend"]].create(job["device"], job["threads"])
    place = RankContext(
        rank,
        job["size"],
        FileStore(folder / "board"),
        rendezvous=job["rendezvous"],
        timeout=job["timeout"],
        check=job["check"],
    )
    emit(phase="join")
    comm = backend.require_capability(ProcessGroups).connect(place)
    emit.start_pulse(comm)
    emit(phase="work")
    module, _, name = job["target"].partition(":")
    value = getattr(importlib.import_module(module), name)(comm, job["argument"])
    comm.close()
    return {"value": value}


if __name__ == "__main__":
    with report_to_owner() as emit:
        emit.result = run_target(emit)
