"""Plot the curves of a run with Matplotlib, in the colours and line styles of the report."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dualml.common.errors import UserError, did_you_mean
from dualml.common.words import Messages
from dualml.experiment.store.run import RunData, Trial
from dualml.interface.api.tools import as_list, import_optional
from dualml.report import curves, legend
from dualml.report.draw.palette import COLORS, STROKES
from dualml.report.measures import loss_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Font families with Chinese characters: of macOS, of Windows, and free ones.
CHINESE = (
    *("PingFang SC", "Hiragino Sans GB", "Heiti SC", "Microsoft YaHei", "SimHei"),
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC"),
    *("WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "Arial Unicode MS"),
)
#: Matplotlib points per pixel of the report.
POINT = 0.75
#: An axis is logarithmic if its positive values span more than this factor, as in the report.
WIDE = 30.0


class Plot:
    """Plot curves of a run: colours distinguish arms, line styles distinguish backends.

    With several seeds, the mean is drawn and the range from minimum to maximum is shaded. For a
    noisy loss, a moving mean over a thirtieth of the curve is drawn, with the loss of every batch
    in a pale colour behind it. A failed trial is a thin line that ends in a cross.
    """

    def __init__(self, run: RunData) -> None:
        self._run = run

    def loss(self, **options: Any) -> Axes:
        """Plot the training loss; ``options`` are those of `Plot.__call__`."""
        return self("loss", **options)

    def accuracy(self, **options: Any) -> Axes:
        """Plot the test accuracy in percent; ``options`` are those of `Plot.__call__`."""
        return self("test_accuracy", **options)

    def __call__(
        self,
        metric: str = "loss",
        *,
        arm: str | Sequence[str] | None = None,
        backend: str | Sequence[str] | None = None,
        seed: int | Sequence[int] | None = None,
        against: str = "epochs",
        lang: str = "en",
        ax: Axes | None = None,
    ) -> Axes:
        """Plot one metric of several trials in one figure.

        Args:
            metric: a value of the column ``metric`` of `Run.frame`; accuracies are in percent.
            arm: one or several; the arms of the first group when omitted.
            backend, seed: one or several; all when omitted.
            against: the x-axis: ``epochs``, ``updates`` or ``seconds`` (of training).
            lang: language of the labels, ``en`` or ``zh``.
            ax: the axes to draw into, whose scales, limits and grid stay; a new figure when
                omitted.

        Returns:
            The axes.

        Raises:
            UserError: an unknown name, a metric that was not recorded, or Matplotlib is missing.
        """
        run, words = self._run, Messages(lang)
        if against not in curves.AXES:
            raise UserError(f"unknown axis {against!r}{did_you_mean(against, curves.AXES)}")
        arms = check_names("arm", arm, list(run.arms)) or run.main_arms()
        backends = check_names("backend", backend, run.backends) or run.backends
        seeds = check_names("seed", seed, run.seeds) or run.seeds
        drawn = {
            (a, b): [t for t in run.select(a, b, ok=False) if t.seed in seeds and t.curves]
            for a, b in itertools.product(arms, backends)
        }
        recorded = {name for trials in drawn.values() for t in trials for name in t.curves}
        if metric not in recorded:
            raise UserError(
                f"these trials have no curve {metric!r}{did_you_mean(metric, recorded)}"
            )
        axes = make_axes() if ax is None else ax
        scale = 100.0 if metric.endswith("accuracy") else 1.0
        looks = line_styles(run, arms, backends)
        for place, trials in drawn.items():
            named = [n for n, several in zip(place, (arms, backends), strict=True) if several[1:]]
            draw_trials(
                axes, trials, metric, against, scale, looks[place], " · ".join(named) or place[0]
            )
        font, words = font_options(words)
        axes.set_xlabel(words(f"axis.{against}"), **font)
        axes.set_ylabel(axis_label(run, metric, words), **font)
        if ax is None:
            format_axes(axes, metric)
        axes.legend(fontsize="small")
        return axes


def make_axes() -> Axes:
    """Create a new figure with one pair of axes."""
    axes: Axes = import_optional("matplotlib.pyplot").subplots(
        figsize=(8, 4.5), layout="constrained"
    )[1]
    return axes


def check_names(kind: str, asked: Any, known: Sequence[Any]) -> list[Any]:
    """Return the requested names as a list: a single one becomes a list of one, None an empty list.
    Raise `UserError` for an unknown one."""
    names = as_list(asked)
    for name in names:
        if name not in known:
            raise UserError(
                f"no {kind} {name!r} in this run{did_you_mean(str(name), map(str, known))}"
            )
    return names


def line_styles(
    run: RunData, arms: Sequence[str], backends: Sequence[str]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Map each (arm, backend) to the Matplotlib options of its line: the report's colour of the
    arm, or another where arms of several groups share one, and the line style of the backend, solid
    if there is only one."""
    colors = legend.colors(run)
    if len({colors[arm] for arm in arms}) < len(arms):  # arms of several groups
        colors = {key.name: key.color for key in legend.distinct_colors(arms)}
    strokes = {key.name: key.stroke for key in legend.backends(run)}
    if len(backends) == 1:
        strokes[backends[0]] = "solid"
    looks = {}
    for arm, backend in itertools.product(arms, backends):
        width, dashes, alpha = STROKES[strokes[backend]]
        style: Any = (0, [float(dash) / width for dash in dashes.split()]) if dashes else "-"
        looks[arm, backend] = {
            "color": COLORS[colors[arm]][0],
            "linewidth": POINT * width,
            "linestyle": style,
            "alpha": alpha,
        }
    return looks


