"""n workers against one: the verdicts as a table, the distances as a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dualml.report import curves, numbers, ranks, style
from dualml.report.cells import Cell, Head, Table, heads, number
from dualml.report.gaps import signed
from dualml.report.model import Run, Serial
from dualml.report.style import Figure
from dualml.report.verdict_tables import divergence, phase, phases_of, short_verdict
from dualml.report.words import Words


def serial_tables(run: Run, words: Words) -> list[Table]:
    made = [_verdicts(run, words), _others(run, words)]
    return [table for table in made if table.rows]


def _verdicts(run: Run, words: Words) -> Table:
    compared = run.judged
    phases, margin = phases_of(compared), float(run.parity_settings.get("margin") or 1)
    several, apart = len(run.seeds) > 1, any(s.first_divergence for s in compared)
    rows = [
        [
            Cell(s.arm, "code"),
            *([number(str(s.seed))] if several else []),
            Cell(s.backend),
            Cell(s.against, "code"),
            short_verdict(s, words),
            number(numbers.scientific(s.worst)),
            number(numbers.quantity(s.steps)),
            *(phase(s.phases.get(p), margin) for p in phases),
            *([Cell(divergence(s.first_divergence, words))] if apart else []),
        ]
        for s in compared
    ]
    unit = words("unit.phase")
    head = [
        *heads(words, "arm", *(["seed"] if several else []), "backend", "against", "verdict"),
        *heads(words, "ratio:relative", "steps:count"),
        *(Head(words.either(f"phase.{p}", p), unit, True) for p in phases),
        *(heads(words, "first") if apart else []),
    ]
    return Table("serial", words("table.serial"), head, rows)


def _others(run: Run, words: Words) -> Table:
    """Arms that follow another rule on purpose, each once."""
    found: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for s in run.serial:
        if not s.verdict:
            found.setdefault((s.arm, s.against, s.reason), {})[s.backend] = s.evidence
    tested = any("equivalence" in e for told in found.values() for e in told.values())
    rows = [
        [
            Cell(arm, "code"),
            Cell(against, "code"),
            Cell(words.either(f"rule.{reason}", reason)),
            Cell(", ".join(told)),
            *([Cell(words.semicolons(_over_seeds(told, words)))] if tested else []),
        ]
        for (arm, against, reason), told in found.items()
    ]
    columns = ["arm", "against", "other_rule", "backend", *(["over_seeds"] if tested else [])]
    head = heads(words, *columns)
    return Table("other-rules", words("table.other_rules"), head, rows)


def _over_seeds(told: Mapping[str, Mapping[str, Any]], words: Words) -> list[str]:
    """Whether the test accuracies agree all the same: of each backend, the equivalence test."""
    items = []
    for backend, evidence in told.items():
        test = evidence.get("equivalence")
        if test:
            verdict = "equal" if test["equivalent"] else "open"
            low, high = signed(test["low"]), signed(test["high"])
            items.append(words(f"over_seeds.{verdict}", backend=backend, low=low, high=high,
                               margin=f"{100 * test['margin']:g}", n=test["seeds"]))  # fmt: skip
    return items


def serial_figures(run: Run, words: Words) -> Iterator[Figure]:
    """The loss of n workers against that of one: distance and limit, a panel for each backend."""
    compared = [s for s in run.judged if s.curve.get("step")]
    if not compared:
        return
    shown = [b for b in run.backends if any(s.backend == b for s in compared)]
    settings = run.parity_settings
    margin, floor = float(settings.get("margin") or 1), float(settings.get("floor") or 0)
    name = "serial-distance"
    sizes = sorted({ranks.size(run, s.arm) for s in compared if s.arm in run.arms})
    strokes = dict(zip(sizes, ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2))), strict=False))
    with style.canvas(style.WIDTH, 4.0) as made:
        grid = made.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        lowest = _lowest(compared, margin, floor)
        for axes, backend in zip(grid, shown, strict=True):
            mine = [s for s in compared if s.backend == backend]
            _limit(axes, mine, margin, floor, lowest)
            for s in mine:
                n, strategy = ranks.size(run, s.arm), ranks.strategy(run, s.arm)
                color = style.STRATEGIES.get(strategy, ("#000000", "."))[0]
                distance = np.array([v or 0.0 for v in s.curve["loss"]], dtype=float)
                x, y = curves.thin(np.asarray(s.curve["step"], dtype=float), distance)
                axes.plot(x, np.maximum(y, lowest), color=color, linewidth=1.1,
                          linestyle=strokes.get(n, "-"))  # fmt: skip
            axes.set_yscale("log")
            axes.set_ylim(bottom=lowest)
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.set_title(backend)
            axes.set_xlabel(words("axis.updates"))
        grid[0].set_ylabel(words("axis.distance"))
        _legend(made, run, compared, strokes, words)
        text = style.svg(made, name)
    worst = max((r for s in compared if (r := s.worst) is not None), default=None)
    alt = words("alt.serial", n=len(compared), ratio=numbers.scientific(worst))
    yield Figure(name, text, words("figure.serial"), alt)


def _lowest(compared: Sequence[Serial], margin: float, floor: float) -> float:
    seen = [float(v) for s in compared for v in s.curve["loss"] if v and v > 1e-10]
    return min([*seen, margin * floor or 1e-9]) / 3


def _limit(axes: Any, mine: Sequence[Serial], margin: float, floor: float, lowest: float) -> None:
    """The smallest limit of equality at each update, of the arms that made it."""
    longest = max(mine, key=lambda s: len(s.curve["step"]))
    x = np.asarray(longest.curve["step"], dtype=float)
    envelopes = np.full((len(mine), len(x)), np.inf)
    for row, s in zip(envelopes, mine, strict=True):
        told = [v or 0.0 for v in s.curve["envelope"]]
        row[: len(told)] = told
    top = margin * np.maximum(envelopes.min(axis=0), floor)
    axes.fill_between(x, lowest, top, color="#222222", alpha=0.07, linewidth=0)
    axes.plot(x, top, color="#222222", linewidth=0.9, alpha=0.6)


def _legend(
    made: Any, run: Run, compared: Sequence[Serial], strokes: dict[int, Any], words: Words
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    used = {ranks.strategy(run, s.arm) for s in compared}
    handles: list[Any] = [
        Line2D([], [], color=color, linewidth=4, label=name)
        for name, (color, _) in style.STRATEGIES.items()
        if name in used
    ]
    others = sorted(used - set(style.STRATEGIES))
    handles += [Line2D([], [], color="#000000", linewidth=4, label=name) for name in others]
    handles += [
        Line2D([], [], color=style.INK, linestyle=stroke, label=words("figure.ranks", n=n))
        for n, stroke in strokes.items()
    ]
    handles.append(Patch(color="#222222", alpha=0.12, label=words("figure.envelope")))
    made.legend(handles=handles, loc="outside upper left", ncols=4, handlelength=2.2)
