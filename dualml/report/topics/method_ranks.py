"""How ranks combine results: the loss of an update, predictions, and the last batch of an epoch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dualml.backend import at_once, chunks
from dualml.communicator.parts import parts_of
from dualml.report.blocks import Block, Fold, Formula, Item
from dualml.report.code import excerpt
from dualml.report.columns import table
from dualml.report.methods import Way, about
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.report.topics.methods import sorted_out
from dualml.report.trained import parts_at
from dualml.store.run import Run
from dualml.words import Words, numbers

#: The mean loss of N samples from the losses of n ranks, and the plain mean of these losses.
MEAN = r"L = \sum_{r=1}^{n} \frac{N_r}{N} L_r"
PLAIN = r"\frac{1}{n} \sum_{r=1}^{n} L_r"
#: Operation → its file and functions.
CODE = {
    "share": ("dualml/methods/driven.py", ("Driven.step",)),
    "reduce": ("dualml/aggregation/parallel.py", ("over_ranks",)),
    "gather": ("dualml/worker/evaluate.py", ("evaluate", "together")),
}


@dataclass(frozen=True)
class Last:
    """The last batch of an epoch as it is split over ranks.

    Attributes:
        results: the methods that train it so.
        step: its update.
        parts: number of samples per rank.
        tested: number of test samples that each rank predicts; empty if unknown.
    """

    ways: Sequence[Way]
    step: int
    parts: Sequence[int]
    tested: Sequence[int]

    @property
    def whole(self) -> int:
        """Number of samples of all ranks."""
        return sum(self.parts)

    @property
    def uneven(self) -> bool:
        """Whether ranks have different numbers of samples."""
        return len({*self.parts}) > 1


def lasts(run: Run, words: Words) -> list[Last]:
    """Return the planned last batches: one per number of ranks, baseline arm and kind of data
    loader."""
    plan, groups = run.plan, dict[tuple[str, int, bool], list[Way]]()
    if plan is None:
        return []
    for w in sorted_out(run, words)[0]:
        if w.reference is not None and w.processes > 1:
            groups.setdefault((w.reference.arm, w.processes, w.prepared), []).append(w)
    batches = []
    for (arm, n, prepared), ways in groups.items():
        settings = plan.experiment.arms[arm].model_copy(update={"world_size": n})
        seed = ways[0].trials[0].seed
        feed = plan.feed(settings, seed)
        step = min(feed.per_epoch, plan.schedule(settings, seed).updates)
        dealt = parts_at(feed, step, settings.batch_size, prepared)
        parts = [len(part) for part in dealt]
        batches.append(Last(ways, step, parts, predicted(run, n)))
    return batches


def predicted(run: Run, ranks: int) -> list[int]:
    """Return how many test samples each rank evaluates, as `dualml.worker.evaluate` distributes
    them: whole chunks, no sample twice. Empty if unknown."""
    size = (run.meta.get("data") or {}).get("test")
    if run.text or not size:
        return []
    index = np.arange(size)
    pieces = [len(piece) for piece, _ in chunks(index, at_once(index))]
    ends = np.cumsum([0, *parts_of(len(pieces), ranks)])
    return [sum(pieces[a:b]) for a, b in itertools.pairwise(ends)]


def evidence(run: Run, words: Words) -> Iterator[Block]:
    every = lasts(run, words)
    if not every:
        return
    yield Formula(rf"{MEAN} \quad \text{{{words('methods.in_place_of')}}} \quad {PLAIN}")
    for number, last in enumerate(every):
        name = "last-batch" if number == 0 else f"last-batch-{number + 1}"
        n, whole, tested = len(last.parts), last.whole, last.tested
        head = ("rank", "own_part:samples", "weight:", "own_weight:relative", "plain_weight:",
                "counts:", "plain_counts:", *(["predicts:samples"] if tested else []))  # fmt: skip
        rows = [
            [str(rank), part, share(part, whole), n * part / whole, share(1, n), f"1/{whole}",
             f"1/{n * part}" if part else None, *([tested[rank]] if tested else [])]
            for rank, part in enumerate(last.parts)
        ]  # fmt: skip
        arms = words.join(list(dict.fromkeys(w.arm for w in last.ways)))
        yield from table(words, name, head, rows, "last_batch", n=n, step=last.step,
                         whole=whole, arms=arms)  # fmt: skip
    for what, (file, names) in CODE.items():
        code = excerpt(file, names)
        if code.text:
            yield Fold(words(f"code.{what}"), [code])


def share(part: int, whole: int) -> str:
    """Return a fraction with its value, e.g. ``18/35 = 0.514``."""
    return f"{part}/{whole} = {numbers.quantity(part / whole)}"


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "methods", "table-last-batch")
    for last in lasts(run, words):
        if not last.uneven:
            notes.say("even", whole=last.whole, n=len(last.parts))
            continue
        few, many = min(last.parts), max(last.parts)
        if few:
            off = last.whole / (len(last.parts) * few) - 1
            notes.say("uneven", parts=[str(p) for p in last.parts], whole=last.whole, few=few,
                      many=many, off=off)  # fmt: skip
    return notes


TOPIC = Topic("method-ranks", 22, evidence, findings, when=about)
