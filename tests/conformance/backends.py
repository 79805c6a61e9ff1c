"""The backends a conformance test runs on, and the comparison that it rests on.

A backend whose framework is missing is skipped, unless the environment variable
``DUALML_REQUIRE`` (a comma list of backend names) says that it must be there.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dualml.optim import Rule

Params = dict[str, np.ndarray]
Gradient = Callable[[Params, int], Params]  # (parameters, step from 1) → gradient


def require(framework: str) -> Any:
    """Import ``framework`` or skip the test; fail where ``DUALML_REQUIRE`` lists it."""
    if framework in os.environ.get("DUALML_REQUIRE", "").split(","):
        return importlib.import_module(framework)
    return pytest.importorskip(framework, reason=f"{framework} is not installed")


@dataclass(frozen=True)
class Run:
    """Where an optimizer ended up: parameters and slot → name → state."""

    params: Params
    state: dict[str, Params]


def run_numpy(
    rule: Rule, start: Params, gradient: Gradient, steps: int, rates: list[float] | None = None
) -> Run:
    """The float64 recurrence itself."""
    params, state = start, rule.init(start)
    for step in range(1, steps + 1):
        lr = None if rates is None else rates[step - 1]
        params, state = rule.update(params, gradient(params, step), state, step, lr)
    return Run(params, state)


def run_torch(
    rule: Rule,
    start: Params,
    gradient: Gradient,
    steps: int,
    rates: list[float] | None = None,
    dtype: str = "float32",
    compiled: bool = False,
) -> Run:
    torch = require("torch")
    from dualml_torch.optim import optimizer, state

    kind = getattr(torch, dtype)
    params = {n: torch.nn.Parameter(torch.tensor(a, dtype=kind)) for n, a in start.items()}
    opt = optimizer(rule, list(params.values()), compiled=compiled)
    for step in range(1, steps + 1):
        now = {n: p.detach().numpy().astype(np.float64) for n, p in params.items()}
        for n, g in gradient(now, step).items():
            params[n].grad = torch.tensor(g, dtype=kind)
        if rates is not None:
            opt.param_groups[0]["lr"] = rates[step - 1]
        opt.step()
    return Run({n: p.detach().numpy() for n, p in params.items()}, state(opt, list(params)))


def run_mindspore(
    rule: Rule,
    start: Params,
    gradient: Gradient,
    steps: int,
    rates: list[float] | None = None,
    graph: bool = True,
) -> Run:
    ms = require("mindspore")
    from dualml_ms.optim import optimizer, state

    ms.set_context(mode=ms.GRAPH_MODE if graph else ms.PYNATIVE_MODE)
    params = {n: ms.Parameter(ms.Tensor(a, ms.float32), name=n) for n, a in start.items()}
    opt = optimizer(rule, list(params.values()), rates)
    for step in range(1, steps + 1):
        now = {n: p.asnumpy().astype(np.float64) for n, p in params.items()}
        opt(tuple(ms.Tensor(g, ms.float32) for g in gradient(now, step).values()))
    return Run({n: p.asnumpy() for n, p in params.items()}, state(opt, list(params)))


def assert_same(found: Run, expected: Run, tolerance: float) -> None:
    """Every parameter and state tensor within ``tolerance`` × (largest |entry| of the expected).

    Entries of one tensor come from the same recurrence, so their rounding scales with the tensor.
    """
    assert found.state.keys() == expected.state.keys()
    pairs: list[tuple[str, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]] = [
        ("parameter", found.params, expected.params)
    ]
    pairs += [(slot, found.state[slot], expected.state[slot]) for slot in expected.state]
    for kind, mine, theirs in pairs:
        assert mine.keys() == theirs.keys()
        for name, want in theirs.items():
            assert mine[name].shape == want.shape, (kind, name)
            distance = np.abs(mine[name] - want).max() / max(np.abs(want).max(), 1e-30)
            assert distance <= tolerance, f"{kind} {name}: {distance:.2e} > {tolerance:.0e}"
