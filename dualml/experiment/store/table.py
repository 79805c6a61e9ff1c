"""A run as tables: columns of equal length with plain values, for pandas, CSV and other consumers
of rows. None stands for a missing value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dualml.common.files import nonfinite_to_none
from dualml.common.json_types import JsonMapping
from dualml.experiment.store.records import read_lines
from dualml.experiment.store.run import RunData, Serial, Trial, TrialComparison
from dualml.experiment.verdict import worst_verdict

Table = dict[str, list[Any]]

RECORD = ("arm", "backend", "seed", "rank", "metric", "step", "value", "unit")
#: Columns of a record that exist only if a record of the run has them.
OPTIONAL_COLUMNS = ("class", "epochs", "seconds")
#: Columns of a trial that are attributes of `Trial`, before those computed below.
TRIAL = (
    *("arm", "backend", "seed", "status", "reason", "world_size", "processes", "threads"),
    *("updates", "sample_gradients", "final_loss", "train_accuracy", "test_accuracy"),
    *("test_perplexity", "wall_s", "train_s", "throughput", "communication_share", "sent_bytes"),
    *("peak_memory_mb", "device_bytes"),
)
VERDICT = (
    *("arm", "seed", "a", "b", "against", "verdict", "reason", "steps", "ratio"),
    *("first_step", "first_phase", "first_tensor"),
)


def records(run: RunData) -> Table:
    """Return every recorded number as a table, one row per number.

    Columns: ``arm``, ``backend``, ``seed``, ``rank``, ``metric``, ``step`` (updates made; for
    ``loss`` the update itself, from 1), ``value``, ``unit`` (``nat``, or ``1`` for fractions and
    ratios); and, if any record of the run has them, ``class``, ``epochs`` (sample gradients divided
    by samples) and ``seconds`` (of training).

    Raises:
        UserError: a file of records is damaged; the text names the line.
    """
    table = empty_table((*RECORD, *OPTIONAL_COLUMNS))
    for trial in run.trials:
        for rank in range(trial.world_size):
            whose = {**trial_key(trial), "rank": rank}
            append_rows(
                table,
                (whose | nonfinite_to_none(record) for record in read_lines(trial.folder, rank)),
            )
    return {
        name: values
        for name, values in table.items()
        if name in RECORD or any(value is not None for value in values)
    }


def trials(run: RunData) -> Table:
    """Return the results of all trials as a table, one row per trial and one number or name per
    column.

    ``step_s`` is the median of the seconds of an update; ``throughput`` is in sample gradients per
    second; ``sent_bytes`` are those of an update on the rank that sends most; ``peak_memory_mb`` is
    the peak of the trial's processes in MiB; ``device_bytes`` is the memory that an update needs on
    the device of the rank that needs most; accuracies and ``communication_share`` are fractions;
    ``verdict`` is the worst of the trial's comparisons (`decided_comparisons`; one ``against`` an
    arm counts for the compared arm alone), None without one.
    """
    table = empty_table((*TRIAL, "step_s", "verdict"))
    judged: dict[tuple[str, str, int], list[str]] = {}
    for each in decided_comparisons(run):
        for backend in {each.a, each.b}:
            judged.setdefault((each.arm, backend, each.seed), []).append(each.verdict)
    for trial in run.trials:
        row = {name: getattr(trial, name) for name in TRIAL}
        row["step_s"] = trial.step_s[1] if len(trial.step_s) == 3 else None
        own = judged.get((trial.arm, trial.backend, trial.seed), [])
        row["verdict"] = worst_verdict(own) or None
        append_rows(table, [nonfinite_to_none(row)])
    return table


def verdicts(run: RunData) -> Table:
    """Return the comparisons with a verdict (`decided_comparisons`) as a table, one row each: two
    backends (``a``, ``b``), or several ranks or a method ``against`` the arm that they must equal
    on one backend.

    ``steps`` is the number of updates compared; ``ratio`` is the largest distance divided by its
    rounding envelope; ``first_step``, ``first_phase`` and ``first_tensor`` are the first
    divergence.
    """
    table = empty_table(VERDICT)
    for each in decided_comparisons(run):
        first = each.first_divergence or {}
        append_rows(
            table,
            [
                nonfinite_to_none(
                    {
                        **{
                            name: getattr(each, name)
                            for name in ("arm", "seed", "a", "b", "verdict")
                        },
                        "against": each.against if isinstance(each, Serial) else None,
                        "reason": each.reason,
                        "steps": each.steps,
                        "ratio": each.worst,
                        **{
                            f"first_{name}": first.get(name) for name in ("step", "phase", "tensor")
                        },
                    }
                )
            ],
        )
    return table


def decided_comparisons(run: RunData) -> list[TrialComparison]:
    """Return all comparisons of backends, and those of n ranks or a method with one process that
    have a verdict; comparisons of low precision (`RunData.lowered`) are left out."""
    return [*(run.comparisons or ()), *run.judged]


def trial_key(trial: Trial) -> dict[str, str | int]:
    """Return ``arm``, ``backend`` and ``seed`` of a trial, the columns that identify it."""
    return {"arm": trial.arm, "backend": trial.backend, "seed": trial.seed}


def empty_table(names: Sequence[str]) -> Table:
    """Make a table with these columns and no rows."""
    return {name: [] for name in names}


def append_rows(table: Table, rows: Iterable[JsonMapping]) -> None:
    """Append rows to the columns of a table, in place, with None for missing values; values without
    a column are left out."""
    for row in rows:
        for name, values in table.items():
            values.append(row.get(name))