def draw_trials(
    axes: Axes,
    trials: Sequence[Trial],
    metric: str,
    against: str,
    scale: float,
    look: Mapping[str, Any],
    name: str,
) -> None:
    """Draw the trials of one arm on one backend, with ``name`` in the legend: the mean of the
    successful ones with its range, and each failed one as a thin line that ends in a cross. Values
    are multiplied by ``scale``."""
    color = look["color"]
    good = [trial for trial in trials if trial.ok]
    if line := curves.mean_curve(good, metric, against):
        if line.raw is not None:
            axes.plot(line.x, scale * line.raw, color=color, linewidth=0.7, alpha=0.25)
        axes.plot(line.x, scale * line.mean, label=name, **look)
        if len(good) > 1:
            axes.fill_between(
                line.x, scale * line.low, scale * line.high, color=color, alpha=0.12, linewidth=0
            )
    broken = [trial for trial in trials if not trial.ok and metric in trial.curves]
    for trial in broken:
        curve, alone = trial.curves[metric], not good and trial is broken[0]
        x, y = curves.axis_positions(trial, curve, against), scale * curve.value
        axes.plot(x, y, color=color, linewidth=0.9, label=name if alone else None)
        end = np.flatnonzero(np.isfinite(y))[-1:]
        axes.plot(x[end], y[end], color=color, marker="x", linestyle="")


def axis_label(run: RunData, metric: str, words: Messages) -> str:
    """Return the label of the y-axis: the metric and its unit, which is percent for accuracies, and
    1 for metrics other than losses."""
    name = words.get(f"serve.metric.{metric}", metric)
    if metric.endswith("accuracy"):
        return words("serve.percent", metric=name)
    unit = loss_unit(run) if metric.endswith("loss") else "1"
    return words("serve.unit", metric=name, unit=unit)


def format_axes(axes: Axes, metric: str) -> None:
    """Set scales, limits and grid of axes that this module created: y from 0 to 102 percent for an
    accuracy, logarithmic if the positive values of another metric span more than a factor of
    `WIDE`."""
    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines])
    positive = values[values > 0]
    if metric.endswith("accuracy"):
        axes.set_ylim(0, 102)
    elif len(positive) and positive.max() / positive.min() > WIDE:
        axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.grid(color=COLORS["grid"][0])
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def chinese_font_family(search_system: bool = False) -> str | None:
    """Return the first font family of `CHINESE` that Matplotlib knows, or None.

    Args:
        search_system: first add the system's fonts to Matplotlib's list, which may be out of date.
    """
    fonts = import_optional("matplotlib.font_manager")
    known = {font.fname for font in fonts.fontManager.ttflist}
    for path in fonts.findSystemFonts() if search_system else ():
        if path not in known:
            with contextlib.suppress(OSError, RuntimeError):  # fonts that Matplotlib cannot use
                fonts.fontManager.addfont(path)
    names = {font.name for font in fonts.fontManager.ttflist}
    return next((name for name in CHINESE if name in names), None)


def font_options(words: Messages) -> tuple[dict[str, Any], Messages]:
    """Return the font options of labels and the messages to use; for languages other than Chinese
    no options and the messages given.

    Falls back to English messages, with a warning, if no installed font has Chinese characters.
    """
    if words.lang != "zh":
        return {}, words
    family = chinese_font_family() or chinese_font_family(search_system=True)
    if family is None:
        warnings.warn(
            "no font with Chinese letters is installed (Noto Sans CJK SC is one); labels are "
            "in English",
            stacklevel=3,
        )
        return {}, Messages("en")
    return {"family": [*import_optional("matplotlib").rcParams["font.family"], family]}, words
