"""Every trial at its end, and those that did not succeed with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report import ranks
from dualml.report.blocks import Block, Cells, Item, Table
from dualml.report.columns import columns, percent, status
from dualml.report.measures import loss_unit
from dualml.report.topics import Topic
from dualml.store.run import Run, Trial
from dualml.words import Words, numbers


def evidence(run: Run, words: Words) -> Iterator[Block]:
    failed: list[Cells] = [
        [t.arm, t.backend, str(t.seed), status(t, words), t.reason] for t in run.trials if not t.ok
    ]
    if failed:
        shown = columns(words, "`arm`", "backend", "seed:", "status", "reason")
        yield Table("failures", words("status.caption"), shown, failed)
    rows = [
        _row(run, words, t)
        for arm in ranks.training(run)
        for backend in run.backends
        for t in run.select(arm, backend, ok=False)
    ]
    if rows:
        shown = columns(
            words,
            *("`arm`", "backend", "seed:", "status", f"final_loss:{loss_unit(run)}"),
            *("train_accuracy:percent", "test_accuracy:percent"),
            *(["test_perplexity:1"] if run.text else []),
            *("train_s:seconds", "wall_s:seconds", "updates:count"),
            *("sample_gradients:count", "throughput:per_second", "memory:memory"),
        )
        yield Table("trials", words("table.trials"), shown, rows)


def _row(run: Run, words: Words, t: Trial) -> Cells:
    perplexity = [numbers.loss(t.test_perplexity)] if run.text else []
    amounts = (t.train_s, t.wall_s, t.updates, t.sample_gradients, t.throughput, t.peak_memory_mb)
    return [
        *(t.arm, t.backend, str(t.seed), status(t, words), numbers.loss(t.final_loss)),
        *map(percent, (t.train_accuracy, t.test_accuracy)),
        *perplexity,
        *map(numbers.quantity, amounts),
    ]


def findings(run: Run, words: Words) -> Sequence[Item]:
    """How many succeeded."""
    good, total = sum(t.ok for t in run.trials), len(run.trials)
    if good < total:
        text = words("status.some", ok=good, n=total)
        return [Item(text, True, "table-failures", "status.some", words("status.caption"))]
    key = "status.all_ok_one" if total == 1 else "status.all_ok"
    return [Item(words(key, n=total), key=key)]


TOPIC = Topic("trials", 800, evidence, findings)
