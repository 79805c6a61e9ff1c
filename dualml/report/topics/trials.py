"""The results of every trial, and the reasons of those that did not succeed."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.common.words import Messages, numbers
from dualml.experiment.store.manifest import LossScale
from dualml.experiment.store.run import RunData, Trial
from dualml.report import ranks
from dualml.report.blocks import Block, Item
from dualml.report.columns import Columns, status_cell, tabulate
from dualml.report.measures import loss_unit
from dualml.report.notes import Notes
from dualml.report.topics import ReportSection


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the table of trials that did not succeed with their reasons, and the table of all
    results."""
    place: Columns[Trial] = {
        ("`arm`", "backend", "seed:"): lambda t: (t.arm, t.backend, str(t.seed)),
        "status": lambda t: status_cell(t.status, words),
    }
    failed = (t for t in run.trials if not t.ok)
    yield from tabulate(words, "failures", failed, {**place, "reason": lambda t: t.reason})
    results: Columns[Trial] = {
        **place,
        f"final_loss:{loss_unit(run)}": lambda t: t.final_loss,
        "train_accuracy:percent": lambda t: t.train_accuracy,
        "test_accuracy:percent": lambda t: t.test_accuracy,
        **({"test_perplexity:1": lambda t: t.test_perplexity} if run.text else {}),
        "train_s:seconds": lambda t: t.train_s,
        "wall_s:seconds": lambda t: t.wall_s,
        "updates:count": lambda t: t.updates,
        "sample_gradients:count": lambda t: t.sample_gradients,
        "throughput:per_second": lambda t: t.throughput,
        "memory:memory": lambda t: t.peak_memory_mb,
    }
    places = ((arm, b) for arm in ranks.training_arms(run) for b in run.backends)
    every = (t for place in places for t in run.select(*place, ok=False))
    yield from tabulate(words, "trials", every, results)


def findings(notes: Notes, run: RunData) -> None:
    """Add how many trials succeeded, and the updates that loss scaling skipped for each arm on each
    backend, summed over the seeds, with the last trial's scale."""
    notes.append(_succeeded(run, notes.words))
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


def _succeeded(run: RunData, words: Messages) -> Item:
    """Return the sentence with the number of successful trials, a warning if some failed."""
    good, total = sum(t.ok for t in run.trials), len(run.trials)
    if good < total:
        text = words("status.some", ok=good, n=total)
        return Item(text, True, "table-failures", "status.some", words("table.failures"))
    key = "status.all_ok_one" if total == 1 else "status.all_ok"
    return Item(words(key, n=total), key=key)


TOPIC = ReportSection("trials", 800, evidence, findings, "table-trials")
