"""Arms whose ranks shard weights, gradients or optimizer state, by dualml or by an engine, with
their measured memory, beside the arms that shard nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.experiment.verdict import worst_comparison
from dualml.parallel.memory import sharded_parts
from dualml.report import ranks
from dualml.report.blocks import Cell
from dualml.report.columns import status_cell
from dualml.report.columns import verdict as verdict_of
from dualml.report.methods import MethodResult, method_results
from dualml.report.topics.device_memory import ArmMemory, arm_memories

#: Settings that may differ between arms of one table: number of ranks, and how they shard.
VARY = (
    *("world_size", "zero", "zero_reduce", "zero_lower", "aggregation"),
    *("method", "method_config", "launcher", "backends"),
)


@dataclass(frozen=True, eq=False)
class ShardingResult(MethodResult):
    """An arm on a backend, with its costs and the components that its ranks shard.

    Attributes:
        memory: its measured memory; None if nothing was measured.
    """

    memory: ArmMemory | None

    @property
    def n(self) -> int:
        """Number of ranks requested."""
        return self.arm_settings.world_size

    @property
    def is_dualml(self) -> bool:
        """Whether dualml trains, rather than an engine."""
        return not self.arm_settings.method

    @property
    def gradient_reduction(self) -> str:
        """The collective that reduces gradients (``zero_reduce``), empty without ZeRO."""
        settings = self.arm_settings
        return settings.zero_reduce if settings.zero else ""

    @property
    def is_wasteful(self) -> bool:
        """Whether gradients are reduced by an all-reduce, which needs the memory of a
        reduce-scatter and sends more."""
        return self.gradient_reduction == "all_reduce"

    @property
    def sharded_parts(self) -> Sequence[str]:
        """The components that the ranks shard: of weights, gradients and state."""
        settings = self.arm_settings
        if settings.zero:
            return sharded_parts(settings.zero)
        return self.info.shards if self.info else ()

    @property
    def total_bytes(self) -> int | None:
        """Counted bytes of weights, gradients and state of the rank that holds most; None if they
        were not measured or have no closed form."""
        return self.memory.form.max_counted_bytes if self.memory and self.memory.form else None

    @property
    def sent_ratio(self) -> float | None:
        """Bytes sent in an update relative to the closed form, None if one is unknown."""
        sent, closed = self.sent_bytes, self.closed_form_sent_bytes
        return sent / closed if sent and closed else None

    def max_bytes(self, part: str) -> int | None:
        """Return the bytes of a component on the rank that holds most, None if not measured."""
        return self.memory.max_bytes(part) if self.memory else None

    def format_sharded_parts(self, words: Messages) -> str:
        """Return the sharded components as text."""
        return words.join([words(f"device_memory.{part}") for part in self.sharded_parts])


def sharding_verdict(same: Sequence[ShardingResult], words: Messages) -> Cell | None:
    """Return the cell of the worst verdict against one rank over the results of an arm on several
    backends, and over seeds; the status and the reason if a result has no successful trial; None
    without a verdict."""
    for r in same:
        if not r.trials:
            failed = r.run.select(r.arm, r.backend, ok=False)[0]
            return replace(status_cell(failed.status, words), note=failed.reason)
    judged = [s for r in same for s in r.baseline_comparisons if s.verdict]
    worst = worst_comparison(judged)
    return verdict_of(worst, words, why=False) if worst else None


def has_sharded_arms(run: RunData) -> bool:
    """Return whether any arm shards by ZeRO of dualml (not of an engine), with a model that is not
    split."""
    return any(arm.zero and arm.split is None for arm in run.settings.values())


def sharding_results(run: RunData) -> list[ShardingResult]:
    """Return the training arms on every backend with a trial that use ZeRO, and those that differ
    from one of them only in `VARY`, also if they shard nothing; split models are left out. Sorted
    by ranks and precision, then by what is sharded, dualml's own before engines."""
    every = run.contrast.groups(ranks.training_arms(run), vary=VARY)
    arms = {arm for group in every for arm in group if any(run.settings[a].zero for a in group)}
    counted = {(h.arm, h.backend): h for h in arm_memories(run)}
    rows = [
        ShardingResult(run, way.arm, way.backend, counted.get((way.arm, way.backend)))
        for way in method_results(run, ok=False)
        if way.arm in arms and run.settings[way.arm].split is None
    ]
    return sorted(
        rows, key=lambda s: (s.n, s.precision != "fp32", len(s.sharded_parts), not s.is_dualml)
    )  # a stable sort
