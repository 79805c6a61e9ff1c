"""Training by remote procedure calls on the ranks of a group, and on one rank without calls."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import psutil
import torch
import torch.distributed.rpc as rpc

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.model.zoo import rnn_lm_dropout
from dualml.algorithms.optim import LRSchedule, rule_from
from dualml.algorithms.precision import Precision
from dualml.backend import TrainingSpec, backends
from dualml.experiment.split import Split

STEPS, SAMPLES, BATCH = 4, 40, 17
RULES = {"sgd": {"name": "sgd", "lr": 0.1}, "adam": {"name": "adam", "lr": 0.01}}
FALLING = LRSchedule(kind="cosine")


def spec_of(name: str) -> Any:
    return rnn_lm_dropout(words=11, length=5) if name == "rnn" else model(name)


def data(spec: Any, enlarged: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    if spec.takes_tokens:
        x = draw.integers(0, 11, (SAMPLES, 5)).astype(np.int32)
        return x, draw.integers(0, 11, (SAMPLES, 5))
    x = enlarged * draw.normal(size=(SAMPLES, *spec.input_shape)).astype(np.float32)
    return x, draw.integers(0, 10, SAMPLES)


def observe_training(training: Any, case: dict[str, Any]) -> dict[str, Any]:
    """Return losses, a trace, an evaluation, weights and state of a few updates, as lists."""
    spec, rule = spec_of(case["model"]), rule_from(RULES[case["rule"]])
    weights, (x, y) = initial_weights(spec, 0), data(spec, case.get("enlarged", 1.0))
    start = rule.init({name: w.astype(np.float64) for name, w in weights.items()})
    batches = [np.random.default_rng(t).permutation(SAMPLES)[:BATCH] for t in range(STEPS + 1)]
    read = case["read"] if callable(case.get("read")) else training.materialize_losses
    for _ in range(2):  # the second time from the start again
        training.load(weights, start, 0)
        losses = read([training.step(batches[t], t) for t in range(1, STEPS + 1)])
    found = training.trace(batches[0], batches[0][:3])
    loss, classes = training.evaluate(x[:9], y[:9])
    middle = training.state()
    training.load(training.weights(), middle, STEPS)
    return {
        "losses": losses.tolist(),
        "trace": [found.data, found.loss],
        "gradients": {n: g.tolist() for n, g in found.gradients.items()},
        "activations": {n: a.tolist() for n, a in found.activations.items()},
        "evaluation": [loss, classes.tolist()],
        "weights": {n: w.tolist() for n, w in training.weights().items()},
        "state": {s: {n: a.tolist() for n, a in d.items()} for s, d in training.state().items()},
    }


def recipe_of(case: dict[str, Any], spec: Any) -> TrainingSpec:
    x, y = data(spec, case.get("enlarged", 1.0))
    return TrainingSpec(
        spec=spec,
        weights=initial_weights(spec, 0),
        rule=rule_from(RULES[case["rule"]]),
        schedule=FALLING,
        x=x,
        y=y,
        updates=STEPS + 1,
        seed=5,
        precision=Precision(*case.get("precision", ())),
    )


def make_training(comm: Any, case: dict[str, Any]) -> tuple[Any, Any]:
    backend, spec = backends()[comm.backend].create("cpu", 1), spec_of(case["model"])
    plan = Split(**case["split"]).plan(spec, comm.size)
    return plan, backend.rpc(plan, comm, recipe_of(case, spec))


def train(comm: Any, argument: dict[str, Any]) -> list[dict[str, Any]]:
    """Train every case by calls; return the results, the location of parameters, and how ranks
    serve."""
    found = []
    for case in argument["cases"]:
        plan, training = make_training(comm, case)
        told = observe_training(training, case)
        own: dict[str, Any] = {"kinds": [row[1] for row in training.executor.timeline.rows]}
        if training.is_driver:
            every = [training.call_stage(stage, "parameters")() for stage in training.stages]
            own["held"] = [(n, p.owner().id) for part in every for n, p in part.items()]
            names = [f"rank{rank}" for rank in range(comm.size)]
            own["threads"] = [rpc.rpc_sync(name, threads) for name in names]
            own["optimizers"] = len(training.optimizers)
        comm.barrier()  # nobody leaves while he is asked
        found.append(told | {"driver": plan.driver, "own": own, "listening": listening()})
    return found


def threads() -> int:
    return torch.get_num_threads()


def listening() -> list[str]:
    """Return the addresses where this process accepts connections."""
    there = psutil.Process().net_connections("inet")
    return sorted({c.laddr.ip for c in there if c.status == psutil.CONN_LISTEN})


def run_on_one_rank(case: dict[str, Any]) -> dict[str, Any]:
    """Train the case on one rank, in this process."""
    backend, spec = backends()["torch"].create("cpu", 1), spec_of(case["model"])
    training = backend.training(recipe_of(case, spec))
    return observe_training(training, case | {"read": backend.materialize_losses})


def dies(comm: Any, argument: dict[str, Any]) -> None:
    """Kill one rank while the driver continues calling."""
    _, training = make_training(comm, argument)
    training.load(initial_weights(spec_of(argument["model"]), 0), {}, 0)
    comm.barrier()
    if comm.rank == argument["rank"]:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
    for _ in range(100000):
        training.step(np.arange(BATCH), 1)
        if not training.is_driver:
            comm.barrier()


def fails(comm: Any, argument: dict[str, Any]) -> None:
    """Make a call that cannot be served, or that takes too long."""
    _, training = make_training(comm, argument)
    if training.is_driver:
        last = training.stages[-1]
        training.call_on_owner(last, sleep)() if argument["late"] else training.call_stage(
            last, "nothing"
        )()
    elif argument["late"]:
        time.sleep(60)  # else it would be the first to give up
    comm.barrier()


def sleep(stage: Any) -> None:
    time.sleep(60)
