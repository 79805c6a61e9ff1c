"""The tables of the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

from dualml.common.errors import UserError
from dualml.common.files import resolve_links
from dualml.common.words import Messages, numbers
from dualml.experiment.store.findings import FINDINGS, read_findings
from dualml.experiment.store.trial_comparison import restore_verdicts
from dualml.experiment.store.verdicts import PARITY
from dualml.interface.serve.cache import Cache
from dualml.interface.serve.controls import checkbox
from dualml.interface.serve.run import RunView, TrialView
from dualml.interface.serve.summaries import UNREAD, RunSummary
from dualml.report.blocks import Block, Bullets, Cell, Column, Item, Notice, Prose, Table, Tone
from dualml.report.columns import STATUS_TONES, Columns, columns, make_table
from dualml.report.columns import verdict_cell as cell_of_verdict
from dualml.report.page.html import tag
from dualml.report.verdicts import serial_lines, verdict_table
from dualml.runner.jobs import table as jobs_table
from dualml.runner.jobs.control import JobRow

TONES: Mapping[str, Tone] = {**STATUS_TONES, "running": "near", "waiting": "", "interrupted": "bad"}


def page_url(page: str = "run", /, **values: str | Sequence[str]) -> str:
    """Return the URL, without host, of the page ``/PAGE`` (``run``, ``report`` or ``log``), with
    ``values`` as its query."""
    return f"/{page}?{urlencode(values, doseq=True)}"


def trial_key(trial: TrialView) -> str:
    """Return the name of a trial in URLs: arm, backend and seed, joined by slashes."""
    return "/".join(map(str, trial.record.key))


def trial_label(trial: TrialView, words: Messages) -> str:
    """Return the label of a trial: arm, backend and seed."""
    t = trial.record
    return words("run.trial", arm=t.arm, backend=t.backend, seed=t.seed)


def format_time(seconds: float) -> str:
    """Format a POSIX time in the time zone of this machine."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def format_created(text: str) -> str:
    """Format the ISO time at which a run was created, as `format_time`; a time without zone is UTC,
    and other text is unchanged."""
    try:
        made = datetime.fromisoformat(text)
    except ValueError:
        return text
    return format_time((made if made.tzinfo else made.replace(tzinfo=UTC)).timestamp())


