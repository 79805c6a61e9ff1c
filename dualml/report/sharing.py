"""Arms whose ranks share out what each of them would hold, dualml's own and engines', each with
what was counted of it, beside the arms that share out nothing."""

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

#: What may differ between arms of one table: how many ranks there are, and how they share.
VARY = (
    *("world_size", "zero", "zero_reduce", "zero_lower", "aggregation"),
    *("method", "method_config", "launcher", "backends"),
)


@dataclass(frozen=True)
class Sharing:
    """An arm on a backend.

    Attributes:
        way: what it costs.
        held: what was counted; None where nothing was.
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
        """Ranks that were asked for."""
        return self.way.arm_settings.world_size

    @property
    def precision(self) -> str:
        return self.way.precision

    @property
    def own(self) -> bool:
        """Whether dualml trains, not an engine."""
        return not self.way.arm_settings.method

    @property
    def reduced(self) -> str:
        """How gradients come together, where that is chosen."""
        settings = self.way.arm_settings
        return settings.zero_reduce if settings.zero else ""

    @property
    def wasteful(self) -> bool:
        """Whether it holds what the same arm by reduce-scatter holds, and only sends more."""
        return self.reduced == "all_reduce"

    @property
    def shared(self) -> Sequence[str]:
        """Of weights, gradients and state what the ranks share out."""
        settings = self.way.arm_settings
        if settings.zero:
            return KNOWN[-settings.zero :]
        return self.way.info.shards if self.way.info else ()

    @property
    def together(self) -> int | None:
        """Bytes of weights, gradients and state of the rank that holds most; None: not counted."""
        return self.held.form.most if self.held and self.held.form else None

    @property
    def closed(self) -> float | None:
        """The same by the closed form."""
        return self.held.form.nbytes if self.held and self.held.form else None

    def most(self, part: str) -> int | None:
        return self.held.most(part) if self.held else None

    def shares(self, words: Words) -> str:
        return words.join([words(f"device_memory.{part}") for part in self.shared])


def verdict(same: Sequence[Sharing], words: Words) -> Cell | None:
    """Of an arm against one rank, the worst over backends and seeds; where it did not run, why."""
    for r in same:
        if not r.way.trials:
            failed = r.way.run.select(r.arm, r.backend, ok=False)[0]
            return replace(status(failed.status, words), note=failed.reason)
    judged = [s for r in same for s in r.way.judged if s.verdict]
    worst = min(judged, key=lambda s: worse_first(s.verdict), default=None)
    return verdict_of(worst, words, why=False) if worst else None


def about(run: Run) -> bool:
    """Whether any arm shares out what its ranks hold."""
    return any(arm.zero and arm.split is None for arm in run.settings.values())


def sharings(run: Run) -> list[Sharing]:
    """By ranks and precision, then by how much is shared, dualml's own before engines."""
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
    )  # stable
