"""Hand-made traces: `a` as from PyTorch, `b` as from MindSpore with a transposed matrix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import Trace, array_key


def trace(noise: float = 0.0, *, other: bool = False, steps: int = 2) -> Trace:
    base, error = np.random.default_rng(1), np.random.default_rng(2)
    names = {"norm.weight": (3,), "norm.bias": (3,), "fc.weight": (2, 3), "fc.bias": (2,)}
    mine = {"norm.weight": "norm.gamma", "norm.bias": "norm.beta"} if other else {}

    def array(shape: tuple[int, ...], off: float) -> Any:
        x = base.normal(size=shape).astype(np.float32)
        return x * (1 + off * error.uniform(-1, 1, shape)).astype(np.float32)

    made = Trace(
        framework="mindspore" if other else "torch",
        environment={"device": "cpu"},
        tensors=[
            Tensor(mine.get(n, n), s[::-1] if other and n == "fc.weight" else s)
            for n, s in names.items()
        ],
        modules={"norm": "LayerNorm", "fc": "Dense" if other else "Linear"},
        steps=steps,
        inputs=[["x", "y"]] * steps,
        order=[["norm", "fc", "(output)"]] * steps,
        envelope={},
        draws=3,
        repeated=True,
    )

    def add_tensor(phase: str, step: int, name: str, shape: tuple[int, ...], off: float) -> None:
        value = array(shape, off)
        tensor = name.rpartition("/")[2]
        own = name.replace(tensor, mine.get(tensor, tensor))
        turned = other and tensor == "fc.weight"
        made.arrays[array_key(phase, step, own)] = value.T if turned else value
        assert made.envelope is not None
        if phase != "parameters":
            made.envelope[array_key(phase, step, own)] = 1e-6

    for name, shape in names.items():
        add_tensor("parameters", 0, name, shape, 0)
    for step in range(1, steps + 1):
        for name, width in (("norm", 3), ("fc", 2), ("(output)", 2)):
            add_tensor("forward", step, name, (4, width), noise)
        add_tensor("loss", step, "loss", (), noise)
        for name, shape in names.items():
            add_tensor("gradient", step, name, shape, noise)
        for name, shape in names.items():
            add_tensor("update", step, name, shape, noise)
            add_tensor("state", step, f"exp_avg/{name}", shape, noise)
    return made


def spoiled(change: Callable[[Any], Any], phase: str, step: int, name: str) -> Trace:
    made = trace(1e-7, other=True)
    where = array_key(phase, step, name)
    made.arrays[where] = np.asarray(change(made.arrays[where].copy()))
    return made


def scale_slightly(x: Any) -> Any:
    return x * 1.001


def set_nan(x: Any) -> Any:
    x.flat[1] = np.nan
    return x


def write_trace(folder: Path, made: Trace) -> Path:
    made.write(folder)
    return folder
