"""Arms whose ranks shard weights, gradients or optimizer state, by dualml or by an engine, with
their measured memory, beside the arms that shard nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dualml.report import ranks
from dualml.report.blocks import Cell
from dualml.report.closed_memory import KNOWN
from dualml.report.columns import status
from dualml.report.columns import verdict as verdict_of
from dualml.report.headline import worse_first
from dualml.report.methods import Way, ways
from dualml.report.topics.device_memory import Held, held
from dualml.store.run import Run
from dualml.words import Words

#: Settings that may differ between arms of one table: number of ranks, and how they shard.
VARY = (
    *("world_size", "zero", "zero_reduce", "zero_lower", "aggregation"),
    *("method", "method_config", "launcher", "backends"),
)


@dataclass(frozen=True)
class Sharing:
    """An arm on a backend, with the components that its ranks shard.

    Attributes:
        method_result: its costs.
        memory: its measured memory; None if nothing was measured.
    """

    way: Way
    held: Held | None

    @property
    def arm(self) -> str:
        return self.way.arm

    @property
    def backend(self) -> str:
        return self.way.backend

    @property
    def n(self) -> int:
        """Number of ranks requested."""
        return self.way.arm_settings.world_size

    @property
    def precision(self) -> str:
        return self.way.precision

    @property
    def own(self) -> bool:
        """Whether dualml trains, rather than an engine."""
        return not self.way.arm_settings.method

    @property
    def reduced(self) -> str:
        """The collective that reduces gradients (``zero_reduce``), empty without ZeRO."""
        settings = self.way.arm_settings
        return settings.zero_reduce if settings.zero else ""

    @property
    def wasteful(self) -> bool:
        """Whether gradients are reduced by an all-reduce, which needs the memory of a
        reduce-scatter and sends more."""
        return self.reduced == "all_reduce"

    @property
    def shared(self) -> Sequence[str]:
        """The components that the ranks shard: of weights, gradients and state."""
        settings = self.way.arm_settings
        if settings.zero:
            return KNOWN[-settings.zero :]
        return self.way.info.shards if self.way.info else ()

    @property
    def together(self) -> int | None:
        """Bytes of weights, gradients and state of the rank that holds most; None if not
        measured."""
        return self.held.form.most if self.held and self.held.form else None

    @property
    def closed(self) -> float | None:
        """`total_bytes` by the closed form; None without one."""
        return self.held.form.nbytes if self.held and self.held.form else None

    def most(self, part: str) -> int | None:
        """Return the bytes of a component on the rank that holds most, None if not measured."""
        return self.held.most(part) if self.held else None

    def shares(self, words: Words) -> str:
        """Return the sharded components as text."""
        return words.join([words(f"device_memory.{part}") for part in self.shared])


def verdict(same: Sequence[Sharing], words: Words) -> Cell | None:
    """Return the cell of the worst verdict against one rank, over backends and seeds; the reason if
    the arm did not run."""
    for r in same:
        if not r.way.trials:
            failed = r.way.run.select(r.arm, r.backend, ok=False)[0]
            return replace(status(failed.status, words), note=failed.reason)
    judged = [s for r in same for s in r.way.judged if s.verdict]
    worst = min(judged, key=lambda s: worse_first(s.verdict), default=None)
    return verdict_of(worst, words, why=False) if worst else None


def about(run: Run) -> bool:
    """Return whether any arm shards what its ranks hold."""
    return any(arm.zero and arm.split is None for arm in run.settings.values())


def sharings(run: Run) -> list[Sharing]:
    """Return the arms by ranks and precision, then by what is sharded, dualml's own before
    engines."""
    every = run.contrast.groups(ranks.training(run), vary=VARY)
    arms = {arm for group in every for arm in group if any(run.settings[a].zero for a in group)}
    counted = {(h.arm, h.backend): h for h in held(run)}
    rows = [
        Sharing(way, counted.get((way.arm, way.backend)))
        for way in ways(run, ok=False)
        if way.arm in arms and run.settings[way.arm].split is None
    ]
    return sorted(
        rows, key=lambda s: (s.n, s.precision != "fp32", len(s.shared), not s.own)
    )  # a stable sort
