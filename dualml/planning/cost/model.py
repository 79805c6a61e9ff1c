"""Fit of α, β and γ to measured seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dualml.common.errors import UserError
from dualml.common.former_members import keep_former_members
from dualml.common.json_types import JsonObject
from dualml.parallel.aggregation import ASYNCHRONOUS
from dualml.planning.cost.closed_form import DEFAULT_SYNC_PERIOD, LOCAL_SGD, check, stages
from dualml.planning.cost.engines import schedule
from dualml.planning.cost.link import Link
from dualml.planning.cost.simulate import simulate
from dualml.planning.cost.topology import FLAT, Topology

PARAMETERS = ("alpha_s", "beta_s_per_byte", "gamma_s_per_byte")
LEVEL = 0.95
#: Condition number above which columns of the design matrix count as linearly dependent.
DEGENERATE = 1e6


@keep_former_members
@dataclass(frozen=True)
class Point:
    """One measurement.

    Args:
        seconds: measured, above 0.
        steps, bytes, added: messages, bytes moved and bytes added on the critical path.
        strategy, n, nbytes: what was measured; empty or 0 if unknown.

    Raises:
        UserError: seconds that are not a number above 0.
    """

    seconds: float
    steps: float
    bytes: float
    added: float = 0.0
    strategy: str = ""
    n: int = 0
    nbytes: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise UserError(f"a measured point takes more than 0 seconds; received {self.seconds}")

    @classmethod
    def from_measurement(
        cls,
        strategy: str,
        n: int,
        nbytes: int,
        seconds: float,
        topology: Topology = FLAT,
        every: int = DEFAULT_SYNC_PERIOD,
        engine: str = "",
    ) -> Point:
        """Make the point of a strategy that took ``seconds`` per update for S = ``nbytes`` on n
        ranks.

        On a `shared` machine the bytes of a step are those that its cores move one after another. A
        native collective's messages are those of its ``engine``, if known.

        Args:
            strategy, n, nbytes: strategy, number of ranks, and bytes of the vector.
            seconds: measured seconds per update.
            topology: what the messages shared.
            every: updates of local_sgd per round.
            engine: engine of native collectives.

        Raises:
            UserError: an unknown strategy or an invalid number; a single rank, which sends nothing;
                the asynchronous server, whose time is not a sum of steps; or `nodes`, which has two
                links.
        """
        check(strategy, n, nbytes, every=every)
        if n == 1 or strategy == ASYNCHRONOUS or topology.kind == "nodes":
            raise UserError(
                "a fit takes synchronous strategies on at least 2 ranks, flat or shared; received "
                f"{strategy} with n = {n}, {topology}"
            )
        one, b, g = (Link(*(float(i == j) for j in range(3))) for i in range(3))
        own = schedule(engine, strategy, n)
        if own is not None:
            steps, moved, added = (
                simulate(own, nbytes, unit, topology=topology).seconds for unit in (one, b, g)
            )
            return cls(seconds, steps, moved, added, strategy, n, nbytes)
        rows = stages(strategy, n, nbytes)
        share = every if strategy == LOCAL_SGD else 1
        steps, moved, added = (
            sum(topology.seconds(s, n, unit) for s in rows) / share for unit in (one, b, g)
        )
        return cls(seconds, steps, moved, added, strategy, n, nbytes)


@dataclass(frozen=True)
class Fit:
    """Fitted constants of a link, with their errors.

    Attributes:
        link: α, β, γ.
        errors: parameter → standard error, for the fitted ones.
        intervals: parameter → 95 % confidence interval.
        points: number of measurements.
        median_error, worst_error: of |fitted − measured| / measured.
        ranks, sizes: smallest and largest n and S among the points, (0, 0) if unknown; outside of
            these a prediction is an extrapolation.
    """

    link: Link
    errors: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    points: int
    median_error: float
    worst_error: float
    ranks: tuple[int, int] = (0, 0)
    sizes: tuple[int, int] = (0, 0)

    def describe(self) -> JsonObject:
        """Return attribute → JSON-compatible value, ``link`` as a dict of α, β and γ."""
        return asdict(self)


def fit(points: Sequence[Point], *, gamma: bool = False) -> Fit:
    """Fit α and β, and with ``gamma`` γ, by non-negative least squares over the ``points``.

    Residuals are relative, (α·steps + β·bytes + γ·added − seconds) / seconds, so that microseconds
    count as much as seconds. Standard errors are those of ordinary least squares, the roots of the
    diagonal of σ² (AᵀA)⁻¹ with σ² = residual sum of squares / (points − parameters). The 95 %
    intervals use Student's t with the same degrees of freedom and are cut off at 0. They cover
    scatter, not a wrong model: if errors depend on n or S, see ``worst_error``.

    Raises:
        UserError: fewer points than parameters + 1, or points that do not determine the parameters;
            the message says what to measure.

    Source: Lawson & Hanson 1995, "Solving Least Squares Problems", chapter 23 (NNLS).
    """
    import numpy as np
    from scipy import optimize, special

    names = PARAMETERS[: 3 if gamma else 2]
    if len(points) < len(names) + 1:
        raise UserError(
            f"a fit of {len(names)} constants needs at least {len(names) + 1} points; received "
            f"{len(points)}: measure more sizes or numbers of ranks"
        )
    rows = np.array([(p.steps, p.bytes, p.added)[: len(names)] for p in points], np.float64)
    a = rows / np.array([[p.seconds] for p in points])
    lengths = np.linalg.norm(a, axis=0)
    _check_identifiable(points, a, lengths)
    # Columns of equal length: α is a million times larger than β.
    scaled = a / lengths
    solution, _ = optimize.nnls(scaled, np.ones(len(points)))
    residuals = scaled @ solution - 1
    freedom = len(points) - len(names)
    variance = float(residuals @ residuals) / freedom
    spread = np.sqrt(variance * np.diag(np.linalg.inv(scaled.T @ scaled))) / lengths
    values, reach = solution / lengths, float(special.stdtrit(freedom, (1 + LEVEL) / 2)) * spread
    ranks, sizes = ([getattr(p, key) for p in points] for key in ("n", "nbytes"))
    return Fit(
        link=Link(*map(float, values)),
        errors={name: float(s) for name, s in zip(names, spread, strict=True)},
        intervals={
            name: (max(0.0, float(v - r)), float(v + r))
            for name, v, r in zip(names, values, reach, strict=True)
        },
        points=len(points),
        median_error=float(np.median(np.abs(residuals))),
        worst_error=float(np.max(np.abs(residuals))),
        ranks=(min(ranks), max(ranks)),
        sizes=(min(sizes), max(sizes)),
    )


def _check_identifiable(points: Sequence[Point], a: Any, lengths: Any) -> None:
    """Raise `UserError` if the ``points`` do not determine α and β, or γ if it is fitted; ``a`` is
    the design matrix, one row per point and one column per constant, ``lengths`` are the norms of
    its columns."""
    import numpy as np

    def independent(columns: int) -> bool:
        """Return whether the first ``columns`` columns of the design matrix are linearly
        independent."""
        kept = lengths[:columns]
        return bool(kept.all() and np.linalg.cond(a[:, :columns] / kept) < DEGENERATE)

    if not independent(2):
        first = points[0]
        raise UserError(
            f"{len(points)} points cannot tell α from β: all have {first.bytes:g} bytes for "
            f"{first.steps:g} messages or the same ratio; measure at least two sizes"
        )
    if a.shape[1] == 3 and not independent(3):
        raise UserError(
            f"{len(points)} points cannot tell β from γ: all add the same share of the bytes they "
            "move; add points of all_gather or neighbour to those of ring or tree, or fit no γ"
        )
