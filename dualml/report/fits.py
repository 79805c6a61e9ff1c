"""The constants of ``cost.json``: what is fitted by them, and what was predicted."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from dualml.store.run import Run
from dualml.words import numbers


def fits(run: Run) -> list[Mapping[str, Any]]:
    """Those that have constants."""
    return [f for f in run.cost.get("fits") or () if (f.get("fit") or {}).get("link")]


def fit_of(run: Run, backend: str, n: int, strategy: str) -> Mapping[str, Any] | None:
    """The strategy's own fit; point to point for one whose messages are made here."""
    from dualml.aggregation import STRATEGIES

    here = [f for f in fits(run) if f["backend"] == backend and f.get("world_size") in (n, None)]
    own = [f for f in here if f.get("strategy") == strategy]
    counted = strategy in STRATEGIES and STRATEGIES[strategy].counted
    shared = [f for f in here if f.get("strategy") is None and counted]
    return next(iter([*own, *shared]), None)


def fitted(run: Run, backend: str, n: int, strategy: str, nbytes: int) -> float | None:
    """Seconds by the fit; None without one."""
    fit = fit_of(run, backend, n, strategy)
    return None if fit is None else seconds(fit, strategy, n, nbytes)


def seconds(fit: Mapping[str, Any], strategy: str, n: int, nbytes: int) -> float | None:
    """α·messages + β·bytes + γ·added on the critical path of the strategy."""
    from dualml.cost import Point
    from dualml.cost.topology import Topology
    from dualml.errors import UserError

    link = fit["fit"]["link"]
    try:
        topology = Topology.parse(str(fit.get("topology") or "flat"))
        point = Point.of(strategy, n, nbytes, 1.0, topology)
    except UserError:
        return None
    return float(
        link["alpha_s"] * point.steps
        + link["beta_s_per_byte"] * point.bytes
        + (link.get("gamma_s_per_byte") or 0.0) * point.added
    )


def crossing(run: Run, backend: str, n: int, few: str, little: str) -> tuple[int, int] | None:
    """Powers of two between which ``few`` (messages) stops being faster than ``little`` (bytes)."""
    fit_few, fit_little = (fit_of(run, backend, n, name) for name in (few, little))
    if fit_few is None or fit_little is None:
        return None
    faster = [
        (size, a < b)
        for size in (4 * 2**k for k in range(4, 31))
        if (a := seconds(fit_few, few, n, size)) is not None
        and (b := seconds(fit_little, little, n, size)) is not None
    ]
    return next(((a, b) for (a, was), (b, now) in pairwise(faster) if was and not now), None)


def checks(run: Run) -> list[Mapping[str, Any]]:
    """Predictions for numbers of ranks that were not fitted, with what was measured there."""
    return [
        c
        for c in run.cost.get("checks") or ()
        if numbers.known(c.get("measured_s")) and numbers.known(c.get("predicted_s"))
    ]
