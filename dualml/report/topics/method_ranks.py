"""How ranks combine results: the loss of an update, predictions, and the last batch of an epoch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dualml.algorithms.communicator.parts import part_lengths
from dualml.backend import eval_batch_size, split_into_chunks
from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report.baseline_diff import rank_parts
from dualml.report.blocks import Block, Fold, Formula
from dualml.report.code import excerpt
from dualml.report.columns import Columns, tabulate
from dualml.report.methods import MethodResult, compares_methods
from dualml.report.notes import Notes
from dualml.report.topics import ReportSection
from dualml.report.topics.methods import split_by_equivalence

#: The mean loss of N samples from the losses of n ranks, and the plain mean of these losses.
MEAN = r"L = \sum_{r=1}^{n} \frac{N_r}{N} L_r"
PLAIN = r"\frac{1}{n} \sum_{r=1}^{n} L_r"
#: Operation → its file and functions.
CODE = {
    "share": (
        "dualml/experiment/methods/engine.py",
        ("EngineDataParallel.local_batch", "EngineDataParallel.compute"),
    ),
    "reduce": ("dualml/parallel/batch.py", ("gather_mean_losses",)),
    "gather": ("dualml/runner/worker/evaluate.py", ("evaluate", "gather_rows")),
}


@dataclass(frozen=True)
class LastBatch:
    """The last batch of an epoch as it is split over ranks.

    Attributes:
        results: the methods that train it so.
        step: its update.
        parts: number of samples per rank.
        tested: number of test samples that each rank predicts; empty if unknown.
    """

    results: Sequence[MethodResult]
    step: int
    parts: Sequence[int]
    tested: Sequence[int]

    @property
    def total_samples(self) -> int:
        """Number of samples of all ranks."""
        return sum(self.parts)

    @property
    def uneven(self) -> bool:
        """Whether ranks have different numbers of samples."""
        return len({*self.parts}) > 1


def last_batches(run: RunData, words: Messages) -> list[LastBatch]:
    """Return the planned last batches of an epoch for methods with several processes that trained
    the same as their baseline: one per number of ranks, baseline arm and kind of data loader. Empty
    without a plan."""
    plan, groups = run.plan, dict[tuple[str, int, bool], list[MethodResult]]()
    if plan is None:
        return []
    for w in split_by_equivalence(run, words)[0]:
        if w.reference is not None and w.processes > 1:
            groups.setdefault((w.reference.arm, w.processes, w.uses_engine_loader), []).append(w)
    batches = []
    for (arm, n, prepared), ways in groups.items():
        settings = plan.experiment.arms[arm].model_copy(update={"world_size": n})
        seed = ways[0].trials[0].seed
        feed = plan.batch_sampler(settings, seed)
        step = min(feed.per_epoch, plan.schedule(settings, seed).updates)
        dealt = rank_parts(feed, step, settings.batch_size, prepared)
        parts = [len(part) for part in dealt]
        batches.append(LastBatch(ways, step, parts, samples_per_rank(run, n)))
    return batches


def samples_per_rank(run: RunData, ranks: int) -> list[int]:
    """Return how many test samples each of ``ranks`` ranks evaluates, as
    `dualml.runner.worker.evaluate` distributes them: whole chunks, no sample twice. Empty if the
    size of the test set is unknown, and for text."""
    size = (run.meta.get("data") or {}).get("test")
    if run.text or not size:
        return []
    index = np.arange(size)
    pieces = [len(piece) for piece, _ in split_into_chunks(index, eval_batch_size(index))]
    ends = np.cumsum([0, *part_lengths(len(pieces), ranks)])
    return [sum(pieces[a:b]) for a, b in itertools.pairwise(ends)]


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the formula of averaging by samples, a table per last batch (`last_batches`) with each
    rank's weight in it, and the code, folded; nothing without such a batch."""
    every = last_batches(run, words)
    if not every:
        return
    yield Formula(rf"{MEAN} \quad \text{{{words('methods.in_place_of')}}} \quad {PLAIN}")
    for number, last in enumerate(every):
        name = "last-batch" if number == 0 else f"last-batch-{number + 1}"
        arms = words.join(list(dict.fromkeys(w.arm for w in last.results)))
        values = {
            "n": len(last.parts),
            "step": last.step,
            "whole": last.total_samples,
            "arms": arms,
        }
        rows, read = enumerate(last.parts), rank_columns(last)
        yield from tabulate(words, name, rows, read, "last_batch", **values)
    for what, (file, names) in CODE.items():
        code = excerpt(file, names)
        if code.text:
            yield Fold(words(f"code.{what}"), [code])


def rank_columns(last: LastBatch) -> Columns[tuple[int, int]]:
    """Return the columns of records (rank, its number of samples in the last batch): its weight in
    a mean over samples and in a plain mean over ranks, and the test samples that it predicts."""
    n, whole = len(last.parts), last.total_samples
    return {
        "rank": lambda part: str(part[0]),
        "own_part:samples": lambda part: part[1],
        "weight:": lambda part: format_share(part[1], whole),
        "own_weight:relative": lambda part: n * part[1] / whole,
        "plain_weight:": lambda _: format_share(1, n),
        "counts:": lambda _: f"1/{whole}",
        "plain_counts:": lambda part: f"1/{n * part[1]}" if part[1] else None,
        "predicts:samples?": lambda part: last.tested[part[0]] if last.tested else None,
    }


def format_share(part: int, whole: int) -> str:
    """Return a fraction with its value, e.g. ``18/35 = 0.514``."""
    return f"{part}/{whole} = {numbers.quantity(part / whole)}"


def findings(notes: Notes, run: RunData) -> None:
    """Add whether the last batch of an epoch is uneven, and by how much a plain mean would then
    overweight the samples of its smallest part."""
    words = notes.words
    for last in last_batches(run, words):
        if not last.uneven:
            notes.add("even", whole=last.total_samples, n=len(last.parts))
            continue
        few, many = min(last.parts), max(last.parts)
        if few:
            off = last.total_samples / (len(last.parts) * few) - 1
            notes.add(
                "uneven",
                parts=[str(p) for p in last.parts],
                whole=last.total_samples,
                few=few,
                many=many,
                off=off,
            )


TOPIC = ReportSection(
    "method-ranks",
    22,
    evidence,
    findings,
    "table-last-batch",
    when=compares_methods,
    messages="methods",
)
