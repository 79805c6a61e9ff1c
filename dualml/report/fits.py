"""The fits of ``cost.json``: fitted constants, and predictions compared with measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualml.common.words import numbers
from dualml.experiment.store.run import RunData


def usable_fits(run: RunData) -> list[Mapping[str, Any]]:
    """Return the fits of ``cost.json`` that determined α and β: ``backend``, ``world_size``,
    ``strategy`` (None: single messages), ``topology``, and in ``fit`` the ``link`` with the
    constants."""
    return [f for f in run.cost.get("fits") or () if (f.get("fit") or {}).get("link")]


def predict_seconds(run: RunData, backend: str, n: int, strategy: str, nbytes: int) -> float | None:
    """Return the predicted seconds α·messages + β·bytes + γ·added on the critical path of a
    strategy with ``n`` ranks and ``nbytes`` bytes; None without a usable fit or a closed form. The
    strategy's own fit is preferred to the point-to-point one, which applies only to strategies made
    of single messages."""
    from dualml.common.errors import UserError
    from dualml.parallel.aggregation import STRATEGIES
    from dualml.planning.cost import Point
    from dualml.planning.cost.topology import Topology

    here = [
        f for f in usable_fits(run) if f["backend"] == backend and f.get("world_size") in (n, None)
    ]
    counted = strategy in STRATEGIES and STRATEGIES[strategy].is_point_to_point
    names = (strategy, None) if counted else (strategy,)
    fit = next((f for name in names for f in here if f.get("strategy") == name), None)
    if fit is None:
        return None
    link = fit["fit"]["link"]
    try:
        topology = Topology.parse(str(fit.get("topology") or "flat"))
        point = Point.from_measurement(strategy, n, nbytes, 1.0, topology)
    except UserError:
        return None
    return float(
        link["alpha_s"] * point.steps
        + link["beta_s_per_byte"] * point.bytes
        + (link.get("gamma_s_per_byte") or 0.0) * point.added
    )


def prediction_checks(run: RunData) -> list[Mapping[str, Any]]:
    """Return the rows of ``cost.json`` with predictions for numbers of ranks that were not fitted,
    those whose ``measured_s`` and ``predicted_s``, in seconds, are both known."""
    keys = ("measured_s", "predicted_s")
    every = run.cost.get("checks") or ()
    return [
        check for check in every if all(numbers.is_finite_number(check.get(key)) for key in keys)
    ]
