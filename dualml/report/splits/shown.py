"""How times of split arms are shown: cells, bars of an update's parts, the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from dualml.report import keys
from dualml.report import shown as common
from dualml.report.blocks import Cell, Notice
from dualml.report.columns import verdict as judged
from dualml.report.figure import Key
from dualml.report.splits import times
from dualml.report.splits.arms import SplitArm
from dualml.store.run import Run
from dualml.words import Words, numbers

#: Verdicts against the whole model, the worst last; any other is worse.
VERDICTS = ("", "equal", "statistically equal", "not comparable")
stacked, listed = partial(common.stacked, height=0.76), common.listed


def part_keys(words: Words) -> list[Key]:
    """Parts of an update; one pale bar where what the ranks did is not recorded."""
    whole = Key("series", "whole", words("splits.part.whole"), "pale")
    return [whole, *(key for key in keys.fine_parts(words) if key.name != "whole")]


def starred(text: str, run: Run, arm: str, backend: str) -> str:
    """With a star where ranks took turns on cores."""
    turns = text != numbers.NONE and times.take_turns(run, arm, backend)
    return f"{text} *" if turns else text


def update_alt(run: Run, arms: Iterable[str], backends: Sequence[str], words: Words) -> str:
    """The times of updates that a figure shows."""
    values = listed(arms, backends, lambda name, b: times.update_ms(run, name, b))
    return words("alt.update-parts", values=values)


def verdict(run: Run, arm: str, words: Words) -> Cell:
    """Against the whole model: the worst over backends and seeds."""
    every = {s.verdict: s for s in reversed(run.serial) if s.arm == arm}
    if not every:
        return Cell(numbers.NONE)
    worst = every[max(every, key=lambda v: VERDICTS.index(v) if v in VERDICTS else len(VERDICTS))]
    if worst.verdict:
        return judged(worst, words, why=False)
    reason = words.either(f"rule.{worst.reason}", worst.reason)
    return Cell(words("value.another_rule"), note=reason)


def crowded(run: Run, arms: Iterable[SplitArm], words: Words) -> Iterator[Notice]:
    """Before every time: whose ranks had to share cores."""
    names = times.crowded(run, arms)
    if names:
        yield Notice(words("page.crowded_split", arms=words.join(names)))
