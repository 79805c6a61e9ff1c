"""Display a run in a notebook: its main result in one sentence, and one row per trial."""

from __future__ import annotations

from markupsafe import Markup

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.experiment.store.table import trials
from dualml.report.blocks import Cell, VerdictBlock
from dualml.report.columns import status_cell, table, verdict_cell
from dualml.report.headline import headline
from dualml.report.measures import loss_unit
from dualml.report.page.html import render_blocks

COLUMNS = ("arm", "backend", "seed", "status", "final_loss", "test_accuracy", "train_s", "verdict")


def html(run: RunData) -> Markup:
    """Render a run as an HTML fragment, in the language of the run: its main result in a sentence,
    and a table of its trials."""
    words = Messages(str(run.meta.get("lang") or "en"))
    known = trials(run)
    rows = [
        [
            arm,
            backend,
            str(seed),
            status_cell(state, words),
            loss,
            accuracy,
            seconds,
            Cell(numbers.NO_VALUE) if verdict is None else verdict_cell(verdict, words),
        ]
        for arm, backend, seed, state, loss, accuracy, seconds, verdict in zip(
            *(known[name] for name in COLUMNS), strict=True
        )
    ]
    heads = (
        "`arm`",
        "backend",
        "seed:",
        "status",
        f"final_loss:{loss_unit(run)}",
        "test_accuracy:percent",
        "train_s:seconds",
        "verdict",
    )
    tone, sentence = headline(run, words)
    return render_blocks([VerdictBlock(sentence, tone), *table(words, "trials", heads, rows)], 3)
