"""Scaling families: arms that do with n ranks what another arm does with one, and the scaling laws.

Sources: Amdahl 1967, "Validity of the single processor approach to achieving large scale computing
capabilities"; Gustafson 1988, "Reevaluating Amdahl's law".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.parallel.aggregation import ASYNCHRONOUS, REPLICAS
from dualml.report import machine, ranks
from dualml.report.blocks import Notice

STRONG, WEAK = "strong", "weak"
#: Settings that may differ between one rank and n; one rank aggregates nothing.
FREE = ("world_size", "aggregation", "dealt_to")


@dataclass(frozen=True)
class Family:
    """One single-rank arm and the multi-rank arms that are otherwise the same.

    ``kind``: ``strong`` (the same global batch) or ``weak`` (n times as large). ``arms`` are
    ordered by their number of ranks and all combine gradients by ``strategy``.
    """

    kind: str
    base: str
    arms: tuple[str, ...]
    strategy: str


def families(run: RunData, *, pinned: bool = True) -> list[Family]:
    """Return the scaling families of a run, strong scaling first. If any of a single-rank arm's
    groups of arms uses default aggregation, only such groups are returned for it.

    Args:
        run: the run.
        pinned: True: families whose ranks have cores of their own, since ranks that share the cores
            of one rank do not scale; False: the others.
    """
    alone = {
        arm: settings
        for arm, settings in run.arms.items()
        if run.settings[arm].kind == "train"
        and ranks.world_size(run, arm) == 1
        and ranks.strategy(run, arm) != REPLICAS
        and bool(settings.get("cores")) == pinned
    }
    return [
        family
        for kind in (STRONG, WEAK)
        for equal in run.contrast.groups(alone, vary=FREE)
        for family in _families_of_base(run, equal[0], kind)
    ]


def _families_of_base(run: RunData, base: str, kind: str) -> Iterator[Family]:
    """Yield the families of one kind of the single-rank arm ``base``, one per way to aggregate,
    only those with default aggregation if there are any; without asynchronous arms, each with one
    arm per number of ranks."""
    free = (*FREE, "batch_size") if kind == WEAK else FREE
    batch = int(run.arms[base].get("batch_size") or 0)

    def fits(arm: str) -> bool:
        n = ranks.world_size(run, arm)
        whole = kind == STRONG or run.arms[arm].get("batch_size") == batch * n > 0
        return n > 1 and whole and ranks.strategy(run, arm) != ASYNCHRONOUS

    alike = run.contrast.partners(base, vary=free, where=fits)
    ways = run.contrast.groups(alike, vary=[name for name in free if name != "aggregation"])
    plain = [arms for arms in ways if ranks.uses_default_aggregation(run, arms[0])]
    for arms in plain or ways:
        by_size = {ranks.world_size(run, arm): arm for arm in reversed(arms)}
        in_order = tuple(by_size[n] for n in sorted(by_size))
        yield Family(kind, base, in_order, ranks.strategy(run, arms[0]))


# --- cores ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CoreBudget:
    """The CPU cores for the ranks of an arm: each rank needs ``each``, ``have`` are usable; None:
    unknown."""

    ranks: int
    each: int | None
    have: int | None

    @property
    def has_enough_cores(self) -> bool | None:
        """Whether every rank has cores of its own, None if unknown. If False, ranks take turns on
        cores and their times say nothing about more nodes."""
        if self.each is None or self.have is None:
            return None
        return self.ranks * self.each <= self.have

    @property
    def used_cores(self) -> int | None:
        """Number of cores that the ranks use together, None if unknown."""
        if self.each is None or self.have is None:
            return None
        return min(self.ranks * self.each, self.have)


def core_budget(run: RunData, arm: str, backend: str) -> CoreBudget:
    """Return the core budget of an arm; a rank without pinned cores needs one per thread."""
    each = int(run.arms[arm].get("cores") or 0) or None
    if each is None:
        each = max((t.threads for t in run.select(arm, backend) if t.threads), default=None)
    return CoreBudget(ranks.world_size(run, arm), each, machine.cores(run, backend))


def crowding_notices(
    run: RunData, words: Messages, arms: Iterable[str] | None = None
) -> Iterator[Notice]:
    """Yield one notice with the backends whose ranks shared cores if ranks of these arms (None: of
    any arm) did; it belongs before all times."""
    places = ranks.successful_places(run, () if arms is None else arms)
    if arms is None or any(core_budget(run, *place).has_enough_cores is False for place in places):
        items = machine.oversubscription_items(run, words)
        if items:
            yield Notice(words("page.crowded", values=items))


# --- arithmetic -----------------------------------------------------------------------------------


def speedup(kind: str, n: int, one: float, many: float) -> float:
    """Return the speed-up: T₁ / Tₙ for strong scaling, n T₁ / Tₙ for weak scaling (Gustafson's
    scaled speed-up).

    Args:
        kind: ``strong`` or ``weak``.
        n: number of ranks.
        one, many: T₁ and Tₙ, the times of an update on one rank and on n.
    """
    return one / many * (n if kind == WEAK else 1)


def amdahl(n: float, one: float, serial: float, communication: float = 0.0) -> float:
    """Return T₁ / (u + (T₁ - u) / n + c), the speed-up if each of n ranks repeats the parameter
    update u (``serial``), does its share of the rest of T₁ (``one``, the update of the single
    rank), and communicates for c. All times in seconds."""
    return one / (serial + (one - serial) / n + communication)


def gustafson(n: int, one: float, communication: float = 0.0) -> float:
    """Return n T₁ / (T₁ + c), the speed-up if each of n ranks does all the work of the single rank,
    T₁ (``one``), and communicates for c. All times in seconds."""
    return n * one / (one + communication)
