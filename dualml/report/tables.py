"""The tables of the report: rows of cells, a unit for every column that has one."""

from __future__ import annotations

from dualml.report import numbers, ranks
from dualml.report.analysis.convergence import TARGET
from dualml.report.analysis.convergence import reached as reached_by
from dualml.report.analysis.smoothness import arm_roughness
from dualml.report.cells import Cell, Head, Table, heads, number, percent, status
from dualml.report.model import Run
from dualml.report.style import loss_unit
from dualml.report.verdict_tables import divergence as divergence
from dualml.report.words import Words


def failures(run: Run, words: Words) -> Table | None:
    """Trials that did not succeed, with the reason."""
    rows = [
        [
            Cell(t.arm, "code"),
            Cell(t.backend),
            number(str(t.seed)),
            status(t, words),
            Cell(t.reason),
        ]
        for t in run.trials
        if not t.ok
    ]
    if not rows:
        return None
    head = heads(words, "arm", "backend", "seed", "status", "reason")
    return Table("failures", words("status.caption"), head, rows)


def trials(run: Run, words: Words) -> Table:
    rows = []
    for arm in ranks.training(run):
        for backend in run.backends:
            for t in run.select(arm, backend, ok=False):
                rows.append(
                    [
                        Cell(t.arm, "code"),
                        Cell(t.backend),
                        number(str(t.seed)),
                        status(t, words),
                        number(numbers.loss(t.final_loss)),
                        *(number(percent(v)) for v in (t.train_accuracy, t.test_accuracy)),
                        *([number(numbers.loss(t.test_perplexity))] if run.text else []),
                        *(number(numbers.quantity(v)) for v in (t.train_s, t.wall_s)),
                        *(number(numbers.quantity(v)) for v in (t.updates, t.sample_gradients)),
                        number(numbers.quantity(t.throughput)),
                        number(numbers.quantity(t.peak_memory_mb)),
                    ]
                )
    unit = loss_unit(run)
    head = heads(
        words,
        *("arm", "backend", "seed", "status", f"final_loss:{unit}", "train_accuracy:percent"),
        "test_accuracy:percent",
        *(["test_perplexity:1"] if run.text else []),
        *("train_s:seconds", "wall_s:seconds", "updates:count"),
        *("sample_gradients:count", "throughput:per_second", "memory:memory"),
    )
    return Table("trials", words("table.trials"), head, rows)


def reached(run: Run, words: Words) -> Table | None:
    if run.text:  # of the next word nobody is right that often
        return None
    rows = []
    for arm in run.main_arms():
        for backend in run.backends:
            if not run.select(arm, backend):
                continue
            hit = reached_by(run, arm, backend)
            if hit is None:
                values = [words("value.never"), numbers.NONE, numbers.NONE, numbers.NONE]
            else:
                values = [
                    *(numbers.quantity(v) for v in (hit.updates, hit.epochs, hit.seconds)),
                    words("value.of", n=hit.seeds, of=hit.of),
                ]
            rows.append([Cell(arm, "code"), Cell(backend), *map(number, values)])
    if not rows:
        return None
    head = heads(
        words, "arm", "backend", "updates:count", "epochs:epochs", "seconds:seconds", "seeds:count"
    )
    caption = words("table.reached", target=f"{100 * TARGET:g} %")
    return Table("reached", caption, head, rows)


def rough(run: Run, words: Words) -> Table | None:
    """Arms down, backends across."""
    rows = []
    for arm in run.main_arms():
        values = [arm_roughness(run, arm, b) for b in run.backends]
        rows.append([Cell(arm, "code"), *(number(numbers.scientific(v)) for v in values)])
    head = [*heads(words, "arm"), *(Head(b, words("unit.relative"), True) for b in run.backends)]
    return Table("smoothness", words("table.smoothness"), head, rows) if rows else None
