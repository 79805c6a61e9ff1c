"""Study of Lab 2: times that the student's `measure` finds on this machine, and a fitted line α +
βS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dualml.common.words import Messages
from dualml.course.exercise import Array, ExerciseCall, ExerciseFile
from dualml.course.study import Run, Study
from dualml.report.blocks import Block, Cells, Column, Table
from dualml.report.figure import Axis, Figure, LegendEntry, LineMark, Panel, SeriesId

SIZES = tuple(4 * 4**n for n in range(1, 11))
RANKS = 2
COLOURS = {"torch": "blue", "mindspore": "vermilion"}


def study(files: Sequence[ExerciseFile], run: Run, words: Messages) -> Study:
    """Let each of the student's files measure an all-reduce on `RANKS` ranks; return figure, table
    and questions about the valid times, or an empty study."""
    options = {"comm": True, "hyper": {}, "sizes": list(SIZES), "unchecked": True}
    call = ExerciseCall("measured", "measure", options, [{} for _ in range(RANKS)])
    times: dict[str, Array] = {}
    for file in files:
        (answer,) = run(file, [call])
        if answer.trouble is None:
            seen = np.asarray(answer.arrays[0]["seconds"], np.float64)
            if seen.shape == (len(SIZES),) and np.all(np.isfinite(seen)) and np.all(seen > 0):
                times[file.backend] = seen
    if not times:
        return Study()
    fits = {backend: fit_alpha_beta(seen) for backend, seen in times.items()}
    blocks: list[Block] = [figure(times, fits, words), table(times, fits, words)]
    return Study(blocks, questions(times, fits, words))


def fit_alpha_beta(seen: Array) -> tuple[float, float]:
    """Fit α (s) and β (s per byte) of T = α + βS to the seconds ``seen`` of all `SIZES`, by least
    squares of relative errors, neither below 0."""
    from scipy.optimize import nnls

    sizes = np.array(SIZES, np.float64)
    (alpha, beta), _ = nnls(np.stack([1 / seen, sizes / seen], 1), np.ones(len(seen)))
    return float(alpha), float(beta)


def figure(
    times: Mapping[str, Array], fits: Mapping[str, tuple[float, float]], words: Messages
) -> Figure:
    """Make the figure of the measured times in ms over the bytes, with the fitted lines."""
    sizes = np.array(SIZES, np.float64)
    lines = []
    for backend, seen in times.items():
        alpha, beta = fits[backend]
        owner = SeriesId(backend=backend)
        lines.append(LineMark(sizes, 1e3 * seen, owner, joined=False, marker="circle"))
        lines.append(LineMark(sizes, 1e3 * (alpha + beta * sizes), owner, weight="thin"))
    keys = [LegendEntry("backend", backend, color=COLOURS[backend]) for backend in times]
    x, y = Axis(words("study.lab2.size"), scale="log"), Axis(words("study.lab2.ms"), scale="log")
    caption = words("study.lab2.caption", n=RANKS)
    return Figure("measured", caption, caption, [Panel(lines, x, y, height=300)], keys)


def table(
    times: Mapping[str, Array], fits: Mapping[str, tuple[float, float]], words: Messages
) -> Table:
    """Make the table of each backend's times (ms) for the smallest and the largest size, and its
    fitted α (µs) and 1/β (GB/s)."""
    heads = [
        Column("framework", words("study.framework")),
        Column("small", words("study.lab2.of", size=f"{SIZES[0]} B"), show="number"),
        Column("large", words("study.lab2.of", size=f"{SIZES[-1] / 2**20:g} MiB"), show="number"),
        Column("alpha", "α / µs", show="number"),
        Column("beta", "1/β / GB/s", show="number"),
    ]
    rows: list[Cells] = []
    for backend, seen in times.items():
        alpha, beta = fits[backend]
        speed = "" if beta == 0 else f"{1e-9 / beta:.3g}"
        rows.append(
            [backend, f"{1e3 * seen[0]:.3g}", f"{1e3 * seen[-1]:.3g}", f"{1e6 * alpha:,.0f}", speed]
        )
    return Table("measured", words("study.lab2.table"), heads, rows)


def questions(
    times: Mapping[str, Array], fits: Mapping[str, tuple[float, float]], words: Messages
) -> list[str]:
    """Return the questions to the student, with the student's own numbers."""
    asked = []
    for backend in times:
        alpha, beta = fits[backend]
        if alpha > 0 and beta > 0:
            asked.append(words("study.lab2.half", backend=backend, size=alpha / beta / 1024))
    if len(times) > 1:
        a, b = times.values()
        ratio = float(b[0] / a[0])
        asked.append(words("study.lab2.apart", ratio=ratio, size=SIZES[0]))
    asked.append(words("study.lab2.ring", n=RANKS))
    return asked
