"""``python bert_gradients.py BACKEND FOLDER``: logits, loss and gradients of a pretrained BERT.

Of the samples in ``FOLDER/batch.npz``, into ``FOLDER/BACKEND.npz``. A process of its own for each
backend: no two frameworks in one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from dualml.algorithms.model.pretrained import PretrainedBert
from dualml.algorithms.optim import AdamW
from dualml.backend import TrainingSpec, backends


def main(backend: str, folder: Path) -> None:
    with np.load(folder / "batch.npz", allow_pickle=False) as batch:
        x, y = batch["x"], batch["y"]
    found, classes = PretrainedBert.open(folder), int(y.max()) + 1
    recipe = TrainingSpec(
        spec=found.spec(x.shape[1], classes),
        weights=found.weights(x.shape[1], classes),
        rule=AdamW(lr=0.01),
        x=x,
        y=y,
        updates=1,
    )
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
