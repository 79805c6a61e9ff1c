"""Run a student's MindSpore code on inputs that the judge has drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import ops

from dualml_ms.course.drive_accumulation import accumulate as accumulate
from dualml_ms.course.drive_bottleneck import balanced as balanced
from dualml_ms.course.drive_bottleneck import diagnose as diagnose
from dualml_ms.course.drive_bottleneck import measure as measure
from dualml_ms.course.drive_bottleneck import split as split
from dualml_ms.course.drive_checkpoint import checkpoint as checkpoint
from dualml_ms.course.drive_group import cluster as cluster
from dualml_ms.course.drive_lab2 import aggregate as aggregate
from dualml_ms.course.drive_lab2 import measured as measured
from dualml_ms.course.drive_lab2 import ring as ring
from dualml_ms.course.drive_lab3 import same_start as same_start
from dualml_ms.course.drive_lab3 import sampler as sampler
from dualml_ms.course.drive_lab3 import train_steps as train_steps
from dualml_ms.course.drive_lab4 import layer as layer
from dualml_ms.course.drive_lab4 import stages as stages
from dualml_ms.course.drive_loader import loader as loader
from dualml_ms.course.drive_memory import zero as zero
from dualml_ms.course.drive_methods import scaler as scaler
from dualml_ms.course.drive_server import rows as rows
from dualml_ms.course.sealed import seal as seal

Arrays = Mapping[str, Any]


def to_array(x: Any) -> Any:
    """Return a copy of a tensor, or of anything else that NumPy converts, as an array."""
    return x.asnumpy().copy() if hasattr(x, "asnumpy") else np.array(x)


def to_tensor(a: Any, like: Any) -> ms.Tensor:
    """Return an array as a new tensor of the dtype of ``like``."""
    return ms.Tensor(np.array(a)).astype(like.dtype)


def fill(a: Any, buffer: ms.Tensor) -> ms.Tensor:
    """Return an array as a new tensor of the dtype of ``buffer``, which is itself left alone:
    pending operations may still read it."""
    return to_tensor(a, buffer)


MODES = {"pynative": ms.PYNATIVE_MODE, "graph": ms.GRAPH_MODE}


def optimizer(module: Any, target: str, options: Mapping[str, Any], arrays: Arrays) -> Arrays:
    """Run a student's optimizer, the class ``target`` of ``module``; ``3/w`` of the result is
    parameter w after update 3. With the option ``optimizers`` there are several, each for its
    parameters and updates; with ``unchanged`` the result also has what the optimizers were given,
    as it is after the updates: gradients ``3/w.grad``, list of ``parameters`` (their numbers),
    learning rate ``lr``."""
    ms.set_context(mode=MODES[options.get("mode", "pynative")])
    names = [key[2:] for key in arrays if key.startswith("p/")]
    own = {n: ms.Parameter(ms.Tensor(arrays[f"p/{n}"]), name=n) for n in names}
    params = list(own.values())
    make = getattr(module, target)
    alone = {"hyper": options["hyper"], "first": 1, "last": options["steps"]}
    plans = options.get("optimizers", [alone])
    opts: dict[int, Any] = {}
    out: dict[str, Any] = {}
    for step in range(1, options["steps"] + 1):
        for i, plan in enumerate(plans):
            if plan["first"] == step:
                hyper = hyperparameters(plan["hyper"])
                rate = hyper.pop("lr")
                if "rates" in options:
                    rate = [float(lr) for lr in options["rates"]]
                given = [own[n] for n in plan["names"]] if "names" in plan else params
                opts[i] = make(given, rate, **hyper)
        for i, opt in opts.items():
            if not plans[i]["first"] <= step <= plans[i]["last"]:
                continue
            mine = {n: own[n] for n in plans[i].get("names", names)}
            gradients = tuple(ms.Tensor(arrays[f"g/{step}/{n}"]) for n in mine)
            opt(gradients)
            out |= {f"{step}/{n}": to_array(p).astype(np.float32) for n, p in mine.items()}
            if options.get("unchanged"):
                left = zip(mine, gradients, strict=True)
                out |= {f"{step}/{n}.grad": to_array(g) for n, g in left}
    if options.get("unchanged"):
        place = {id(p): i for i, p in enumerate(own.values())}
        out["parameters"] = np.array([place.get(id(p), -1) for p in params], np.float32)
        out["lr"] = np.array(options["hyper"]["lr"], np.float32)  # a constant of the optimizer
    return out


def hyperparameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return hyperparameters read from JSON, with lists (betas) as tuples."""
    return {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}


def training(module: Any, target: str, options: Mapping[str, Any], arrays: Arrays) -> Arrays:
    """Train a softmax regression with a student's optimizer on the batches of ``order`` (one row of
    sample indices per update), or each time on all samples with the option ``whole``; return
    ``losses``, the mean losses before each update."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    weight, bias = (ms.Parameter(ms.Tensor(arrays[n]), name=n) for n in ("weight", "bias"))
    hyper = hyperparameters(options["hyper"])
    opt = getattr(module, target)([weight, bias], hyper.pop("lr"), **hyper)

    def loss_of(x, y):
        return ops.cross_entropy(ops.matmul(x, weight) + bias, y)

    # Compiled: operation by operation an update takes ten times as long.
    gradient = ms.jit(ms.value_and_grad(loss_of, None, [weight, bias]))
    x, y = arrays["x"], arrays["y"].astype(np.int32)
    losses = []
    for batch in arrays["order"]:
        at = slice(None) if options["whole"] else batch
        loss, gradients = gradient(ms.Tensor(x[at]), ms.Tensor(y[at]))
        opt(gradients)
        losses.append(float(loss.asnumpy()))
    return {"losses": np.array(losses)}
