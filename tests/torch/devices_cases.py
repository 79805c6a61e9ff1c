"""A model on several devices of each of two processes: equal results, and lost gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from conformance import split
from torch.nn.parallel import DistributedDataParallel

from dualml.backend import backends
from dualml.experiment.split import Split
from dualml_torch.parallel.devices import TorchPlacedStage

CASE: dict[str, Any] = {
    "model": "deep",
    "optimizer": "adam",
    "loss": "cross_entropy",
    "sizes": [8, 7, 1],
    "split": {
        "engine": "devices",
        "devices": ["cpu:0", "cpu:1"],
        "data": 2,
        "place": [0, 1, 0],
        "micro_batches": 3,
    },
}


def weights_after(comm: Any, lost: bool) -> dict[str, Any]:
    """Train the case; return the wrapper's name and the distance of this process's weights from the
    reference's."""
    if lost:  # the wrapper is never told of a last micro-batch, and never adds up
        TorchPlacedStage.expect_last = lambda self, micro: None  # type: ignore[method-assign]
    backend = backends()["torch"].create("cpu", 1)
    plan = Split(**CASE["split"]).plan(split.spec_of(CASE), comm.size)
    training = split.make_training(comm, backend, CASE, plan)
    for step, batch in enumerate(split.batches(CASE), start=1):
        training.step(batch, step)
    stage: Any = training.stage
    assert isinstance(stage.parallel, DistributedDataParallel)
    assert stage.parallel.device_ids is None
    want = split.expected(CASE)
    own = stage.weights()
    apart = max(float(np.abs(w - want[f"moved {name}"] / 2).max()) for name, w in own.items())
    return {
        "apart": apart,
        "parameters": len(own),
        "wrapped": len(list(stage.parallel.parameters())),
    }
