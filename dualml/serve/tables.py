"""The tables of the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

from dualml.errors import UserError
from dualml.files import resolved
from dualml.jobs import table as jobs_table
from dualml.jobs.control import Row
from dualml.report.blocks import Block, Bullets, Cell, Column, Item, Notice, Prose, Table, Tone
from dualml.report.columns import SIGNS, STATUS_TONES, VERDICT_TONES, columns
from dualml.report.page.html import tag
from dualml.report.verdicts import on_one_backend, verdict_table
from dualml.serve.cache import Cache
from dualml.serve.controls import box
from dualml.serve.found import UNREAD, Found
from dualml.serve.run import Seen, Shown
from dualml.store.findings import FINDINGS, read_findings
from dualml.store.verdicts import PARITY
from dualml.words import Words, numbers

TONES: Mapping[str, Tone] = {**STATUS_TONES, "running": "near", "waiting": "", "interrupted": "bad"}


def address(page: str = "run", /, **values: str | Sequence[str]) -> str:
    """Return the URL of a page about a run."""
    return f"/{page}?{urlencode(values, doseq=True)}"


def key(trial: Shown) -> str:
    """Return the name of a trial in URLs."""
    return "/".join(map(str, trial.record.key))


def label(trial: Shown, words: Words) -> str:
    """Return the label of a trial: arm, backend and seed."""
    t = trial.record
    return words("run.trial", arm=t.arm, backend=t.backend, seed=t.seed)


def moment(seconds: float) -> str:
    """Format a POSIX time in the time zone of this machine."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def begun(text: str) -> str:
    """Format the ISO time at which a run was created, as `format_time`; other text is unchanged."""
    try:
        made = datetime.fromisoformat(text)
    except ValueError:
        return text
    return moment((made if made.tzinfo else made.replace(tzinfo=UTC)).timestamp())


