"""Data-parallel training on the ranks of any backend, and the same rules written out in NumPy.

`train` runs on every rank (see `dualml.launch.ranks`). `expected` returns the correct result,
computed by loops that share only the model's gradient with the code under test.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from conformance.backends import create

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.optim import rule_from
from dualml.backend import GradientAccess, TrainingSpec
from dualml.backend.reference.model import Model
from dualml.common.seeds import make_generator
from dualml.parallel.aggregation.buckets import bucket_layout
from dualml.parallel.aggregation.scheme import parallel_trainer_class
from dualml.parallel.aggregation.settings import Aggregation

LR, STEPS, SAMPLES = 0.1, 6, 40
SPEC = model("softmax")
Weights = dict[str, np.ndarray]


def data() -> tuple[np.ndarray, np.ndarray]:
    draw = make_generator(0, "conformance", "parallel")
    x = draw.normal(size=(SAMPLES, *SPEC.input_shape)).astype(np.float32)
    return x, draw.integers(0, 10, SAMPLES)


def batches(sizes: list[int]) -> list[np.ndarray]:
    """Return global batches of these sizes, cycling through the data."""
    draw = make_generator(0, "conformance", "batches")
    return [draw.permutation(SAMPLES)[: sizes[i % len(sizes)]] for i in range(STEPS)]


def train(comm: Any, argument: dict[str, Any]) -> list[dict[str, Any]]:
    """Run every case of ``argument``; return its losses, final weights, and the server's update
    log."""
    backend, (x, y) = create(comm.backend), data()
    found = []
    rule, weights = rule_from({"name": "sgd", "lr": LR}), initial_weights(SPEC, 0)
    training = backend.training(
        TrainingSpec(spec=SPEC, weights=weights, rule=rule, x=x, y=y, updates=STEPS * comm.size)
    )
    made: dict[int, Any] = {}  # once for all cases: MindSpore compiles every new cell
    for case in argument["cases"]:
        settings = Aggregation(**case["aggregation"])
        limit = settings.bucket_bytes
        if limit not in made:
            made[limit] = training.require_capability(GradientAccess).make_buckets(
                bucket_layout(SPEC.parameters(), limit)
            )
        pieces = made[limit]
        parallel = parallel_trainer_class(settings)(backend, training, pieces, comm, settings)
        parallel.load(weights, rule.init(start()), 0)
        lazy = [parallel.step(b, t) for t, b in enumerate(batches(case["sizes"]), start=1)]
        found.append(
            {
                "losses": parallel.mean_losses(lazy).tolist(),
                "weights": {n: w.ravel().tolist() for n, w in training.weights().items()},
                "served": getattr(parallel, "update_log", []),
            }
        )
        comm.barrier()
    return found


def gradient(weights: Weights, part: np.ndarray) -> tuple[float, Weights]:
    """Return loss and gradient of a part of the batch; an empty part has zero gradient."""
    x, y = data()
    if not len(part):
        return 0.0, {name: np.zeros_like(w) for name, w in weights.items()}
    return Model(SPEC, weights).loss_and_gradients(x[part], y[part], "cross_entropy")


def add(weights: Weights, gradients: Weights, factor: float) -> Weights:
    return {name: w + factor * gradients[name] for name, w in weights.items()}


def start() -> Weights:
    return {name: w.astype(np.float64) for name, w in initial_weights(SPEC, 0).items()}


def parts(batch: np.ndarray, n: int) -> list[np.ndarray]:
    return np.array_split(batch, n)


def single(sizes: list[int]) -> tuple[list[float], Weights]:
    """Train one worker on the whole batch."""
    w, losses = start(), []
    for batch in batches(sizes):
        loss, g = gradient(w, batch)
        losses.append(loss)
        w = add(w, g, -LR)
    return losses, w


def combined(sizes: list[int], n: int, reduce: str) -> tuple[list[float], Weights]:
    """Train on the sum, or the plain mean, of the ranks' mean gradients."""
    w, losses = start(), []
    for batch in batches(sizes):
        told = [(len(p), *gradient(w, p)) for p in parts(batch, n)]
        losses.append(sum(k * loss for k, loss, _ in told) / len(batch))
        for _, _, g in told:
            w = add(w, g, -LR / (n if reduce == "mean" else 1))
    return losses, w


def compared(sizes: list[int], n: int, reduce: str, of: str) -> Weights:
    """Train on the elementwise sum, maximum or median of the ranks' mean gradients, or of their
    parameters after a local update."""
    over = {"sum": np.sum, "max": np.max, "median": np.median}[reduce]
    w = start()
    for batch in batches(sizes):
        gradients = [gradient(w, part)[1] for part in parts(batch, n)]
        if of == "gradients":
            found = {name: over([g[name] for g in gradients], axis=0) for name in w}
            w = add(w, found, -LR)
            continue
        # A rank without samples makes no update.
        mine = [
            add(w, g, -LR if len(p) else 0.0)
            for g, p in zip(gradients, parts(batch, n), strict=True)
        ]
        w = {name: over([m[name] for m in mine], axis=0) for name in w}
    return w


def averaged(sizes: list[int], n: int, every: int, neighbours: bool) -> list[Weights]:
    """Return every rank's parameters after local updates and averaging."""
    mine = [start() for _ in range(n)]
    mixing = np.full((n, n), 1 / n)
    if neighbours:
        mixing = np.zeros((n, n))
        for r in range(n):
            near = {(r - 1) % n, r, (r + 1) % n}
            mixing[r, list(near)] = 1 / len(near)
    for t, batch in enumerate(batches(sizes), start=1):
        mine = [add(w, gradient(w, p)[1], -LR) for w, p in zip(mine, parts(batch, n), strict=True)]
        if t % every == 0:
            mine = [
                {name: sum(mixing[r, q] * mine[q][name] for q in range(n)) for name in mine[r]}
                for r in range(n)
            ]
    return mine


def simulate_server(sizes: list[int], n: int, order: list[list[int]]) -> tuple[Weights, list[int]]:
    """Return the server's parameters after the updates ``order`` (step, rank, …), and their
    staleness."""
    server, told = start(), []
    held = [(server, 0)] * n
    all_batches = batches(sizes)
    for version, (step, rank, *_) in enumerate(order):
        batch = all_batches[step - 1]
        part = parts(batch, n)[rank]
        w, since = held[rank]
        told.append(version - since)
        server = add(server, gradient(w, part)[1], -LR * len(part) / len(batch))
        held[rank] = (server, version + 1)
    return server, told


def top(sizes: list[int], n: int, fraction: float) -> Weights:
    """Train with top-k sparsification and error feedback, all parameters as one vector."""
    w = start()
    kept = [np.zeros(sum(v.size for v in w.values())) for _ in range(n)]
    k = int(np.ceil(fraction * len(kept[0])))
    for batch in batches(sizes):
        total = np.zeros_like(kept[0])
        for r, part in enumerate(parts(batch, n)):
            share = len(part) / len(batch)
            flat = np.concatenate([g.ravel() for g in gradient(w, part)[1].values()])
            p = kept[r] + share * flat
            largest = np.argsort(-np.abs(p), kind="stable")[:k]
            total[largest] += p[largest]
            p[largest] = 0
            kept[r] = p
        ends = np.cumsum([v.size for v in w.values()])[:-1]
        split = np.split(total, ends)
        w = {
            name: v - LR * g.reshape(v.shape) for (name, v), g in zip(w.items(), split, strict=True)
        }
    return w
