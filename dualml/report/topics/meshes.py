"""Meshes: every data × pipeline × tensor layout of the same ranks, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.common.words import Messages, numbers
from dualml.experiment.store.manifest import DeviceMemory
from dualml.experiment.store.run import RunData
from dualml.parallel.memory import size_per_parameter
from dualml.report import legend
from dualml.report.blocks import Block, Cell
from dualml.report.closed_memory import CLOSED_FORM_PARTS, MIB, mib
from dualml.report.columns import Columns
from dualml.report.confidence import MeanInterval
from dualml.report.figure import Mark
from dualml.report.methods import MethodResult
from dualml.report.notes import Notes
from dualml.report.presentation import bar_panels, build_figure, stacked_bars
from dualml.report.splits import times
from dualml.report.splits.arms import SplitArm, Splits, without_straggler
from dualml.report.topics import table_section

MIN_MESHES = 3  # meshes needed for a comparison
#: Components of a rank's memory that are drawn.
MEMORY_PARTS = (*CLOSED_FORM_PARTS, "activations")


@dataclass(frozen=True, eq=False)
class Layout(MethodResult):
    """A mesh layout: an arm on a backend, with its costs. Bytes are those of the rank that has
    most.

    Attributes:
        split: the arm's split.
    """

    split: SplitArm

    @property
    def fullest_rank(self) -> DeviceMemory | None:
        """Memory of the rank with most weights, gradients, state and activations; None if not
        counted."""
        return max(self.rank_memories, key=total_bytes, default=None)

    @property
    def closed_form_bytes(self) -> int | None:
        """Planned bytes of weights, gradients and state on the rank with most parameters; None if
        unknown, or if replicas shard the state."""
        known: list[int] = [rank["elements"] for rank in self.split.plan.get("ranks") or ()]
        settings = self.arm_settings
        dtype = self.run.environment.get(self.backend, {}).get("dtype")
        if not known or not dtype or settings.zero:
            return None
        each = size_per_parameter(np.dtype(str(dtype)).itemsize, len(settings.rule.state_keys))
        return int(each.total) * max(known)

    @property
    def counted_bytes(self) -> int | None:
        """Counted bytes of weights, gradients and state on the rank that has most of them together,
        None if not counted."""
        known = [rank.weights + rank.gradients + rank.state for rank in self.rank_memories]
        return max(known, default=None)

    @property
    def bubble(self) -> MeanInterval | None:
        """Measured share of idle time; None without a pipeline."""
        pipelined = self.split.is_pipelined
        return times.measured_bubble(self.run, self.arm, self.backend) if pipelined else None

    @property
    def max_planned_bytes(self) -> float | None:
        """Planned bytes sent in an update by the rank that sends most; None if a collective is
        unknown."""
        every = [planned_bytes(self.split.plan, r) for r in range(self.split.size)]
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
    return [Layout(run, a.name, b, a) for b in run.backends for a in arms if run.select(a.name, b)]


def columns(run: RunData, words: Messages, every: Sequence[Layout]) -> Columns[Layout]:
    """Return the columns of the layouts' memory, traffic, idle share, time and verdict."""

    def memory_cell(x: Layout) -> Cell:
        closed = x.closed_form_bytes
        note = words("methods.closed", bytes=closed) if closed is not None else ""
        return Cell(numbers.quantity(mib(x.counted_bytes)), note=note)

    return {
        "mesh:mesh": lambda x: Cell(str(x.split.mesh), note=x.arm),
        "backend": lambda x: x.backend,
        "micro_batches:count": lambda x: x.split.micro_batches,
        "held_parts:memory": memory_cell,
        "kept:memory": lambda x: mib(x.fullest_rank.activations if x.fullest_rank else None),
        "sent_closed:bytes_update": lambda x: x.max_planned_bytes,
        "sent_wire:bytes_update": lambda x: x.sent_bytes,
        "idle_ideal:percent": lambda x: x.split.ideal_idle,
        "idle:percent": lambda x: x.bubble,
        "step:milliseconds": lambda x: times.step_seconds(run, x.arm, x.backend),
        "verdict": lambda x: times.worst_verdict_cell(run, x.arm, words),
    }


def figures(run: RunData, words: Messages, every: Sequence[Layout]) -> Iterator[Block]:
    """Yield a notice if ranks shared cores, and a figure of the memory of the fullest rank: a bar
    per layout, a panel per backend."""
    yield from times.crowding_notices(run, (x.split for x in every), words)
    held = [x for x in every if x.fullest_rank]
    if not held:
        return

    def bars(y: float, x: Layout) -> Iterator[Mark]:
        parts = {p: n / MIB for p in MEMORY_PARTS if (n := getattr(x.fullest_rank, p))}
        return stacked_bars(y, parts, text=numbers.quantity(sum(parts.values())))

    backends = list(dict.fromkeys(x.backend for x in held))
    panels = bar_panels(held, backends, words("axis.memory"), bars)
    look = legend.series(words, "device_memory", "memory", MEMORY_PARTS)
    said = ", ".join(
        f"{x.split.mesh} {x.backend} {numbers.quantity(total_bytes(x.fullest_rank) / MIB)}"
        for x in held
        if x.fullest_rank
    )
    yield build_figure(words, "meshes", panels, look, {"values": said})


# --- sentences ------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData, every: Sequence[Layout]) -> None:
    """Add how many layouts equal the whole model, and which hold and send the fewest and the most
    bytes."""
    judged = [x for x in every if x.verdict]
    if judged:
        unequal = {x.arm for x in judged if x.verdict != "equal"}  # on any backend
        n = len({x.arm for x in judged})
        notes.add("equal", n, k=n - len(unequal), n=n, ranks=every[0].split.size)
    for backend in dict.fromkeys(x.backend for x in every):
        own = [x for x in every if x.backend == backend]
        held = {str(x.split.mesh): total_bytes(x.fullest_rank) for x in own if x.fullest_rank}
        sent = {str(x.split.mesh): x.max_planned_bytes for x in own if x.max_planned_bytes}
        if held:
            notes.add("held", backend=backend, **_extremes(held))
        if sent and backend == every[0].backend:  # planned bytes, equal on all backends
            notes.add("sent", **_extremes(sent))


def _extremes(sizes: Mapping[str, float]) -> dict[str, str | float]:
    """Return the meshes with the fewest and the most bytes (``least``, ``most``), and these bytes
    (``few``, ``many``)."""
    least, most = (of(sizes, key=lambda mesh: sizes[mesh]) for of in (min, max))
    return {"least": least, "few": sizes[least], "most": most, "many": sizes[most]}


TOPIC = table_section(
    "meshes",
    15,
    reads=layouts,
    columns=columns,
    figures=figures,
    findings=findings,
    priority=lambda run: 60 if layouts(run) else 0,
)
