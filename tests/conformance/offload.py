"""Training with offloaded state or weights, on one or several ranks of any backend.

The cases are those of `conformance.zero`, with ``offload`` added.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from conformance import split, zero
from conformance.backends import create

from dualml.algorithms.communicator.parts import part_lengths
from dualml.common.errors import Unsupported
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.memory import OffloadFootprint, estimate_offload_footprint
from dualml.parallel.offload import Offload
from dualml.parallel.offload.estimates import OffloadVolume, estimate_offload_volume
from dualml.parallel.offload.model import OffloadedModel
from dualml.parallel.zero import units_of
from dualml.parallel.zero.parallel import ZeroDataParallel

UPDATES = 2  # of the batch whose traffic is counted


def make_training(comm: Any, case: dict[str, Any], folder: Path) -> tuple[OffloadedModel, Any]:
    """Return the offloaded model and the training of it, at step 0."""
    backend, recipe = create(comm.backend), zero.recipe_of(case)
    offload = Offload(**case["offload"])
    model = OffloadedModel(backend, recipe, comm, zero.sharding_of(case), offload, folder)
    training: Any = model
    if comm.size > 1:
        training = ZeroDataParallel(backend, model, comm, Aggregation(), seed=split.SEED)
    training.load(*zero.start_of(case), 0)
    return model, training


def train(comm: Any, argument: dict[str, Any]) -> list[dict[str, Any]]:
    """Run every case: write arrays to ``folder``, and return bytes held and moved per case."""
    told, folder = list[dict[str, Any]](), Path(argument["folder"])
    for number, case in enumerate(argument["cases"]):
        try:
            model, training = make_training(comm, case, folder)
        except Unsupported as reason:
            told.append({"unsupported": str(reason)})
            continue
        read = training.mean_losses if comm.size > 1 else model.backend.materialize_losses
        found = split.collect_results(training, case, read)
        np.savez(folder / f"case{number}.rank{comm.rank}.npz", **found)
        batch = split.batches(case)[0]
        memory = asdict(training.measure_memory(batch))
        training.load(*zero.start_of(case), 0)
        for step in range(1, UPDATES + 1):
            model.evaluate(*(a[:2] for a in split.data(split.spec_of(case))))
            training.step(batch, step)
        moves, elsewhere = asdict(model.traffic()), model.offloaded_bytes()
        left = [path.name for path in folder.iterdir() if path.suffix != ".npz"]
        model.close()
        told.append({"memory": memory, "elsewhere": elsewhere, "traffic": moves, "left": left})
        comm.barrier()
    return told


def forms(
    case: dict[str, Any], n: int, made: int = UPDATES
) -> tuple[OffloadFootprint, OffloadVolume, int]:
    """Return the expected offload footprint and traffic, in elements, of `UPDATES` updates of the
    first batch, ``made`` of which are not skipped, and the number of rounds."""
    sharding, rule, offload = (
        zero.sharding_of(case),
        zero.rule_of(case["optimizer"]),
        case["offload"],
    )
    units = units_of(split.spec_of(case), sharding.bucket_bytes, n)
    most = max(part_lengths(case["sizes"][0], n))
    rounds = math.ceil(most / case.get("chunk", zero.CHUNK))
    asked, slots = Offload(**offload), len(rule.state_keys)
    return (
        estimate_offload_footprint(units, n, asked, slots),
        estimate_offload_volume(units, n, asked, slots, UPDATES * rounds, UPDATES, made),
        rounds,
    )
