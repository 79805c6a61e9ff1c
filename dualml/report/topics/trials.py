"""Every trial at its end, and those that did not succeed with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report import ranks
from dualml.report.blocks import Block, Item
from dualml.report.columns import status, table
from dualml.report.measures import loss_unit
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words


def evidence(run: Run, words: Words) -> Iterator[Block]:
    failed = [
        [t.arm, t.backend, str(t.seed), status(t.status, words), t.reason]
        for t in run.trials
        if not t.ok
    ]
    head = ("`arm`", "backend", "seed:", "status", "reason")
    yield from table(words, "failures", head, failed)
    rows = [
        [
            *(
                t.arm,
                t.backend,
                str(t.seed),
                status(t.status, words),
                t.final_loss,
                t.train_accuracy,
            ),
            *(t.test_accuracy, *([t.test_perplexity] if run.text else []), t.train_s, t.wall_s),
            *(t.updates, t.sample_gradients, t.throughput, t.peak_memory_mb),
        ]
        for arm in ranks.training(run)
        for backend in run.backends
        for t in run.select(arm, backend, ok=False)
    ]
    ends = ("`arm`", "backend", "seed:", "status", f"final_loss:{loss_unit(run)}",
            "train_accuracy:percent", "test_accuracy:percent",
            *(["test_perplexity:1"] if run.text else []), "train_s:seconds", "wall_s:seconds",
            "updates:count", "sample_gradients:count", "throughput:per_second",
            "memory:memory")  # fmt: skip
    yield from table(words, "trials", ends, rows)


def findings(run: Run, words: Words) -> Sequence[Item]:
    """How many succeeded."""
    good, total = sum(t.ok for t in run.trials), len(run.trials)
    if good < total:
        text = words("status.some", ok=good, n=total)
        return [Item(text, True, "table-failures", "status.some", words("table.failures"))]
    key = "status.all_ok_one" if total == 1 else "status.all_ok"
    return [Item(words(key, n=total), key=key)]


TOPIC = Topic("trials", 800, evidence, findings)
