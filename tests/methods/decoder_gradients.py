"""``python decoder_gradients.py BACKEND FOLDER``: logits, loss and gradients of a decoder.

The model is ``FOLDER/model.json``, its weights and samples ``FOLDER/given.npz``; the result is
``FOLDER/BACKEND.npz``. A process of its own for each backend: no two frameworks in one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.optim import AdamW
from dualml.backend import TrainingSpec, backends


def main(backend: str, folder: Path) -> None:
    with np.load(folder / "given.npz", allow_pickle=False) as file:
        given = dict(file)
    x, y = given.pop("x"), given.pop("y")
    spec = ModelSpec.restore(json.loads((folder / "model.json").read_text()))
    recipe = TrainingSpec(spec=spec, weights=given, rule=AdamW(lr=0.01), x=x, y=y, updates=1)
    every = np.arange(len(y))
    training = backends()[backend].create("cpu", 1).training(recipe)
    trace = training.trace(every, every)
    np.savez(
        folder / f"{backend}.npz",
        logits=trace.activations["head"],
        loss=trace.loss,
        **{f"gradient/{name}": gradient for name, gradient in trace.gradients.items()},
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
