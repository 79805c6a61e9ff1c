"""Epochs that end at different times on different ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dualml.report.blocks import Cell, Table
from dualml.report.columns import columns
from dualml.report.deals import Deal, course, deals, dealt, through
from dualml.report.listing import several
from dualml.store.run import Run
from dualml.words import Words, numbers

MOST_ARMS = 3  # named beneath a partition
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
    every = []
    for deal in deals(run):
        by_batch: dict[int, list[str]] = {}
        for arm in deal.arms:
            if arm in dealt(run):
                by_batch.setdefault(int(run.arms[arm].get("batch_size", 64)), []).append(arm)
        for arms in by_batch.values():
            epoch = course(run, arms[0], deal.first)
            updates = max(t.updates or 0 for a in arms for t in run.select(a))
            ends = through(epoch)
            if max(ends) > min(ends) + 1 and updates >= epoch.updates:
                last = sum(len(part) for part in epoch.parts(epoch.updates - 1))
                every.append(
                    Uneven(deal, tuple(arms), tuple(epoch.each), tuple(ends), epoch.updates, last)
                )
    return every


def uneven_table(run: Run, words: Words) -> Iterator[Table]:
    every = uneven(run)
    if every:
        spec = (
            *("`partition`", "samples_ranks", "each_ranks", "ends_ranks", "epoch_updates:count"),
            *("first_through:updates", "last_update:samples", "seen_once"),
        )
        caption = words("table.uneven", seed=every[0].deal.seed)
        yield Table("uneven", caption, columns(words, *spec), [_row(u, words) for u in every])


def _row(u: Uneven, words: Words) -> list[Cell | str]:
    s = u.deal.first
    seen = s["samples"] - s["missed"]
    share = words("value.of", n=numbers.quantity(seen), of=numbers.quantity(s["samples"]))
    return [
        Cell(u.deal.text, note=", ".join(several(u.arms, words, MOST_ARMS))),
        listed(s["sizes"]),
        listed(u.each) if len(set(u.each)) > 1 else f"{len(u.each)} × {u.each[0]}",
        listed(u.ends),
        numbers.quantity(u.updates),
        Cell(numbers.quantity(u.ends[u.first]), note=words("value.rank", rank=u.first)),
        numbers.quantity(u.last),
        Cell(f"{'✓' if u.whole else '≠'} {share}", "good" if u.whole else "bad"),
    ]


def listed(values: list[int] | tuple[int, ...]) -> str:
    """Rank 0, 1, …; a few stay in one line."""
    dot = "\N{NO-BREAK SPACE}·\N{NO-BREAK SPACE}" if len(values) <= MOST_TOGETHER else " · "
    return dot.join(numbers.quantity(v) for v in values)
