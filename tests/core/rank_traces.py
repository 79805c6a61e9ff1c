"""Traces of ranks as arrays: a linear layer whose loss is a mean over tokens, in NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import Trace, array_key, hash_array
from dualml.parity.ranks.rank_files import RankFacts, RankRecording
from dualml.parity.ranks.shards import ShardPlace

DRAW = np.random.default_rng(7)
WEIGHTS = {
    "fc.weight": DRAW.normal(size=(4, 3)).astype(np.float32),
    "fc.bias": DRAW.normal(size=4).astype(np.float32),
}
#: Gradients of the mean loss of each rank's tokens, and the numbers of tokens.
LOCAL = [
    {name: DRAW.normal(size=w.shape).astype(np.float32) for name, w in WEIGHTS.items()}
    for _ in range(2)
]
TOKENS = (30.0, 10.0)
X = DRAW.normal(size=(8, 3)).astype(np.float32)
RATE = 0.1
Named = Mapping[str, Any]


def mean_of(arrays: Sequence[Named], weights: Sequence[float] = (1.0, 1.0)) -> dict[str, Any]:
    """Return the weighted mean of gradients by name, in float32."""
    total = sum(weights)
    return {
        name: sum(
            w / total * one[name].astype(np.float64) for one, w in zip(arrays, weights, strict=True)
        ).astype(np.float32)
        for name in arrays[0]
    }


def make_trace(
    gradients: Named,
    *,
    x: Any = X,
    rates: Sequence[float] = (RATE,),
    loss: float = 1.0,
    local: Sequence[Named] = (),
    weights: Sequence[float] = (),
    start: Named = WEIGHTS,
    outputs: Named | None = None,
    buffers: Named | None = None,
) -> Trace:
    """Return a trace of as many steps as there are rates; all steps have the same gradients.

    Args:
        local: of a rank, the gradients of each micro-batch before ranks exchange theirs.
        weights: of the losses of the micro-batches.
    """
    steps = len(rates)
    made = Trace(
        "torch",
        {"device": "cpu"},
        [Tensor(name, w.shape) for name, w in start.items()]
        + [Tensor(name, b.shape, trained=False) for name, b in (buffers or {}).items()],
        {"fc": "Linear"},
        steps=steps,
        inputs=[[hash_array(x)]] * steps,
    )
    arrays: dict[str, Any] = {}
    made.arrays = arrays
    current = dict(start)
    for name, w in start.items():
        arrays[array_key("parameters", 0, name)] = w
    for name, b in (buffers or {}).items():
        arrays[array_key("parameters", 0, name)] = np.zeros_like(b)
    for step, rate in enumerate(rates, 1):
        found = outputs or {"fc": x @ WEIGHTS["fc.weight"].T, "(output)": x}
        made.order.append(list(found))
        for name, value in found.items():
            arrays[array_key("forward", step, name)] = value
        arrays[array_key("loss", step, "loss")] = np.float64(loss)
        arrays[array_key("schedule", step, "lr")] = np.array([rate])
        arrays[array_key("input", step, "0")] = x
        for number, one in enumerate(local, 1):
            for name, g in one.items():
                tail = f"#{number}" if number > 1 else ""
                arrays[array_key("local", step, name + tail)] = g
        if weights:
            rows = [[loss, weight] for weight in weights]
            arrays[array_key("weight", step, "losses")] = np.array(rows)
        for name, g in gradients.items():
            arrays[array_key("gradient", step, name)] = g
            current[name] = (current[name] - np.float32(rate) * g).astype(np.float32)
            arrays[array_key("update", step, name)] = current[name]
        for name, b in (buffers or {}).items():
            arrays[array_key("state", step, f"buffer/{name}")] = b
    return made


def record(
    traces: Sequence[Trace], places: Sequence[Mapping[str, ShardPlace]] = ()
) -> list[RankRecording]:
    """Return what the ranks with these traces recorded."""
    return [
        RankRecording(
            RankFacts(
                recording=1,
                rank=rank,
                ranks=len(traces),
                planned=trace.steps,
                steps=trace.steps,
                complete=True,
                places=dict(places[rank]) if places else {},
            ),
            trace,
        )
        for rank, trace in enumerate(traces)
    ]


def data_parallel(gradients: Named, **options: Any) -> list[RankRecording]:
    """Return what two ranks recorded that have half of the batch each, and these gradients."""
    return record(
        [
            make_trace(gradients, x=half, local=[own], weights=[tokens], **options)
            for half, own, tokens in zip(np.split(X, 2), LOCAL, TOKENS, strict=True)
        ]
    )


def shard_rows(name: str, rank: int, *, phase: str) -> tuple[str, ShardPlace]:
    """Return the key and the place of a rank's half of the rows of a parameter."""
    whole = WEIGHTS[name].shape
    offset = (rank * whole[0] // 2, *(0,) * (len(whole) - 1))
    return f"{phase}/{name}", ShardPlace(shape=whole, offset=offset)


def fully_sharded(gradients: Sequence[Named]) -> list[RankRecording]:
    """Return what two ranks recorded that have half of the rows of every parameter each; of rank
    r's gradients its half counts."""

    def cut(values: Named, rank: int) -> dict[str, Any]:
        return {name: np.split(value, 2)[rank] for name, value in values.items()}

    traces = [
        make_trace(cut(gradients[rank], rank), x=half, start=cut(WEIGHTS, rank))
        for rank, half in enumerate(np.split(X, 2))
    ]
    phases = ("parameters", "gradient", "update")
    places = [
        dict(shard_rows(name, rank, phase=phase) for name in WEIGHTS for phase in phases)
        for rank in range(2)
    ]
    return record(traces, places)
