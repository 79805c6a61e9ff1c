"""Device memory of an update: counted bytes, compared with the closed form, and the peaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dualml.common.words import Messages, numbers
from dualml.experiment.store.manifest import DeviceMemory
from dualml.experiment.store.run import RunData
from dualml.report import legend
from dualml.report.closed_memory import MIB, ClosedForm, closed_form, mib
from dualml.report.columns import PLACE, Columns, number
from dualml.report.draw.palette import SERIES
from dualml.report.figure import Figure
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure, format_values, stacked_panels
from dualml.report.topics import table_section

#: Components of the memory.
PARTS = tuple(SERIES["memory"])
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
        return " / ".join(numbers.quantity(mib(x)) for x in shown)


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


def columns(run: RunData, words: Messages, rows: Sequence[ArmMemory]) -> Columns[ArmMemory]:
    """Return the columns of counted bytes by component, beside the closed form, and of the
    peaks."""
    counted = [
        number(words, part, words(f"device_memory.{part}"), "memory")
        for part in (*COLUMNS, "host_peak")
    ]
    return {
        **PLACE,
        "psi:count": lambda h: numbers.whole(h.ranks[0].parameters),
        "closed_form:memory": lambda h: h.form and h.form.text,
        tuple(counted): lambda h: [*map(h.cell, COLUMNS), h.host],
    }


def figures(run: RunData, words: Messages, rows: Sequence[ArmMemory]) -> Iterator[Figure]:
    """Yield a figure of the first `BARS` main arms with a bar per arm and a panel per backend; each
    part of a bar is that of the rank that holds most of the component. Nothing if none was
    measured."""
    shown = [h for h in rows if h.arm in run.main_arms()[:BARS]]
    if not shown:
        return
    known = {
        (h.arm, h.backend): {p: n / MIB for p in PARTS if (n := h.max_bytes(p))} for h in shown
    }
    arms = list(dict.fromkeys(arm for arm, _ in known))

    def total_text(arm: str, backend: str) -> str:
        parts = known.get((arm, backend))
        return numbers.quantity(sum(parts.values())) if parts else numbers.NO_VALUE

    backends = list(dict.fromkeys(backend for _, backend in known))
    label = words("axis.memory")
    panels = stacked_panels(arms, backends, label, lambda *at: known.get(at), total_text, 24)
    values = {"values": format_values(arms, backends, total_text)}
    used = {part for parts in known.values() for part in parts}
    yield build_figure(
        words,
        "device_memory",
        panels,
        legend.series(words, "device_memory", "memory", used),
        values,
        share_y="row",
    )


def findings(notes: Notes, run: RunData, rows: Sequence[ArmMemory]) -> None:
    """Add whether the counted bytes equal the closed form, what engines hold in addition, and what
    was not measured."""
    words = notes.words
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


def _format_differences(h: ArmMemory, form: ClosedForm, words: Messages) -> str:
    """Return the differences between counted bytes and the closed form as text."""
    parts = [f"{words(f'device_memory.{part}')} {n:+,} B" for part, n in form.differences.items()]
    return words("device_memory.off", arm=h.arm, backend=h.backend, parts=words.join(parts))


class EngineOverhead(NamedTuple):
    """Additional memory of an engine on a backend: ``why`` it is held, as text; ``most``: counted
    bytes of weights, gradients and state of the rank that holds most; ``closed``: the closed form
    of these; ``buckets``: bytes of buckets."""

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


TOPIC = table_section(
    "device_memory", 890, reads=arm_memories, columns=columns, figures=figures, findings=findings
)
