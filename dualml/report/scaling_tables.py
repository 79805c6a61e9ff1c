"""Tables of scaling: times and throughput of every arm, speed-up and efficiency where measured."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.report import families, numbers
from dualml.report.cells import Cell, Table, heads, number, percent
from dualml.report.families import STRONG, WEAK
from dualml.report.model import Run
from dualml.report.scaling import Point, all_points, name, reason
from dualml.report.spread import cell
from dualml.report.strategies import Card
from dualml.report.words import Words

#: Speed-up S and efficiency E of n ranks, and what is to be expected of them.
FORMULAS = {
    STRONG: (
        r"S_n = \frac{T_1}{T_n} \quad E_n = \frac{S_n}{n}",
        r"A_n = \frac{T_1}{u + \frac{T_1 - u}{n}} \quad A_n^c = \frac{T_1}{u + \frac{T_1 - u}{n} "
        r"+ c_n}",
    ),
    WEAK: (
        r"S_n = \frac{n \, T_1}{T_n} \quad E_n = \frac{S_n}{n} = \frac{T_1}{T_n}",
        r"G_n = n \quad G_n^c = \frac{n \, T_1}{T_1 + c_n}",
    ),
}
SOURCES = {
    STRONG: "Amdahl 1967, Validity of the single processor approach to achieving large scale "
    "computing capabilities, AFIPS",
    WEAK: "Gustafson 1988, Reevaluating Amdahl's law, CACM 31(5)",
}


def scaling_cards(run: Run, words: Words) -> list[Card]:
    """The formulas of the kinds of scaling that this run has."""
    found = families.families(run)
    return [
        Card(
            name=words(f"scaling.{kind}"),
            arms=list(dict.fromkeys(a for f in mine for a in (f.base, *f.arms))),
            formulas=formulas,
            explanation=words(f"scaling.does.{kind}"),
            source=SOURCES[kind],
        )
        for kind, formulas in FORMULAS.items()
        if (mine := [f for f in found if f.kind == kind])
    ]


def scaling_table(run: Run, words: Words) -> Table | None:
    """Times, throughput and the share of communication; nothing here is a speed-up."""
    told = all_points(run)
    every = [p.family for p in told]
    rows = []
    for p in told:
        whole = sum(p.parts.values())
        shares = [p.parts[k] / whole if whole else None for k in ("wait", "transfer") if p.parts]
        rows.append(
            [
                Cell(p.arm, "code"),
                Cell(p.backend),
                Cell(name(p.family, every, words, "scaling.short")),
                number(str(p.n)),
                number(numbers.quantity(p.batch)),
                _cores(p, words),
                cell(p.step, 1e3),
                cell(p.epoch),
                cell(p.rate),
                cell(p.per_core),
                *(number(percent(s)) for s in (shares or [None, None])),
            ]
        )
    if not rows:
        return None
    head = heads(
        words,
        *("arm", "backend", "scaling", "ranks:count", "batch_rank:samples", "cores_used:count"),
        *("step:milliseconds", "epoch:seconds", "throughput:samples_per_s"),
        *("per_core:samples_per_s", "waiting:percent", "transferring:percent"),
    )
    return Table("scaling", words("table.scaling"), head, rows)


def _cores(p: Point, words: Words) -> Cell:
    if p.room.used is None:
        return Cell(numbers.NONE, "number", note=words("scaling.cores_unknown"))
    return number(str(p.room.used))


def speedup_table(run: Run, words: Words) -> Table | None:
    """Speed-up, efficiency and what was to be expected; a dash and why where nothing of it was
    measured."""
    told = all_points(run)
    rows = [_row(p, [q.family for q in told], words) for p in told if p.n > 1]
    if not rows:
        return None
    head = heads(
        words,
        *("arm", "backend", "scaling", "ranks:count", "speedup:relative", "efficiency:percent"),
        *("law:relative", "law_communicating:relative"),
    )
    return Table("speed-up", words("table.speedup"), head, rows)


def _row(p: Point, every: Sequence[families.Family], words: Words) -> list[Cell]:
    first = cell(p.speedup, text=numbers.factor)
    if p.why_not:
        first = Cell(numbers.NONE, "number", note=reason(p, words))
    return [
        Cell(p.arm, "code"),
        Cell(p.backend),
        Cell(name(p.family, every, words, "scaling.short")),
        number(str(p.n)),
        first,
        cell(p.efficiency, text=percent),
        *(number(numbers.factor(v)) for v in (p.predicted, p.communicating)),
    ]
