"""A data-parallel script of MindSpore: ``python rank_cases_ms.py FOLDER one|right|sum``.

``one`` trains in one process; the others are started by ``msrun``, and ``sum`` does not divide the
gradients by the number of ranks.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import communication, nn, ops

from dualml_ms.record import Recorder

BATCH, STEPS = 8, 2


def main(folder: Path, kind: str) -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
    rank, ranks = 0, 1
    if kind != "one":
        communication.init()
        rank, ranks = communication.get_rank(), communication.get_group_size()
    draw = np.random.default_rng(0)
    x = draw.normal(size=(STEPS, BATCH, 6)).astype(np.float32)
    y = draw.integers(0, 3, (STEPS, BATCH)).astype(np.int32)
    weight = ms.Tensor(draw.normal(size=(3, 6)).astype(np.float32))
    cell = nn.Dense(6, 3, weight_init=weight, bias_init="zeros")
    optimizer = nn.Momentum(cell.trainable_params(), 0.1, 0.9)
    group = True if ranks > 1 else None
    recorder = Recorder(cell, folder, optimizer, steps=STEPS, draws=1, group=group)
    criterion = nn.CrossEntropyLoss()
    find_gradients = ms.value_and_grad(
        lambda a, b: criterion(cell(a), b), None, optimizer.parameters
    )
    scale = 1.0 if kind == "sum" else 1.0 / ranks
    reduce = ops.AllReduce() if ranks > 1 else lambda gradient: gradient

    def update(a: Any, b: Any) -> None:
        loss, local = find_gradients(a, b)
        gradients = tuple(reduce(gradient) * scale for gradient in local)
        recorder.saw(loss=loss, gradients=gradients, local_gradients=local)
        optimizer(gradients)

    for batch, labels in zip(x, y, strict=True):
        own = [np.split(part, ranks)[rank] for part in (batch, labels)]
        recorder.run(update, *map(ms.Tensor, own))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
