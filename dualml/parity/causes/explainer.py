"""The process of a search: ``python -m dualml.parity.causes.explainer FOLDER``.

``job.json`` and the two traces are those of a comparison; the first side's model is built again
with the weights that its trace began with. The result is ``FOLDER/explanation.json``.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dualml.files import read_json, write_json
from dualml.launch.child import Emitter, serve
from dualml.parity.causes.explanation import Explanation
from dualml.parity.causes.search import Search
from dualml.parity.models.operations import Operation
from dualml.parity.models.run import RESULT
from dualml.parity.models.trace import read_trace
from dualml.parity.models.worker import build, loss_of, optimizer_of


def perform(emit: Emitter) -> dict[str, Any]:
    folder = Path(sys.argv[1])
    job = read_json(folder / "job.json")
    own = job["sides"]["a"]
    sys.path[:] = job["path"]
    emit(phase="import", done=0, total=2)
    room: Any = importlib.import_module(f"{own['package']}.models")
    explore: Any = importlib.import_module(f"{own['package']}.causes.explore")
    a, b = (read_trace(folder / side) for side in "ab")
    room.prepare(job["seed"])
    model = build(own["model"])
    room.train(model, job["train"])
    recorder = explore.Explored(model, None, steps=job["steps"], draws=0, seed=job["seed"])
    recorder.load(a.initial())
    recorder.optimizer = optimizer_of(room, model, own["optimizer"])
    with np.load(folder / "inputs.npz", allow_pickle=False) as file:
        tensors = [room.tensor(file[name]) for name in sorted(file.files)]
    loss = loss_of(room, own["loss"])
    explorer = explore.Explorer(
        recorder,
        lambda r: room.step(model, loss, r.optimizer, r, job["targets"]),
        tensors,
        job["steps"],
    )
    emit(phase="search", done=1, total=2)
    search = Search(
        a,
        b,
        explorer,
        margin=job["margin"],
        asked=job["map"],
        sides=(own["label"], job["sides"]["b"]["label"]),
        budget=job["budget"],
    )
    write_json(folder / RESULT, described(search.explain()))
    return {}


def described(explanation: Explanation) -> dict[str, Any]:
    """As JSON holds it."""

    def shown(one: Operation | None) -> dict[str, Any] | None:
        return None if one is None else one.describe()

    return {
        "equal": explanation.equal,
        "enough": explanation.enough,
        "tried": explanation.tried,
        "evidence": explanation.evidence,
        "place": shown(explanation.place),
        "other": shown(explanation.other),
        "causes": [
            {
                "alterations": [asdict(one) for one in cause.alterations],
                "place": shown(cause.place),
                "other": shown(cause.other),
            }
            for cause in explanation.causes
        ],
    }


if __name__ == "__main__":
    serve(perform)
