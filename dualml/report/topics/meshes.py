"""Meshes: every data × pipeline × tensor layout of the same ranks, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dualml.common.words import Messages, numbers
from dualml.experiment.store.manifest import DeviceMemory
from dualml.experiment.store.run import RunData
from dualml.parallel.memory import size_per_parameter
from dualml.report import legend
from dualml.report.blocks import Block, Cell
from dualml.report.closed_memory import CLOSED_FORM_PARTS, MIB
from dualml.report.columns import table
from dualml.report.confidence import MeanInterval
from dualml.report.figure import Axis, Figure, Mark, Panel
from dualml.report.methods import MethodResult
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure, stacked_bars
from dualml.report.splits import times
from dualml.report.splits.arms import SplitArm, Splits, without_straggler
from dualml.report.topics import ReportSection
from dualml.report.topics.device_memory import PARTS

MIN_MESHES = 3  # meshes needed for a comparison
#: Components of a rank's memory that are drawn.
MEMORY_PARTS = (*CLOSED_FORM_PARTS, "activations")


@dataclass(frozen=True)
class Layout:
    """A mesh layout: an arm on a backend. Bytes are those of the rank that has most."""

    arm: SplitArm
    backend: str

    @cached_property
    def method_result(self) -> MethodResult:
        """Costs and verdicts of the arm."""
        return MethodResult(self.arm.run, self.arm.name, self.backend)

    @property
    def fullest_rank(self) -> DeviceMemory | None:
        """Memory of the rank with most weights, gradients, state and activations; None if not
        counted."""
        return max(self.method_result.rank_memories, key=total_bytes, default=None)

    @property
    def closed_form_bytes(self) -> int | None:
        """Planned bytes of weights, gradients and state on the rank with most parameters; None if
        unknown, or if replicas shard the state."""
        run = self.arm.run
        known: list[int] = [rank["elements"] for rank in self.arm.plan.get("ranks") or ()]
        settings = run.settings[self.arm.name]
        dtype = run.environment.get(self.backend, {}).get("dtype")
        if not known or not dtype or settings.zero:
            return None
        each = size_per_parameter(np.dtype(str(dtype)).itemsize, len(settings.rule.state_keys))
        return int(each.total) * max(known)

    @property
    def counted_bytes(self) -> int | None:
        """Counted bytes of weights, gradients and state on the rank that has most of them together,
        None if not counted."""
        known = [
            rank.weights + rank.gradients + rank.state for rank in self.method_result.rank_memories
        ]
        return max(known, default=None)

    @property
    def bubble(self) -> MeanInterval | None:
        """Measured share of idle time; None without a pipeline."""
        return (
            times.measured_bubble(self.arm.run, self.arm.name, self.backend)
            if self.arm.is_pipelined
            else None
        )

    @property
    def max_planned_bytes(self) -> float | None:
        """Planned bytes sent in an update by the rank that sends most; None if a collective is
        unknown."""
        every = [planned_bytes(self.arm.plan, r) for r in range(self.arm.size)]
        known = [nbytes for nbytes in every if nbytes is not None]
        return max(known) if known and len(known) == len(every) else None


def total_bytes(rank: DeviceMemory) -> int:
    """Return the bytes of weights, gradients, state and activations of a rank."""
    return rank.weights + rank.gradients + rank.state + (rank.activations or 0)


def planned_bytes(plan: Mapping[str, Any], rank: int) -> float | None:
    """Return the planned bytes that a rank sends in an update: messages to other stages, and
    collectives by a ring; None if a collective is unknown."""
    nbytes = float(sum(x["nbytes"] for x in plan.get("links") or () if x["source"] == rank))
    for c in plan.get("meetings") or ():
        if rank not in c["ranks"]:
            continue
        m, kind = len(c["ranks"]), c["kind"].partition(" ")[0]
        if kind not in ("all_reduce", "all_gather"):
            return None
        nbytes += c["nbytes"] * (2 * (m - 1) / m if kind == "all_reduce" else m - 1)
    return nbytes


def layouts(run: RunData) -> list[Layout]:
    """Return the arms that differ only in their split, if they use at least `MIN_MESHES` meshes, on
    every backend where they have a successful trial. Arms with sequence or context parallelism or a
    slow rank are left out, and groups with RPC."""
    splits = Splits(run)
    plain = [a for a in without_straggler(splits) if not a.split.sequence and a.split.context == 1]
    groups = (g for g in splits.groups(plain, "split") if not any(a.rpc for a in g))
    arms = [a for g in groups if len({str(a.mesh) for a in g}) >= MIN_MESHES for a in g]
    return [Layout(a, b) for b in run.backends for a in arms if run.select(a.name, b)]


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the figure and the table of all layouts with their memory, traffic, idle share, time
    and verdict."""
    every = layouts(run)
    if not every:
        return
    yield from times.crowding_notices(run, (x.arm for x in every), words)
    if any(x.fullest_rank for x in every):
        yield _figure(run, words, every)
    head = (
        "mesh:mesh",
        "backend",
        "micro_batches:count",
        "held_parts:memory",
        "kept:memory",
        "sent_closed:bytes_update",
        "sent_wire:bytes_update",
        "idle_ideal:percent",
        "idle:percent",
        "step:milliseconds",
        "verdict",
    )
    rows = [
        [
            Cell(str(x.arm.mesh), note=x.arm.name),
            x.backend,
            x.arm.micro_batches,
            _bytes_cell(x.counted_bytes, x.closed_form_bytes, words),
            _mib(x.fullest_rank.activations if x.fullest_rank else None),
            x.max_planned_bytes,
            x.method_result.sent_bytes,
            x.arm.ideal_idle,
            x.bubble,
            times.step_seconds(run, x.arm.name, x.backend),
            times.worst_verdict_cell(run, x.arm.name, words),
        ]
        for x in every
    ]
    yield from table(words, "meshes", head, rows)


