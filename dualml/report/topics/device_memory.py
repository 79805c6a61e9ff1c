"""Device memory of an update: counted bytes, compared with the closed form, and the peaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dualml.common.words import Messages, numbers
from dualml.experiment.store.manifest import DeviceMemory
from dualml.experiment.store.run import RunData
from dualml.report import legend
from dualml.report.blocks import Block, Item
from dualml.report.closed_memory import MIB, ClosedForm, closed_form
from dualml.report.columns import number, table
from dualml.report.figure import Axis, Figure, Mark, Panel
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure, format_values, stacked_bars
from dualml.report.topics import ReportSection

#: Component of the memory → its colour.
PARTS = {
    "weights": "navy",
    "gradients": "steel",
    "state": "amber",
    "activations": "brick",
    "buckets": "silver",
}
COLUMNS = (*PARTS, "device_peak")
BARS = 8  # arms in a figure


@dataclass(frozen=True)
class ArmMemory:
    """Measured memory of an arm on a backend: bytes of every rank in the first trial that counted
    them, and the peak of rank 0's process in MiB (``host``), the maximum over all seeds.

    Attributes:
        form: the closed form; None if it is unknown.
    """

    arm: str
    backend: str
    ranks: tuple[DeviceMemory, ...]
    host: float | None
    form: ClosedForm | None

    def max_bytes(self, part: str) -> int | None:
        """Return the bytes of a component on the rank that holds most, None if not counted."""
        known = [n for r in self.ranks if (n := getattr(r, part)) is not None]
        return max(known, default=None)

    def cell(self, part: str) -> str:
        """Return the MiB of a component on rank 0, and the maximum over the ranks if that is more,
        e.g. ``4 / 6``; a dash for what was not counted."""
        first, most = getattr(self.ranks[0], part), self.max_bytes(part)
        shown = [first] if first == most else [first, most]
        return " / ".join(numbers.quantity(None if x is None else x / MIB) for x in shown)


def arm_memories(run: RunData) -> list[ArmMemory]:
    """Return the memory of every arm and backend that counted it, from its first successful trial
    that did; the peak of rank 0's process is the largest of all these trials."""
    return [
        ArmMemory(
            arm,
            backend,
            known[0].device_memory,
            max((t.peak_memory_mb for t in known if t.peak_memory_mb), default=None),
            closed_form(run, arm, backend, known[0].device_memory),
        )
        for arm in run.arms
        for backend in run.backends
        if (known := [t for t in run.select(arm, backend) if t.device_memory])
    ]


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the figure of the first arms' memory by component, and the table of counted bytes
    beside the closed form."""
    rows = arm_memories(run)
    if shown := [h for h in rows if h.arm in run.main_arms()[:BARS]]:
        yield _figure(run, words, shown)
    counted = [
        number(words, part, words(f"device_memory.{part}"), "memory")
        for part in (*COLUMNS, "host_peak")
    ]
    head = ["`arm`", "backend", "psi:count", "closed_form:memory"]
    psi = [numbers.whole(h.ranks[0].parameters) for h in rows]
    cells = [
        [h.arm, h.backend, n, h.form and h.form.text, *map(h.cell, COLUMNS), h.host]
        for h, n in zip(rows, psi, strict=True)
    ]
    yield from table(words, "device_memory", [*head, *counted], cells)


def _figure(run: RunData, words: Messages, shown: Sequence[ArmMemory]) -> Figure:
    """Return a figure with a bar per arm and a panel per backend; each part of a bar is that of the
    rank that holds most of the component."""
    known = {
        (h.arm, h.backend): {p: n / MIB for p in PARTS if (n := h.max_bytes(p))} for h in shown
    }
    arms = list(dict.fromkeys(arm for arm, _ in known))

    def total_text(arm: str, backend: str) -> str:
        parts = known.get((arm, backend))
        return numbers.quantity(sum(parts.values())) if parts else numbers.NO_VALUE

    backends = list(dict.fromkeys(backend for _, backend in known))
    panels = []
    for backend in backends:
        marks: list[Mark] = []
        for y, arm in enumerate(arms):
            if parts := known.get((arm, backend)):
                marks += stacked_bars(y, parts, text=total_text(arm, backend))
        panels.append(
            Panel(
                marks,
                Axis(words("axis.memory"), low=0),
                Axis(names=arms, grid=False),
                backend,
                height=24 * len(arms),
            )
        )
    values = {"values": format_values(arms, backends, total_text)}
    used = {p: color for p, color in PARTS.items() if any(p in parts for parts in known.values())}
    return build_figure(
        words,
        "device_memory",
        panels,
        legend.series(words, "device_memory", used),
        values,
        columns=len(panels),
        share_y="row",
    )


def findings(run: RunData, words: Messages) -> Sequence[Item]:
    """Return whether the counted bytes equal the closed form, what engines hold in addition, and
    what was not measured."""
    notes, rows = Notes(words, "device_memory", "table-device_memory"), arm_memories(run)
    judged = [(h, h.form) for h in rows if h.form is not None]
    off = [_format_differences(h, form, words) for h, form in judged if form.differences]
    if off:
        notes.add_warning("off", n=len(off), of=len(judged), values=off)
    elif judged:
        notes.add("exact", len(judged), n=len(judged))
    for besides, arms in _engine_overheads(judged, words).items():
        notes.add("beside", arms=arms, **besides._asdict())
    for backend in run.backends:
        own = [h for h in rows if h.backend == backend]
        if own and all(h.max_bytes("activations") is None for h in own):
            notes.add_per_backend(backend, "unseen")
        if own and all(h.max_bytes("device_peak") is None for h in own):
            notes.add_per_backend(backend, "no_peak")
    notes.add_collected()
    return notes


def _format_differences(h: ArmMemory, form: ClosedForm, words: Messages) -> str:
    """Return the differences between counted bytes and the closed form as text."""
    parts = [f"{words(f'device_memory.{part}')} {n:+,} B" for part, n in form.differences.items()]
    return words("device_memory.off", arm=h.arm, backend=h.backend, parts=words.join(parts))


class EngineOverhead(NamedTuple):
    """The additional memory of an engine (``why``), and bytes of the rank that holds most."""

    backend: str
    why: str
    most: int
    closed: float
    buckets: int


def _engine_overheads(
    judged: Sequence[tuple[ArmMemory, ClosedForm]], words: Messages
) -> dict[EngineOverhead, list[str]]:
    """Return the additional memory of engines on several ranks → the arms that have it in
    common."""
    groups: dict[EngineOverhead, list[str]] = {}
    for h, form in judged:
        if form.info and form.info.beside and len(h.ranks) > 1:
            why, buckets = form.info.beside[words.lang], h.max_bytes("buckets") or 0
            key = EngineOverhead(h.backend, why, form.max_counted_bytes, form.nbytes, buckets)
            groups.setdefault(key, []).append(h.arm)
    return groups


TOPIC = ReportSection("device_memory", 890, evidence, findings)
