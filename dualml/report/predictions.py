"""Predicted against measured seconds, for numbers of ranks that no fit has seen."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.report import fits, numbers, style
from dualml.report.collectives import look
from dualml.report.model import Run
from dualml.report.style import Figure
from dualml.report.words import Words


def prediction_figures(run: Run, words: Words) -> Iterator[Figure]:
    """A panel for each backend: on the diagonal the prediction is right."""
    from matplotlib.lines import Line2D

    found = fits.checks(run)
    shown = [b for b in run.backends if any(c["backend"] == b for c in found)]
    if not shown:
        return
    name = "predictions"
    with style.canvas(style.WIDTH, 4.2) as made:
        grid = made.subplots(1, len(shown), sharex=True, sharey=True, squeeze=False)[0]
        values = [1e3 * float(c[k]) for c in found for k in ("measured_s", "predicted_s")]
        low, high = min(v for v in values if v > 0) / 1.5, max(values) * 1.5
        for axes, backend in zip(grid, shown, strict=True):
            for c in found:
                if c["backend"] == backend:
                    color, marker = look(str(c["strategy"]))
                    at = [1e3 * c["measured_s"]], [1e3 * c["predicted_s"]]
                    axes.plot(*at, marker, color=color, markersize=5, markeredgewidth=0)
            axes.plot([low, high], [low, high], color="#777777", linewidth=0.9)
            for factor in (0.5, 2):
                axes.plot([low, high], [factor * low, factor * high], color="#BBBBBB",
                          linewidth=0.8, linestyle=(0, (3, 3)))  # fmt: skip
            axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), title=backend)
            axes.minorticks_off()
            axes.set_xlabel(words("axis.measured_ms"))
        grid[0].set_ylabel(words("axis.predicted_ms"))
        names = [s for s in style.STRATEGIES if any(c["strategy"] == s for c in found)]
        handles = [
            Line2D([], [], color=look(s)[0], marker=look(s)[1], linewidth=0, label=s) for s in names
        ]
        made.legend(handles=handles, loc="outside upper left", ncols=4, handlelength=1.4)
        text = style.svg(made, name)
    ratios = [c["predicted_s"] / c["measured_s"] for c in found if c["measured_s"]]
    inside = sum(0.5 <= r <= 2 for r in ratios)
    alt = words("alt.predictions", n=len(ratios), inside=inside, worst=_worst(ratios))
    yield Figure(name, text, words("figure.predictions"), alt)


def _worst(ratios: list[float]) -> str:
    return numbers.factor(max((max(r, 1 / r) for r in ratios if r > 0), default=None))
