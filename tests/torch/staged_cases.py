"""A pipeline whose messages are staged in host memory; on a CPU both ends of the copy are host
memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from conformance import split

from dualml.backend import backends
from dualml.experiment.split import Split
from dualml_torch.parallel.host_staged import HostStagedCommunicator

CASE: dict[str, Any] = {
    "model": "deep",
    "optimizer": "adam",
    "loss": "cross_entropy",
    "sizes": [8, 7],
    "split": {"cut": ["fc3"], "micro_batches": 2, "transport": "host"},
}


def staged(comm: Any) -> HostStagedCommunicator:
    """Return a communicator of the same ranks that stages messages in host memory."""
    return HostStagedCommunicator(replace(comm.context, host_staged=True), comm.member)


def train(comm: Any, lost: bool) -> dict[str, Any]:
    """Train the case; return the bytes copied, and the distance of the weights from the
    reference's.

    Args:
        lost: plant a fault: messages in host memory are not copied to the device.
    """
    own = staged(comm)
    if lost:
        own.to_device = lambda x: x.new_zeros(x.shape)  # type: ignore[method-assign]
    backend = backends()["torch"].create("cpu", 1)
    plan = Split(**CASE["split"]).plan(split.spec_of(CASE), comm.size)
    training = split.make_training(own, backend, CASE, plan)
    own.staged_bytes[:] = 0, 0
    for step, batch in enumerate(split.batches(CASE), start=1):
        training.step(batch, step)
    moved, want = list(own.staged_bytes), split.expected(CASE)
    weights = training.stage.weights()
    apart = max(float(np.abs(w - want[f"weight {name}"]).max()) for name, w in weights.items())
    return {"moved": moved, "apart": apart, "how": str(own.implementation_of("exchange"))}


def collectives(comm: Any, argument: Any) -> dict[str, Any]:
    """Return the results of each primitive with and without staging in host memory."""
    own, found = staged(comm), {}
    for name, group in (("plain", comm), ("staged", own)):
        x = group.tensor(np.arange(4.0, dtype=np.float32) + comm.rank)
        parts = [group.tensor(np.full(2, 10.0 * r, np.float32)) for r in range(comm.size)]
        told = {
            "all_reduce": group.all_reduce(x),
            "broadcast": group.broadcast(x, 1),
            "all_gather": np.concatenate([group.numpy(y) for y in group.all_gather(x)]),
            "reduce_scatter": group.reduce_scatter(x),
            "scatter": group.scatter(parts if comm.rank == 0 else None, x[:2], 0),
            "later": group.all_reduce(x, wait=False).wait(),
            "exchange": group.exchange({1 - comm.rank: x}, {1 - comm.rank: group.empty_like(x)})[
                1 - comm.rank
            ],
            "given": x,
        }
        found[name] = {key: np.array(value).tolist() for key, value in told.items()}
    group: Any = own.subgroup([0, 1])
    assert group.staged_bytes is own.staged_bytes
    return {**found, "device": own.device}
