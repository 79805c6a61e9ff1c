"""Other ways to compute the same update: the framework's own data parallelism, overlapped
communication, gradient accumulation; each compared with the plain way."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dualml.algorithms.communicator.primitives import PRIMITIVES
from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.parallel.aggregation import NATIVE, REPLICAS
from dualml.report import ranks, scaling_families
from dualml.report.blocks import Block, Cell
from dualml.report.columns import PLACE, Columns, percent, status_cell, table
from dualml.report.confidence import MeanInterval, paired_interval, paired_ratio
from dualml.report.measures import loss_unit
from dualml.report.notes import Notes
from dualml.report.results import ArmResult
from dualml.report.scaling import format_core_budget
from dualml.report.scaling_families import crowding_notices
from dualml.report.topics import table_section

OVERLAP, ACCUMULATE = "overlap", "accumulate"
LOSS_ATOL = 5e-7  # differences of losses below this are rounding
#: Mode, in the order of tables → settings besides the aggregation that may differ.
MODE_SETTINGS: Mapping[str, tuple[str, ...]] = {
    NATIVE: (),
    OVERLAP: (),
    REPLICAS: ("world_size", "cores"),
    ACCUMULATE: ("chunk",),
}


class ModePair(NamedTuple):
    """An arm that trains in one of the `MODE_SETTINGS`, and ``other``, the plain arm that does the
    same (None: there is none)."""

    way: str
    arm: str
    other: str | None


@dataclass(frozen=True, eq=False)
class ModeComparison(ArmResult):
    """The arm of a pair on one backend, compared with the plain arm there."""

    way: str
    other: str | None

    @cached_property
    def baseline(self) -> ArmResult:
        """Results of the plain arm on the same backend; without trials if there is no such arm."""
        return ArmResult(self.run, self.other or "", self.backend)

    @cached_property
    def ratio(self) -> MeanInterval | None:
        """Seconds of an update relative to the plain arm's, paired by seed, above 1 if slower; None
        if unknown."""
        return paired_ratio(self.steps, self.baseline.steps)

    @cached_property
    def loss_gap(self) -> MeanInterval | None:
        """Final loss minus the plain arm's, paired by seed; None if unknown."""
        return paired_interval(self.losses, self.baseline.losses, lambda a, b: a - b)

    @property
    def detail(self) -> str:
        """The framework's name for this mode, empty if it was not recorded."""
        names = [str(v) for t in self.trials for k, v in t.how.items() if k not in PRIMITIVES]
        text = next((text.partition(":")[2].strip() or text for text in names), "")
        return re.sub(r"\b(?:\w+\.)+", "", text)  # without the names of modules


def training_mode(run: RunData, arm: str) -> str:
    """Return the key of `MODE_SETTINGS` that an arm uses, empty if none."""
    settings = ranks.aggregation(run, arm)
    if settings.strategy in (NATIVE, REPLICAS):
        return settings.strategy
    if settings.overlap:
        return OVERLAP
    return ACCUMULATE if ranks.world_size(run, arm) > 1 and _unchunked_arm(run, arm) else ""


def _unchunked_arm(run: RunData, arm: str) -> str | None:
    """Return the otherwise equal arm whose chunks are larger than those of an arm that accumulates
    gradients over chunks of its batch; None without one, and for arms that do not accumulate."""
    chunk, n = int(run.arms[arm].get("chunk") or 0), ranks.world_size(run, arm)
    batch = int(run.arms[arm].get("batch_size") or run.train_size or 0)
    if not chunk or chunk * n >= batch or ranks.is_split(run, arm):
        return None
    return run.contrast.partner(
        arm, vary=("chunk",), where=lambda other: int(run.arms[other].get("chunk") or 0) > chunk
    )


def pairs(run: RunData) -> list[ModePair]:
    """Return every arm without a straggler that trains in one of the `MODE_SETTINGS`, in their
    order, with its plain arm."""
    healthy = {
        arm: training_mode(run, arm)
        for arm in ranks.training_arms(run)
        if not ranks.straggler(run, arm)
    }
    return [
        ModePair(w, arm, _plain_arm(run, w, arm))
        for w in MODE_SETTINGS
        for arm in healthy
        if healthy[arm] == w
    ]


def _plain_arm(run: RunData, how: str, arm: str) -> str | None:
    """Return the plain arm that is otherwise the same, None without one; of several one with a
    successful trial if any has, then the one with the fewest ranks greater than one."""
    if how == ACCUMULATE:
        return _unchunked_arm(run, arm)
    alike = run.contrast.partners(arm, vary=("aggregation", *MODE_SETTINGS[how]))
    if how != REPLICAS:
        alike = [a for a in alike if ranks.world_size(run, a) == ranks.world_size(run, arm)]
    plain = [
        a
        for a in alike
        if ranks.uses_default_aggregation(run, a) and ranks.strategy(run, a) == "all_reduce"
    ]
    ran = [a for a in plain if run.select(a)] or plain
    return min(
        ran, key=lambda a: (ranks.world_size(run, a) == 1, ranks.world_size(run, a)), default=None
    )


def mode_comparisons(run: RunData) -> list[ModeComparison]:
    """Return the comparison of every pair on every backend where its first arm has a successful
    trial."""
    return [
        ModeComparison(run, *place, pair.way, pair.other)
        for pair in pairs(run)
        for place in ranks.successful_places(run, [pair.arm])
    ]