def _mib(nbytes: int | None) -> float | None:
    """Convert bytes to MiB, None to None."""
    return None if nbytes is None else nbytes / MIB


def _bytes_cell(counted: int | None, closed: int | None, words: Messages) -> Cell:
    """Return the cell of counted MiB, with the closed form below."""
    note = words("methods.closed", bytes=closed) if closed is not None else ""
    return Cell(numbers.quantity(_mib(counted)), note=note)


def _figure(run: RunData, words: Messages, every: Sequence[Layout]) -> Figure:
    """Return a figure of the memory of the fullest rank: a bar per layout, a panel per backend."""
    backends = list(dict.fromkeys(x.backend for x in every if x.fullest_rank))
    panels = []
    for backend in backends:
        own = [(x.arm, x.fullest_rank) for x in every if x.backend == backend and x.fullest_rank]
        marks = list[Mark]()
        for y, (_, rank) in enumerate(own):
            parts = {p: n / MIB for p in MEMORY_PARTS if (n := getattr(rank, p))}
            marks += stacked_bars(y, parts, text=numbers.quantity(sum(parts.values())))
        down = Axis(names=[arm.name for arm, _ in own], grid=False)
        panels.append(
            Panel(marks, Axis(words("axis.memory"), low=0), down, backend, height=22.0 * len(own))
        )
    look = legend.series(words, "device_memory", {part: PARTS[part] for part in MEMORY_PARTS})
    said = ", ".join(
        f"{x.arm.mesh} {x.backend} {numbers.quantity(total_bytes(x.fullest_rank) / MIB)}"
        for x in every
        if x.fullest_rank
    )
    return build_figure(words, "meshes", panels, look, {"values": said}, columns=len(panels))


# --- sentences ------------------------------------------------------------------------------------


def findings(run: RunData, words: Messages) -> Notes:
    """Return how many layouts equal the whole model, and which hold and send the fewest and the
    most bytes."""
    notes, every = Notes(words, "meshes", "table-meshes"), layouts(run)
    equal = {x.arm.name: x.method_result.verdict for x in every if x.method_result.verdict}
    if equal:
        n, k = len(equal), sum(v == "equal" for v in equal.values())
        notes.add("equal", n, k=k, n=n, ranks=every[0].arm.size)
    for backend in dict.fromkeys(x.backend for x in every):
        own = [x for x in every if x.backend == backend]
        held = {str(x.arm.mesh): total_bytes(x.fullest_rank) for x in own if x.fullest_rank}
        sent = {str(x.arm.mesh): x.max_planned_bytes for x in own if x.max_planned_bytes}
        if held:
            ends = [min(held, key=lambda m: held[m]), max(held, key=lambda m: held[m])]
            notes.add(
                "held",
                backend=backend,
                least=ends[0],
                few=held[ends[0]],
                most=ends[1],
                many=held[ends[1]],
            )
        if sent and backend == every[0].backend:  # planned bytes, equal on all backends
            ends = [min(sent, key=lambda m: sent[m]), max(sent, key=lambda m: sent[m])]
            notes.add("sent", least=ends[0], few=sent[ends[0]], most=ends[1], many=sent[ends[1]])
    return notes


TOPIC = ReportSection(
    "meshes", 15, evidence, findings, priority=lambda run: 60 if layouts(run) else 0
)
