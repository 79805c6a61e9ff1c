"""Training time of the frameworks compared, on the same machine only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import median

from dualml.report import ranks
from dualml.report.blocks import Block, Item
from dualml.report.columns import number, table
from dualml.report.measures import alone, known, mean
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.store.run import Run, Trial
from dualml.words import Words, numbers


def ratio(run: Run, arm: str, a: str, b: str) -> float | None:
    """Return the training time on ``b`` relative to ``a``, median over the seeds; None if
    unknown."""
    seconds = {t.seed: t.train_s for t in run.select(arm, a)}
    pairs = [(seconds.get(t.seed), t.train_s) for t in run.select(arm, b)]
    ratios = [y / x for x, y in pairs if x and y]
    return median(ratios) if ratios else None


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """Yield the seconds of training by arm and backend, mean over the seeds."""
    shown = ranks.frameworks(run)
    rows = [[arm, *(mean(run, arm, b, "train_s") for b in shown)] for arm in run.main_arms()]
    if len(shown) > 1:
        head = (number(words, backend, backend, "seconds") for backend in shown)
        yield from table(words, "speed", ["`arm`", *head], rows)


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "speed", "table-speed")
    arms = [arm for arm in run.main_arms() if run.select(arm)]
    shown = ranks.frameworks(run)
    if len(shown) < 2:
        if not ranks.distributed(run):
            notes.warn("single")
        return notes
    for a, b in combinations(shown, 2):
        ratios = known({arm: ratio(run, arm, a, b) for arm in arms})
        if not ratios:
            notes.warn("no_pair", a=a, b=b)
            continue
        fast, slow = (a, b) if median(ratios.values()) >= 1 else (b, a)
        times = {arm: r if fast == a else 1 / r for arm, r in ratios.items()}
        listed = [notes.part("item", arm=arm, times=r) for arm, r in times.items()]
        notes.say("ratio", slow=slow, fast=fast, values=listed)
    for backend in shown:
        seconds = numbers.mean([_outside(t) for arm in arms for t in run.select(arm, backend)])
        if seconds is not None:
            notes.say("outside", backend=backend, seconds=seconds)
    if len(run.folders) > 1:
        notes.warn("machines", n=len(run.folders))
    return notes


def _outside(t: Trial) -> float | None:
    """Return the seconds of a trial that were not training, None if unknown."""
    return None if t.wall_s is None or t.train_s is None else t.wall_s - t.train_s


TOPIC = Topic("speed", 130, evidence, findings, leads=lambda run: 40, when=alone)