def duration(seconds: float | None, words: Words) -> str:
    """Format seconds in at most two units: ``2 h 5 min``."""
    if seconds is None:
        return ""
    for unit, size, small, part in (("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            whole, rest = divmod(int(seconds), size)
            return words("serve.duration", a=whole, unit=unit, b=rest // part, small=small)
    return f"{seconds:.0f} s"


def state(name: str, words: Words) -> Cell:
    """Return the cell for the state of a run or a trial."""
    return Cell(words.either(f"serve.state.{name}", words.either(f"status.{name}", name)),
                TONES.get(name, "muted"))  # fmt: skip


def verdict(name: str, words: Words) -> Cell:
    """Return the cell for a verdict, with its sign; empty if there is none."""
    if not name:
        return Cell("")
    tone = VERDICT_TONES.get(name, "muted")
    text = words.either(f"verdict.{name.replace(' ', '_')}", name)
    return Cell(f"{SIGNS[tone]} {text}", tone)


def jobs(rows: Sequence[Row], known: Mapping[Path, Found], words: Words) -> Table:
    """Make the table of ``dualml jobs``, with links to the runs and their verdicts.

    Args:
        known: resolved run folder → summary.
    """
    table = jobs_table.table(rows, words)
    kept = [k for k, column in enumerate(table.columns) if column.key not in ("seconds", "left")]
    heads = [*(table.columns[k] for k in kept[:-1]), Column("since", words("serve.column.since")),
             Column("left", words("serve.column.left")), *columns(words, "verdict"),
             table.columns[kept[-1]]]  # fmt: skip
    lines = []
    for row, cells in zip(rows, table.rows, strict=True):
        run = known.get(resolved(Path(row.job.out)))
        left, worst = (run.left, run.verdict) if run else (row.left, "")
        out = Cell(str(cells[-1]), href=address(run=run.id) if run else "")
        lines.append([*(cells[k] for k in kept[:-1]), moment(row.state.since),
                      duration(left, words), verdict(worst, words), out])  # fmt: skip
    return Table("jobs", words("serve.part.jobs"), heads, lines)


def runs(found: Sequence[Found], words: Words, *, choose: bool) -> Table:
    """Make the table of runs, one row per run.

    Args:
        selectable: add checkboxes to select runs for comparison.
    """
    names = ("run", "name", "state", "trials", "left", "verdict", "created")
    heads = [Column(name, words(f"serve.column.{name}")) for name in names]
    return Table(
        "runs", words("serve.part.runs"), heads, [run_cells(run, words, choose) for run in found]
    )


def run_cells(run: Found, words: Words, choose: bool) -> list[Cell | str]:
    """Return the cells of one run."""
    link = tag("a", run.id, href=address(run=run.id))
    if choose:
        label = words("serve.choose", run=run.id)
        link = box("run", run.id, label, form="choice") + link
    if run.state == UNREAD:
        return [Cell(link), "", state(run.state, words), *[""] * 4]
    if run.problem:
        return [Cell(link), "", Cell(words("status.unreadable"), "bad", run.problem), *[""] * 4]
    return [
        Cell(link), run.name, state(run.state, words), f"{run.ended}/{run.total}",
        duration(run.left, words), verdict(run.verdict, words), begun(run.created),
    ]  # fmt: skip


def verdicts(path: Path, cache: Cache, words: Words) -> list[Block]:
    """Return all verdicts of ``parity.json``, and the findings about differences."""
    try:
        parity = cache.read(path / PARITY.name, PARITY.read_if_there)
        findings = cache.read(path / FINDINGS.name, read_findings)
    except UserError as error:
        return [Notice(str(error))]
    if parity is None:
        return [Prose(words("serve.no_verdict"), small=True)]
    content = PARITY.content(parity)
    table = verdict_table(content, words)
    lines = [*on_one_backend(content, words), *(getattr(f.text, words.lang) for f in findings)]
    caption = words("serve.part.verdicts")
    shown: list[Block] = [replace(table, caption=caption)] if table.rows else []
    if not table.rows and not lines:
        shown.append(Prose(words("headline.empty")))
    return [*shown, *([Bullets([Item(line) for line in lines])] if lines else [])]


def trials(seen: Seen, words: Words) -> list[Block]:
    """Return the table of trials, after a notice for each whose records cannot be read."""
    loss = Column("loss", words("serve.metric.train_loss"), show="number")
    heads = columns(words, "`arm`", "backend", "seed:", "status", "updates:", loss,
                    "test_accuracy:percent", "wall_s:seconds", "reason")  # fmt: skip
    rows = [trial_cells(trial, words) for trial in seen.trials]
    problems = [Notice(trial.problem) for trial in seen.trials if trial.problem]
    return [*problems, Table("trials", words("serve.part.trials"), heads, rows)]


def trial_cells(trial: Shown, words: Words) -> list[Cell | str]:
    """Return the cells of one trial."""
    t = trial.record
    loss, accuracy = t.final_loss, t.test_accuracy
    if trial.state != "ok":
        loss, accuracy = last(trial, "train_loss"), last(trial, "test_accuracy")
    why = "" if trial.state in ("running", "waiting") else t.reason or ""
    return [
        t.arm, t.backend, str(t.seed), state(trial.state, words), numbers.quantity(trial.updates),
        numbers.loss(loss), numbers.percent(accuracy).removesuffix(" %"),
        numbers.quantity(t.wall_s), why,
    ]  # fmt: skip


def last(trial: Shown, metric: str) -> float | None:
    """Return the last recorded value of a metric, or None."""
    curve = trial.curves.get(metric)
    return None if curve is None else float(curve.value[-1])


def results(runs: Sequence[Seen], words: Words) -> Table:
    """Make the table of final loss and test accuracy per arm, backend and seed, one column per
    run."""
    every = dict.fromkeys(t.record.key for seen in runs for t in seen.trials)
    heads = columns(words, "`arm`", "backend", "seed:")
    for k, seen in enumerate(runs):
        heads.append(Column(f"run{k}", seen.found.id, words("serve.loss_accuracy"), "number"))
    rows = []
    for trial in every:
        by_run = [next((t for t in seen.trials if t.record.key == trial), None) for seen in runs]
        cells = ["" if t is None else _result(t, words) for t in by_run]
        rows.append([*map(str, trial), *cells])
    return Table("results", words("serve.part.results"), heads, rows)


def _result(trial: Shown, words: Words) -> Cell | str:
    """Return the cell with loss and accuracy of one trial."""
    _, _, _, status, _, loss, accuracy, *_ = trial_cells(trial, words)
    numbers = f"{loss} · {accuracy} %" if trial.curves else ""
    if trial.state == "ok":
        return numbers
    return Cell(numbers, "", status.text if isinstance(status, Cell) else status)
