"""Fit of the efficiency of a device to half of the published runs.

``python docs/efficiency.py`` prints `reached.toml`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dualml.planning.planner.cluster import Efficiency
from dualml.planning.planner.published import PublishedRun, fitted_names, runs

#: Lower bound, initial value and upper bound of each constant.
BOUNDS = {
    "products": (0.2, 0.7, 1.0),
    "traffic": (0.0, 2.0, 20.0),
    "links": (0.1, 0.7, 1.0),
    "gathers": (0.02, 0.3, 1.0),
}
ROUNDS = 40


def fit_efficiency(given: Sequence[PublishedRun] | None = None) -> Efficiency:
    """Fit the efficiency by least squares of log(predicted / measured) over the given runs, by
    default those that the fit may use.

    If micro-batch or interleaving were not published, those that are fastest with the values of the
    previous round are used, until they stay the same.
    """
    from scipy.optimize import least_squares

    used = [run for run in runs() if run.name in fitted_names()] if given is None else list(given)
    low, start, high = (list(values) for values in zip(*BOUNDS.values(), strict=True))
    values = np.array(start)
    chosen: list[int] = []
    for _ in range(ROUNDS):
        again = [run.predict(_make_efficiency(values)).row for run in used]
        if again == chosen:
            break
        chosen = again
        rows = [run.with_layout(row) for run, row in zip(used, chosen, strict=True)]

        def residuals(x: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
            """Return log(predicted / measured seconds) of each run in ``rows``, with ``x`` as the
            constants in the order of `BOUNDS`."""
            return [float(np.log(1 + run.predict(_make_efficiency(x)).error)) for run in rows]  # noqa: B023

        values = least_squares(residuals, values, bounds=(low, high)).x
    return _make_efficiency(values)


def _make_efficiency(values: Iterable[float]) -> Efficiency:
    """Make the efficiency from the fitted values."""
    return Efficiency(**{key: float(value) for key, value in zip(BOUNDS, values, strict=True)})


def main() -> None:
    """Print the fitted efficiency as TOML."""
    reached = fit_efficiency()
    print("# Printed by `python docs/efficiency.py`.\n[reached]")
    print("\n".join(f"{key} = {value:.4g}" for key, value in vars(reached).items()))


if __name__ == "__main__":
    main()
