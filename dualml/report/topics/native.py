"""Native and composed collectives: which primitives a framework executes itself, which are composed
here, and what composing costs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.parallel.aggregation import STRATEGIES
from dualml.report.blocks import Cell, Column, Tone
from dualml.report.collective_timing import CollectiveMeasurements, collective_measurements
from dualml.report.columns import Columns
from dualml.report.notes import Notes
from dualml.report.topics import table_section

TONES: Mapping[str, Tone] = {"native": "good", "composed": "near", "unsupported": "muted"}
#: Primitive → backend → distinct implementations, such as ``composed: gather and fold``.
ImplementationTable = Mapping[str, Mapping[str, Sequence[str]]]


def primitives(run: RunData) -> ImplementationTable:
    """Return primitive → backend → the distinct ways in which its trials executed it, such as
    ``composed: gather and fold``."""
    ways: dict[str, dict[str, list[str]]] = {}
    for t in run.trials:
        for name, way in t.how.items():
            if _kind(str(way)) in TONES:
                known = ways.setdefault(name, {}).setdefault(t.backend, [])
                if way not in known:
                    known.append(str(way))
    return ways


def _kind(way: str) -> str:
    """Return the first word of an execution text: native, composed or unsupported."""
    return way.partition(":")[0]


def columns(run: RunData, words: Messages, names: Sequence[str]) -> Columns[str]:
    """Return the columns of the table: the primitive, and per backend how it is implemented
    there."""
    known = primitives(run)
    shown = [b for b in run.backends if any(b in ways for ways in known.values())]
    return {
        "`primitive`": lambda name: name,
        tuple(Column(b, b) for b in shown): lambda name: [
            _cell(known[name].get(b, ()), words) for b in shown
        ],
    }


def _cell(ways: Sequence[str], words: Messages) -> Cell:
    """Return the cell with the kinds of implementation, ``native``, ``composed`` or
    ``unsupported``, and their details."""
    kinds = list(dict.fromkeys(map(_kind, ways)))
    text = " / ".join(words(f"how.{kind}") for kind in kinds) or numbers.NO_VALUE
    details = " / ".join(way.partition(":")[2].strip() for way in ways)
    return Cell(text, TONES[kinds[-1]] if kinds else "", details)


def findings(notes: Notes, run: RunData, names: Sequence[str]) -> None:
    """Add which primitives each backend has natively, and what composing others costs."""
    known = primitives(run)
    for backend in run.backends:
        by_name = {name: set(map(_kind, ways.get(backend, ()))) for name, ways in known.items()}
        by_kind = {kind: [name for name in by_name if kind in by_name[name]] for kind in TONES}
        items = [notes.format_part(kind, names=names) for kind, names in by_kind.items() if names]
        notes.add_joined("list", items, backend=backend)
    every = collective_measurements(run)
    for m in every:
        _add_ring(notes, m)
    for m, other in itertools.product(every, every):
        if m.n == other.n and not m.threads and not other.threads:
            _add_composed(notes, m, other, known)


def _add_ring(notes: Notes, m: CollectiveMeasurements) -> None:
    """Add the framework's all-reduce compared with the ring made of its messages, if both were
    measured."""
    ratios = [
        (size, ring / native)
        for size in m.sizes
        if (native := m.seconds("all_reduce", size)) and (ring := m.seconds("ring", size))
    ]
    if ratios:
        notes.add("ring", m=m, small=min(ratios), large=max(ratios))


def _add_composed(
    notes: Notes,
    m: CollectiveMeasurements,
    other: CollectiveMeasurements,
    known: ImplementationTable,
) -> None:
    """Add the cost of strategies whose primitives are composed on one backend and native on
    another."""
    size = m.sizes[-1]
    for name in m.strategies:
        uses = STRATEGIES[name].uses if name in STRATEGIES else ()
        here, there = ({_single_kind(known, use, x.backend) for use in uses} for x in (m, other))
        a, b = m.seconds(name, size), other.seconds(name, size)
        if "composed" in here and there == {"native"} and a and b:
            notes.add("composed_cost", strategy=name, size=size, m=m, other=other, times=a / b)


def _single_kind(known: ImplementationTable, primitive: str, backend: str) -> str:
    """Return the kind of a primitive on a backend; empty if there are none or several."""
    kinds = {_kind(way) for way in known.get(primitive, {}).get(backend, ())}
    return kinds.pop() if len(kinds) == 1 else ""


TOPIC = table_section(
    "native",
    210,
    reads=lambda run: list(primitives(run)),
    columns=columns,
    findings=findings,
    table="how",
)