# --- evidence -------------------------------------------------------------------------------------


def crowding(run: RunData, words: Messages, every: Sequence[ModeComparison]) -> Iterator[Block]:
    """Yield a notice if ranks shared cores."""
    arms = [arm for pair in pairs(run) for arm in (pair.arm, pair.other) if arm]
    if arms:
        yield from crowding_notices(run, words, arms)


def columns(
    run: RunData, words: Messages, every: Sequence[ModeComparison]
) -> Columns[ModeComparison]:
    """Return the columns of a comparison: mode, ranks, plain arm, seconds of an update of both and
    their ratio, difference of the final losses, shares of communication."""
    return {
        **PLACE,
        "way": lambda h: Cell(words(f"way.{h.way}"), note=_detail(h, words)),
        "ranks:count": lambda h: _ranks_cell(h, words),
        "`against`": lambda h: h.other,
        "step:milliseconds": lambda h: h.step,
        "step_other:milliseconds": lambda h: h.baseline.step,
        "step_ratio:relative": lambda h: h.ratio,
        f"loss_gap:{loss_unit(run)}": lambda h: h.loss_gap and h.loss_gap.cell(signed),
        "shares:percent": lambda h: " / ".join(
            percent(x.share and x.share.mean) for x in (h, h.baseline)
        ),
    }


def missing_modes(
    run: RunData, words: Messages, every: Sequence[ModeComparison]
) -> Iterator[Block]:
    """Yield the table of the arms and backends of `pairs` that have trials but none that succeeded,
    with status and reason; nothing if there are none."""
    rows = (
        [arm, ", ".join(backends), words(f"way.{how}"), status_cell(state, words), why]
        for (arm, how, state, why), backends in modes_without_success(run).items()
    )
    head = ("`arm`", "backend", "way", "status", "reason")
    yield from table(words, "modes-missing", head, rows)


def _detail(h: ModeComparison, words: Messages) -> str:
    """Return what is noted below the mode, as text: the size of the buckets for overlap, the
    samples of a chunk for accumulation, else the framework's name for it
    (`ModeComparison.detail`)."""
    if h.way == OVERLAP:
        return words("way.buckets", size=ranks.aggregation(h.run, h.arm).bucket_bytes)
    return words("way.chunks", n=h.run.arms[h.arm]["chunk"]) if h.way == ACCUMULATE else h.detail


def _ranks_cell(h: ModeComparison, words: Messages) -> Cell:
    """Return the cell of the number of ranks, with the cores below if they took turns on them."""
    room = scaling_families.core_budget(h.run, h.arm, h.backend)
    turns = format_core_budget(room, words) if room.has_enough_cores is False else ""
    return Cell(str(ranks.world_size(h.run, h.arm)), note=turns)


def signed(x: float) -> str:
    """Return a signed difference, e.g. ``+0.012``; rounding differences count as 0."""
    if abs(x) < LOSS_ATOL:
        return "0"
    return f"{'+' if x > 0 else '−'}{numbers.scientific(abs(x))}"


def modes_without_success(run: RunData) -> dict[tuple[str, str, str, str], list[str]]:
    """Return (arm, way, status, reason) → backends on which arms of `pairs` have trials but none
    that succeeded; status and reason are those of the first."""
    absent: dict[tuple[str, str, str, str], list[str]] = {}
    for pair, backend in itertools.product(pairs(run), run.backends):
        trials = run.select(pair.arm, backend, ok=False)
        if trials and not any(t.ok for t in trials):
            key = (pair.arm, pair.way, trials[0].status, trials[0].reason)
            absent.setdefault(key, []).append(backend)
    return absent


# --- findings -------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData, every: Sequence[ModeComparison]) -> None:
    """Add sentences that compare the time of an update with the plain way and say whether losses
    differ; warnings name arms without a plain arm or that could not run."""
    words = notes.words
    for h in every:
        if h.ratio:
            ends = h.ratio.format_interval(numbers.factor)
            gaps = (h.loss_gap.mean, *h.loss_gap.bounds) if h.loss_gap else ()
            same = {signed(v) for v in gaps} == {"0"}
            gap = signed(h.loss_gap.mean) if h.loss_gap else numbers.NO_VALUE
            losses = words("modes.equal") if same else words("modes.losses", gap=gap)
            between = ends and words("modes.interval", values=ends)
            key = "alike" if h.ratio.contains(1) else "held"
            notes.add(key, h=h, way=words(f"way.{h.way}"), interval=between, losses=losses)
    alone = dict.fromkeys(p.arm for p in pairs(run) if p.other is None and run.select(p.arm))
    if alone:
        notes.add_warning("alone", len(alone), arms=alone)
    notes.set_anchor("table-modes-missing")
    for (arm, how, state, reason), backends in modes_without_success(run).items():
        if state in ("unsupported", "failed"):
            why = reason.rstrip(" .:")
            notes.add_warning(
                state, arm=arm, way=words(f"way.{how}"), backends=backends, reason=why
            )


TOPIC = table_section(
    "modes",
    310,
    reads=mode_comparisons,
    columns=columns,
    figures=crowding,
    below=missing_modes,
    findings=findings,
)
