"""Epochs that end at different times on different ranks."""

from __future__ import annotations

from dataclasses import dataclass

from dualml.report import numbers
from dualml.report.cells import Cell, Table, heads, number
from dualml.report.deals import Deal, course, deals, dealt, through
from dualml.report.model import Run
from dualml.report.partitions import MOST_ARMS
from dualml.report.strategies import short
from dualml.report.words import Words

MOST_TOGETHER = 4


@dataclass(frozen=True)
class Uneven:
    """Arms with one deal and one batch size, in the first epoch of its first seed.

    ``each``: samples of each rank in an update until it is through; ``ends``: after how many of the
    epoch's ``updates`` that is; ``last``: samples of all ranks in the last update.
    """

    deal: Deal
    arms: tuple[str, ...]
    each: tuple[int, ...]
    ends: tuple[int, ...]
    updates: int
    last: int

    @property
    def first(self) -> int:
        """The rank that is through first, of those that have samples."""
        known = [rank for rank, end in enumerate(self.ends) if end]
        return min(known, key=lambda rank: self.ends[rank])

    @property
    def whole(self) -> bool:
        """Every sample once."""
        s = self.deal.first
        return not (s["missed"] or s["repeated"] or s["shared"])


def uneven(run: Run) -> list[Uneven]:
    """Deals that some arm went through to the end of an epoch, with ranks that ended more than an
    update earlier."""
    found = []
    for deal in deals(run):
        sizes: dict[int, list[str]] = {}
        for arm in deal.arms:
            if arm in dealt(run):
                sizes.setdefault(int(run.arms[arm].get("batch_size", 64)), []).append(arm)
        for arms in sizes.values():
            way = course(run, arms[0], deal.first)
            made = [t.updates or 0 for a in arms for t in run.select(a)]
            ends = through(way)
            if max(ends) > min(ends) + 1 and max(made) >= way.updates:
                last = sum(len(part) for part in way.parts(way.updates - 1))
                found.append(Uneven(deal, tuple(arms), tuple(way.each), tuple(ends), way.updates,
                                    last))  # fmt: skip
    return found


def uneven_table(run: Run, words: Words) -> Table | None:
    found = uneven(run)
    rows = [
        [
            Cell(u.deal.text, "code", note=", ".join(short(u.arms, words, MOST_ARMS))),
            Cell(listed(u.deal.first["sizes"])),
            Cell(listed(u.each) if len(set(u.each)) > 1 else f"{len(u.each)} × {u.each[0]}"),
            Cell(listed(u.ends)),
            number(numbers.quantity(u.updates)),
            Cell(numbers.quantity(u.ends[u.first]), "number",
                 note=words("value.rank", rank=u.first)),
            number(numbers.quantity(u.last)),
            _lost(u, words),
        ]
        for u in found
    ]  # fmt: skip
    if not rows:
        return None
    head = heads(
        words,
        *("partition", "samples_ranks", "each_ranks", "ends_ranks", "epoch_updates:count"),
        *("first_through:updates", "last_update:samples", "seen_once"),
    )
    caption = words("table.uneven", seed=found[0].deal.seed)
    return Table("uneven", caption, head, rows)


def listed(values: list[int] | tuple[int, ...]) -> str:
    """Rank 0, 1, …; a few stay in one line."""
    dot = "\N{NO-BREAK SPACE}·\N{NO-BREAK SPACE}" if len(values) <= MOST_TOGETHER else " · "
    return dot.join(numbers.quantity(v) for v in values)


def _lost(u: Uneven, words: Words) -> Cell:
    """Distinct samples that an epoch sees, of all there are."""
    s = u.deal.first
    seen = s["samples"] - s["missed"]
    told = words("value.of", n=numbers.quantity(seen), of=numbers.quantity(s["samples"]))
    return Cell(f"{'✓' if u.whole else '≠'} {told}", tone="good" if u.whole else "bad")
