"""ZeRO training on the ranks of any backend.

`train` runs on every rank (see `dualml.launch.ranks`) and writes its arrays to a file per rank. The
correct result is that of the unsplit model in `conformance.split`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from conformance import split
from conformance.backends import create

from dualml.algorithms.communicator.parts import part_lengths
from dualml.algorithms.optim import RULES, rule_from
from dualml.backend import TrainingSpec
from dualml.backend.reference.training import NumpyTraining
from dualml.common.errors import Unsupported
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.memory import estimate_sharded_memory
from dualml.parallel.zero import Sharding, units_of
from dualml.parallel.zero.model import ShardedModel
from dualml.parallel.zero.parallel import ZeroDataParallel
from dualml.parallel.zero.units import communication_volume

CHUNK = 256


def recipe_of(case: dict[str, Any]) -> TrainingSpec:
    """Return the training configuration as `split.recipe_of` does; the optimizer may be any
    variant."""
    recipe = split.recipe_of({**case, "optimizer": "sgd"})
    return replace(recipe, rule=rule_of(case["optimizer"]), chunk=case.get("chunk", CHUNK))


def rule_of(name: str) -> Any:
    if name in split.OPTIMIZERS:
        return rule_from(split.OPTIMIZERS[name])
    for kind, rule in RULES.items():
        if name in rule.variants:
            return rule_from({"name": kind, **rule.variants[name]})
    raise KeyError(name)


def sharding_of(case: dict[str, Any]) -> Sharding:
    return Sharding(**case["zero"])


def make_training(comm: Any, case: dict[str, Any]) -> ZeroDataParallel:
    """Return this rank's sharded training, at step 0."""
    backend, recipe = create(comm.backend), recipe_of(case)
    model = ShardedModel(backend, recipe, comm, sharding_of(case))
    training = ZeroDataParallel(backend, model, comm, Aggregation(), seed=split.SEED)
    training.load(*start_of(case), 0)
    return training


def start_of(case: dict[str, Any]) -> tuple[Any, Any]:
    """Return weights and state before the first update."""
    recipe = recipe_of(case)
    return recipe.weights, recipe.initial_state()


def train(comm: Any, argument: dict[str, Any]) -> list[dict[str, Any]]:
    """Run every case: write arrays to ``folder``, and return bytes held and sent per case."""
    told = list[dict[str, Any]]()
    for number, case in enumerate(argument["cases"]):
        try:
            training = make_training(comm, case)
        except Unsupported as reason:
            told.append({"unsupported": str(reason)})
            continue
        found = split.collect_results(training, case, training.mean_losses)
        np.savez(Path(argument["folder"]) / f"case{number}.rank{comm.rank}.npz", **found)
        batch = split.batches(case)[0]
        memory = asdict(training.measure_memory(batch))
        training.load(*start_of(case), 0)
        comm.traffic.reset()
        training.step(batch, 1)
        width = widths(training.backend, case)[0]
        sent = [comm.traffic.bytes_sent / width, comm.traffic.bytes_received / width]
        told.append({"memory": memory, "moved": sent, "calls": comm.traffic.calls})
        comm.barrier()
    return told


def resumed(comm: Any, argument: dict[str, Any]) -> dict[str, list[float]]:
    """Train the first updates in one layout and the others in another, from weights and state
    alone."""
    case, other = argument["case"], {**argument["case"], "zero": argument["then"]}
    own, half = split.batches(case), len(case["sizes"]) // 2
    first, second = make_training(comm, case), make_training(comm, other)
    for step, batch in enumerate(own[:half], start=1):
        first.step(batch, step)
    second.load(first.model.weights(), first.state(), half)
    for step, batch in enumerate(own[half:], start=half + 1):
        second.step(batch, step)
    return {name: w.ravel().tolist() for name, w in second.model.weights().items()}


def expected(case: dict[str, Any]) -> split.Arrays:
    """Return the results of the whole model, trained by the reference without sharding."""
    return split.collect_results(
        NumpyTraining(replace(recipe_of(case), recompute=())), case, np.array
    )


def widths(backend: Any, case: dict[str, Any]) -> tuple[int, int]:
    """Return the bytes of an unsharded weight or gradient element, and of a state element."""
    wide = np.dtype(backend.dtype).itemsize
    return 2 if sharding_of(case).lower and backend.name != "numpy" else wide, wide


def forms(case: dict[str, Any], n: int) -> tuple[Any, int]:
    """Return what a rank must hold, in elements, and send in the update of the first batch."""
    sharding, rule = sharding_of(case), rule_of(case["optimizer"])
    units = units_of(split.spec_of(case), sharding.bucket_bytes, n)
    most = max(part_lengths(case["sizes"][0], n))
    rounds = math.ceil(most / case.get("chunk", CHUNK))
    own = estimate_sharded_memory(
        units, n, sharding.stage, len(rule.state_keys), sharding.buffer_slots, sharding.lower
    )
    return own, communication_volume(units, n, sharding, rounds)
