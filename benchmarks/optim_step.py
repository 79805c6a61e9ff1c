"""One optimizer step of ours against the frameworks' own, for given gradients.

    python benchmarks/optim_step.py --backend torch [--quick] [--json]

torch: eager against ``torch.optim(foreach=True)``, compiled against ``torch.optim(fused=True)``.
MindSpore: against ``nn.SGD``, ``nn.Momentum``, ``nn.Adam``, ``nn.AdamWeightDecay``, compiled, where
they do the same work (their Adam has another epsilon and no decoupled decay with bias correction).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from ratio_rows import RatioRow, make_row

from dualml.common.machine import default_threads
from dualml.interface.bench.timing import time_interleaved

SIZES: dict[str, list[tuple[int, ...]]] = {
    "LeNet, 52 thousand": [
        *((6, 1, 5, 5), (6,), (16, 6, 5, 5), (16,)),
        *((120, 400), (120,), (10, 120), (10,)),
    ],
    "MLP, 10 million": [
        *((2048, 784), (2048,), (2048, 2048), (2048,)),
        *((2048, 2048), (2048,), (10, 2048), (10,)),
    ],
}
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {"lr": 0.01}),
    "SGD, momentum 0.9": ("SGD", {"lr": 0.01, "momentum": 0.9}),
    "Adam": ("Adam", {"lr": 1e-3}),
    "AdamW": ("AdamW", {"lr": 1e-3, "weight_decay": 0.01}),
}


def arrays(size: str, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) for shape in SIZES[size]]


def timed(step: Callable[[], Any], size: str, wait: Callable[[], Any]) -> Callable[[], float]:
    """Return a round of a variant: the milliseconds per step."""
    steps = 20 if size.startswith("LeNet") else 5

    def run_once() -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        return (time.perf_counter() - begin) * 1e3 / steps

    return run_once


CALL = (
    "compiled code is called through the framework's runtime wrapper, some 10 µs more than the one "
    "C++ call of a fused kernel; the update itself is shorter than that"
)
BANDWIDTH = "both wait for the memory: a tie, which moves by some hundredths from run to run"


def rows_torch(rounds: int = 25) -> list[RatioRow]:
    import torch

    import dualml_torch.algorithms.optim as ours

    torch.set_num_threads(default_threads())
    section = "optimizer step, torch"
    rows = []
    for size in SIZES:
        # All variants update the same memory, aligned as torch aligns it: where a tensor of 16 MB
        # happens to lie shifts the time of one pass over it by more than the optimizers differ.
        params = [torch.nn.Parameter(torch.tensor(a)) for a in arrays(size, 0)]
        for p, g in zip(params, arrays(size, 1), strict=True):
            p.grad = torch.tensor(g)

        def step(make: Callable[..., Any], size=size, params=params, **fields: Any) -> Callable:
            return timed(make(params, **fields).step, size, lambda: None)

        for what, (name, fields) in RULES.items():
            mine, theirs = getattr(ours, name), getattr(torch.optim, name)
            times = time_interleaved(
                {
                    "eager": step(mine, **fields),
                    "foreach": step(theirs, foreach=True, **fields),
                    "compiled": step(mine, compiled=True, **fields),
                    "fused": step(theirs, fused=True, **fields),
                },
                rounds,
            )
            title = f"{what}, {size}"
            rows += [
                make_row(
                    section,
                    f"{title}, eager",
                    "torch.optim foreach",
                    times,
                    "eager",
                    "foreach",
                    target=1.0,
                ).with_reason(BANDWIDTH),
                make_row(
                    section,
                    f"{title}, compiled",
                    "torch.optim fused",
                    times,
                    "compiled",
                    "fused",
                    target=1.1,
                ).with_reason(CALL if size.startswith("LeNet") else BANDWIDTH),
            ]
    return rows


def rows_mindspore(rounds: int = 25) -> list[RatioRow]:
    from dualml_ms.common.environ import environ

    for name, value in environ(default_threads()).items():
        os.environ.setdefault(name, value)
    import mindspore as ms
    from mindspore import nn

    import dualml_ms.algorithms.optim as ours

    ms.set_context(mode=ms.GRAPH_MODE)
    section = "optimizer step, mindspore"
    theirs = {
        "SGD": ("nn.SGD", lambda p: nn.SGD(p, 0.01)),
        "SGD, momentum 0.9": ("nn.Momentum", lambda p: nn.Momentum(p, 0.01, 0.9)),
        "Adam": ("nn.Adam", lambda p: nn.Adam(p, 1e-3)),
        "AdamW": ("nn.AdamWeightDecay", lambda p: nn.AdamWeightDecay(p, 1e-3, weight_decay=0.01)),
    }
    rows = []
    for size in SIZES:
        grads = tuple(ms.Tensor(a) for a in arrays(size, 1))

        def step(make: Callable[..., Any], size=size, grads=grads, **fields: Any) -> Callable:
            params = [
                ms.Parameter(ms.Tensor(a), name=f"p{i}") for i, a in enumerate(arrays(size, 0))
            ]
            optimizer = make(params, **fields)
            return timed(lambda: optimizer(grads), size, ms.runtime.synchronize)

        for what, (name, fields) in RULES.items():
            against, make = theirs[what]
            times = time_interleaved(
                {"ours": step(getattr(ours, name), **fields), "theirs": step(make)}, rounds
            )
            rows.append(
                make_row(section, f"{what}, {size}", against, times, "ours", "theirs", target=1.1)
            )
    return rows


def rows(backend: str, rounds: int = 25) -> list[RatioRow]:
    """Return all rows of one backend, measured in this process."""
    return {"torch": rows_torch, "mindspore": rows_mindspore}[backend](rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=["torch", "mindspore"], required=True)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = rows(args.backend, 5 if args.quick else 25)
    if args.json:
        print(json.dumps([one.describe() for one in found]))
        return
    for one in found:
        quartiles = f"[{one.ratio.low:.2f}, {one.ratio.high:.2f}]"
        print(
            f"{one.what:48} {one.ours:9.3f} ms  {one.against:20} {one.other:9.3f} ms  "
            f"ratio {one.ratio.median:.2f} {quartiles}  target {one.target}  "
            f"{'met' if one.meets_target else 'MISSED'}"
        )


if __name__ == "__main__":
    main()
