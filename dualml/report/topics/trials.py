"""The results of every trial, and the reasons of those that did not succeed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.manifest import LossScale
from dualml.experiment.store.run import RunData
from dualml.report import ranks
from dualml.report.blocks import Block, Item
from dualml.report.columns import status_cell, table
from dualml.report.measures import loss_unit
from dualml.report.notes import Notes
from dualml.report.topics import ReportSection


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the table of trials that did not succeed with their reasons, and the table of all
    results."""
    failed = [
        [t.arm, t.backend, str(t.seed), status_cell(t.status, words), t.reason]
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
                status_cell(t.status, words),
                t.final_loss,
                t.train_accuracy,
            ),
            *(t.test_accuracy, *([t.test_perplexity] if run.text else []), t.train_s, t.wall_s),
            *(t.updates, t.sample_gradients, t.throughput, t.peak_memory_mb),
        ]
        for arm in ranks.training_arms(run)
        for backend in run.backends
        for t in run.select(arm, backend, ok=False)
    ]
    ends = (
        "`arm`",
        "backend",
        "seed:",
        "status",
        f"final_loss:{loss_unit(run)}",
        "train_accuracy:percent",
        "test_accuracy:percent",
        *(["test_perplexity:1"] if run.text else []),
        "train_s:seconds",
        "wall_s:seconds",
        "updates:count",
        "sample_gradients:count",
        "throughput:per_second",
        "memory:memory",
    )
    yield from table(words, "trials", ends, rows)


def findings(run: RunData, words: Messages) -> Sequence[Item]:
    """Return how many trials succeeded, and the updates that loss scaling skipped."""
    return [_succeeded(run, words), *_skipped(run, words)]


def _skipped(run: RunData, words: Messages) -> Sequence[Item]:
    """Return the updates that loss scaling skipped for each arm on each backend, summed over the
    seeds, with the last trial's scale."""
    notes = Notes(words, "trials", "table-trials")
    counted = dict[tuple[str, str], list[LossScale]]()
    for t in run.trials:
        if t.loss_scale is not None:
            counted.setdefault((t.arm, t.backend), []).append(t.loss_scale)
    for (arm, backend), scales in counted.items():
        skipped = sum(s.skipped for s in scales)
        if not skipped and scales[-1].last == 1:
            continue  # an engine with loss scaling that did not scale
        notes.add(
            "skipped",
            skipped,
            n=skipped,
            arm=arm,
            backend=backend,
            scale=numbers.quantity(scales[-1].last),
        )
    return notes


def _succeeded(run: RunData, words: Messages) -> Item:
    """Return the sentence with the number of successful trials, a warning if some failed."""
    good, total = sum(t.ok for t in run.trials), len(run.trials)
    if good < total:
        text = words("status.some", ok=good, n=total)
        return Item(text, True, "table-failures", "status.some", words("table.failures"))
    key = "status.all_ok_one" if total == 1 else "status.all_ok"
    return Item(words(key, n=total), key=key)


TOPIC = ReportSection("trials", 800, evidence, findings)