def format_duration(seconds: float | None, words: Messages) -> str:
    """Format seconds in at most two units: ``2 h 5 min``; an empty text for None."""
    if seconds is None:
        return ""
    for unit, size, small, part in (("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            whole, rest = divmod(int(seconds), size)
            return words("serve.duration", a=whole, unit=unit, b=rest // part, small=small)
    return f"{seconds:.0f} s"


def state_cell(name: str, words: Messages) -> Cell:
    """Return the cell for the state ``name`` of a run or a trial, in the user's language and with
    its colour."""
    return Cell(
        words.get(f"serve.state.{name}", words.get(f"status.{name}", name)),
        TONES.get(name, "muted"),
    )


def verdict_cell(name: str, words: Messages) -> Cell:
    """Return the cell for a verdict, with its sign; empty if there is none."""
    return cell_of_verdict(name, words) if name else Cell("")


def make_jobs_table(
    rows: Sequence[JobRow], known: Mapping[Path, RunSummary], words: Messages
) -> Table:
    """Make the table of ``dualml jobs``, with links to the runs and their verdicts.

    Args:
        known: resolved run folder → summary.
    """
    table = jobs_table.jobs_table(rows, words)
    kept = [k for k, column in enumerate(table.columns) if column.key not in ("seconds", "left")]
    heads = [
        *(table.columns[k] for k in kept[:-1]),
        Column("since", words("serve.column.since")),
        Column("left", words("serve.column.left")),
        *columns(words, "verdict"),
        table.columns[kept[-1]],
    ]
    lines = []
    for row, cells in zip(rows, table.rows, strict=True):
        run = known.get(resolve_links(Path(row.job.out)))
        left, worst = (run.remaining_s, run.verdict) if run else (row.seconds_left, "")
        out = Cell(str(cells[-1]), href=page_url(run=run.id) if run else "")
        lines.append(
            [
                *(cells[k] for k in kept[:-1]),
                format_time(row.state.since),
                format_duration(left, words),
                verdict_cell(worst, words),
                out,
            ]
        )
    return Table("jobs", words("serve.part.jobs"), heads, lines)


def make_runs_table(found: Sequence[RunSummary], words: Messages, *, selectable: bool) -> Table:
    """Make the table of runs, one row per run, in the given order.

    Args:
        found: the runs.
        words: messages in the user's language.
        selectable: add checkboxes to select runs for comparison.
    """
    read: Columns[RunSummary] = {
        ("run", "name", "state", "trials", "left", "verdict", "created"): (
            lambda run: run_cells(run, words, selectable)
        )
    }
    return make_table(words, "runs", found, read, words("serve.part.runs"), "serve.column.{}")


def run_cells(run: RunSummary, words: Messages, selectable: bool) -> list[Cell | str]:
    """Return the cells of one run; of one that was not or cannot be read only its link and
    state."""
    link = tag("a", run.id, href=page_url(run=run.id))
    if selectable:
        label = words("serve.choose", run=run.id)
        link = checkbox("run", run.id, label, form="choice") + link
    if run.state == UNREAD:
        return [Cell(link), "", state_cell(run.state, words), *[""] * 4]
    if run.problem:
        return [Cell(link), "", Cell(words("status.unreadable"), "bad", run.problem), *[""] * 4]
    return [
        Cell(link),
        run.name,
        state_cell(run.state, words),
        f"{run.ended}/{run.total}",
        format_duration(run.remaining_s, words),
        verdict_cell(run.verdict, words),
        format_created(run.created),
    ]


def verdict_blocks(path: Path, cache: Cache, words: Messages) -> list[Block]:
    """Return all verdicts of ``parity.json`` and the findings about differences as blocks, or a
    notice if there is no such file yet, it compares nothing, or they cannot be read."""
    try:
        parity = cache.read(path / PARITY.name, PARITY.read_if_present)
        findings = cache.read(path / FINDINGS.name, read_findings)
    except UserError as error:
        return [Notice(str(error))]
    if parity is None:
        return [Prose(words("serve.no_verdict"), small=True)]
    verdicts = restore_verdicts(parity)
    table = verdict_table(verdicts, words)
    lines = [*serial_lines(verdicts, words), *(getattr(f.text, words.lang) for f in findings)]
    caption = words("serve.part.verdicts")
    shown: list[Block] = [replace(table, caption=caption)] if table.rows else []
    if not table.rows and not lines:
        shown.append(Prose(words("headline.empty")))
    return [*shown, *([Bullets([Item(line) for line in lines])] if lines else [])]


def trial_blocks(seen: RunView, words: Messages) -> list[Block]:
    """Return the table of trials, after a notice for each whose records cannot be read."""
    loss = Column("loss", words("serve.metric.train_loss"), show="number")
    key, results = ("`arm`", "backend", "seed:"), ("test_accuracy:percent", "wall_s:seconds")
    read: Columns[TrialView] = {
        (*key, "status", "updates:", loss, *results, "reason"): lambda t: trial_cells(t, words)
    }
    problems = [Notice(trial.problem) for trial in seen.trials if trial.problem]
    caption = words("serve.part.trials")
    return [*problems, make_table(words, "trials", seen.trials, read, caption)]


def trial_cells(trial: TrialView, words: Messages) -> list[Cell | str]:
    """Return the cells of one trial; unless it is ``ok``, loss and accuracy are the last recorded
    ones."""
    t = trial.record
    loss, accuracy = t.final_loss, t.test_accuracy
    if trial.state != "ok":
        loss, accuracy = last_value(trial, "train_loss"), last_value(trial, "test_accuracy")
    why = "" if trial.state in ("running", "waiting") else t.reason or ""
    return [
        t.arm,
        t.backend,
        str(t.seed),
        state_cell(trial.state, words),
        numbers.quantity(trial.updates),
        numbers.loss(loss),
        numbers.percent(accuracy).removesuffix(" %"),
        numbers.quantity(t.wall_s),
        why,
    ]


def last_value(trial: TrialView, metric: str) -> float | None:
    """Return the last recorded value of a metric, or None if it was not recorded."""
    curve = trial.curves.get(metric)
    return None if curve is None else float(curve.value[-1])


def make_results_table(runs: Sequence[RunView], words: Messages) -> Table:
    """Make the table of final loss and test accuracy per arm, backend and seed, one column per
    run."""
    every = dict.fromkeys(t.record.key for seen in runs for t in seen.trials)
    heads = columns(words, "`arm`", "backend", "seed:")
    for k, seen in enumerate(runs):
        heads.append(Column(f"run{k}", seen.summary.id, words("serve.loss_accuracy"), "number"))
    rows = []
    for trial in every:
        by_run = [next((t for t in seen.trials if t.record.key == trial), None) for seen in runs]
        cells = ["" if t is None else _result_cell(t, words) for t in by_run]
        rows.append([*map(str, trial), *cells])
    return Table("results", words("serve.part.results"), heads, rows)


def _result_cell(trial: TrialView, words: Messages) -> Cell | str:
    """Return the cell with loss and accuracy of one trial, empty before it has any records; unless
    it is ``ok``, its state is a note."""
    _, _, _, status, _, loss, accuracy, *_ = trial_cells(trial, words)
    numbers = f"{loss} · {accuracy} %" if trial.curves else ""
    if trial.state == "ok":
        return numbers
    return Cell(numbers, "", status.text if isinstance(status, Cell) else status)
