"""Fit of the efficiency of devices, links and kernels to published runs.

``python docs/efficiency.py`` prints `reached.toml`. Only sources of the fitted half of
`benchmarks/planner` are used (the half is chosen by a hash of a source's name); the others judge.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dualml.planning.planner.cluster import Efficiency
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.seconds import seconds
from dualml.planning.planner.shape import Shape

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from planner.price import Unpriced, make_layouts, make_shape
from planner.rows import PublishedRow, fitted_rows
from planner.setting import Setting, make_setting

#: Lower bound, initial value and upper bound of each constant.
BOUNDS = {
    "products": (0.5, 0.85, 1.0),
    "traffic": (0.5, 1.5, 6.0),
    "links": (0.3, 0.9, 1.0),
    "ports": (0.3, 0.85, 1.0),
    "stores": (0.0, 0.5, 1.0),
    "exposed": (0.05, 0.4, 1.0),
    "contention": (0.0, 0.1, 0.2),
    "imbalance": (0.0, 0.2, 1.0),
}
#: Seconds in which a program issues an operation. Assumed, neither fitted nor measured: a launch by
#: CUDA's driver takes 1 to 3 microseconds, an operation of PyTorch from Python 5 to 25.
LAUNCH = 4.2e-6
#: Weight of a constant's distance from its initial value, in units of its range.
PRIOR = 0.15
#: Error from which a run counts less than quadratically (Cauchy loss), so that odd ones do not
#: decide.
ODD_ERROR = 0.08
#: Most steps of the fit.
ROUNDS = 12
#: Most rows of one family in one source that are used.
MOST_ROWS = 12


@dataclass(frozen=True)
class TimedRun:
    """A published run, ready to be priced with any efficiency.

    Attributes:
        layouts: those that may have been used, of which the fastest was.
        setting: devices, types and engine that were used.
        measured: seconds of an update.
        weight: weight of the run in the fit.
        own_device: whether the device differed from its data sheet, for example in power. The fit
            may take all such devices to be slower by one more number, which no prediction uses.
    """

    shape: Shape
    layouts: Layouts
    setting: Setting
    measured: float
    weight: float = 1.0
    own_device: bool = False

    def error(self, reached: Efficiency) -> float:
        """Return log(predicted / measured seconds) with an efficiency."""
        setting, cluster = self.setting, replace(self.setting.cluster, reached=reached)
        times = seconds(
            self.shape, self.layouts, cluster, setting.precision, setting.fused, setting.engine
        ).total
        return float(np.log(times.min() / self.measured))


def timed_runs(rows: Iterable[PublishedRow]) -> list[TimedRun]:
    """Return the rows with published seconds that the planner can express: of each pair of source
    and family at most `MOST_ROWS`, evenly spaced, which together weigh as much as the square root
    of their number."""
    groups: dict[tuple[str, str], list[TimedRun]] = {}
    for row in rows:
        run = timed_run(row) if row.seconds else None
        if run is not None:
            groups.setdefault((row.source, row.family), []).append(run)
    chosen = []
    for runs in groups.values():
        few = min(len(runs), MOST_ROWS)
        places = np.unique(np.linspace(0, len(runs) - 1, few).round().astype(int))
        chosen += [replace(runs[place], weight=few**-0.25) for place in places]
    return chosen


def timed_run(row: PublishedRow) -> TimedRun | None:
    """Return a row ready to be priced, or None if the planner cannot express it."""
    try:
        given = make_shape(row), make_layouts(row), make_setting(row)
    except (Unpriced, ValueError):  # UserError and ValidationError are ValueErrors
        return None
    return TimedRun(*given, row.seconds, own_device=row.hbm > 0)


@dataclass(frozen=True)
class Fit:
    """Fitted constants.

    Attributes:
        reached: the efficiency that predictions use.
        slower: log of the factor by which devices that differ from their data sheet are slower.
    """

    reached: Efficiency
    slower: float = 0.0

    @classmethod
    def from_vector(cls, x: Any) -> Fit:
        """Make the constants of their places between the bounds, 0 to 1, and of ``slower``."""
        values = {
            key: low + (high - low) * float(place)
            for (key, (low, _, high)), place in zip(BOUNDS.items(), x, strict=False)
        }
        return cls(Efficiency(**values, launch=LAUNCH), float(x[-1]))

    def to_vector(self) -> Any:
        """Return the constants as `from_vector` takes them."""
        places = [
            (getattr(self.reached, key) - low) / (high - low)
            for key, (low, _, high) in BOUNDS.items()
        ]
        return np.array([*np.clip(places, 0.0, 1.0), self.slower])

    def errors(self, runs: Iterable[TimedRun]) -> list[float]:
        """Return log(predicted / measured seconds) of each run, times its weight."""
        return [
            run.weight * (run.error(self.reached) + self.slower * run.own_device) for run in runs
        ]

    def cost(self, runs: Iterable[TimedRun]) -> float:
        """Return what the fit minimises: the Cauchy loss of the runs' errors, and of the distances
        of the constants from their initial values."""
        x = self.to_vector()[:-1] - typical_fit().to_vector()[:-1]
        residuals = np.array([*self.errors(runs), *(PRIOR * x)])
        return float(np.log1p((residuals / ODD_ERROR) ** 2).sum())


def typical_fit() -> Fit:
    """Return the initial constants."""
    typical = {key: start for key, (_, start, _) in BOUNDS.items()}
    return Fit(Efficiency(**typical, launch=LAUNCH), 0.1)


def fit_efficiency(
    runs: Sequence[TimedRun] | None = None, start: Fit | None = None, rounds: int = ROUNDS
) -> Fit:
    """Fit the efficiency to the given runs, by default the fitted half of the published ones,
    beginning with ``start``, in at most ``rounds`` steps."""
    from scipy.optimize import least_squares

    used = timed_runs(fitted_rows()) if runs is None else runs
    typical = typical_fit().to_vector()

    def residuals(x: Any) -> list[float]:
        return [*Fit.from_vector(x).errors(used), *(PRIOR * (x - typical)[:-1])]

    count = len(BOUNDS)
    found = least_squares(
        residuals,
        (start or typical_fit()).to_vector(),
        bounds=([0.0] * count + [-1.0], [1.0] * count + [1.0]),
        diff_step=1e-3,
        loss="cauchy",
        f_scale=ODD_ERROR,
        max_nfev=rounds,
    )
    return Fit.from_vector(found.x)


def main() -> None:
    """Print the fitted efficiency as TOML."""
    fit = fit_efficiency()
    print("# Printed by `python docs/efficiency.py`.\n[reached]")
    print("\n".join(f"{key} = {value:.4g}" for key, value in vars(fit.reached).items()))
    print("\n# Of sources whose devices differ from their data sheet; no prediction uses it.")
    print(f"[own]\nslower = {fit.slower:.4g}")


if __name__ == "__main__":
    main()
