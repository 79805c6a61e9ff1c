"""A run as tables: columns of equal length with plain values, for pandas, CSV and all else that
takes rows. None stands where a row has no value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dualml.files import finite
from dualml.store.records import read_lines
from dualml.store.run import Comparison, Run, Serial, Trial
from dualml.store.verdicts import VERDICTS

Table = dict[str, list[Any]]

RECORD = ("arm", "backend", "seed", "rank", "metric", "step", "value", "unit")
#: Of a record; only where a run has any.
MORE = ("class", "epochs", "seconds")
#: Of a trial, the attributes of `Trial`; then what is computed below.
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


def records(run: Run) -> Table:
    """Everything that was recorded, a row for each number.

    Columns: ``arm``, ``backend``, ``seed``, ``rank``, ``metric``, ``step`` (updates made; of
    ``loss`` the update itself, from 1), ``value``, ``unit`` (``nat``, or ``1`` of fractions and
    ratios); and where a record of the run has them ``class``, ``epochs`` (sample gradients over
    samples) and ``seconds`` (of training).

    Raises:
        UserError: a file of records is damaged; the text names the line.
    """
    table = empty((*RECORD, *MORE))
    for trial in run.trials:
        for rank in range(trial.world_size):
            whose = {**key_of(trial), "rank": rank}
            add(table, (whose | finite(record) for record in read_lines(trial.folder, rank)))
    return {
        name: values
        for name, values in table.items()
        if name in RECORD or any(value is not None for value in values)
    }


def trials(run: Run) -> Table:
    """A row for each trial with its results: one number or name a column.

    ``step_s`` is the median of the seconds of an update; ``throughput`` in sample gradients per
    second; ``sent_bytes`` in an update, by the rank that sends most; ``peak_memory_mb`` in MiB, of
    its processes; ``device_bytes`` what an update needs on the device of the rank that needs most;
    accuracies and ``communication_share`` are fractions; ``verdict`` is the worst of the
    comparisons that the trial is part of, None where there is none.
    """
    table = empty((*TRIAL, "step_s", "verdict"))
    judged: dict[tuple[str, str, int], list[str]] = {}
    for each in compared(run):
        for backend in {each.a, each.b}:
            judged.setdefault((each.arm, backend, each.seed), []).append(each.verdict)
    for trial in run.trials:
        row = {name: getattr(trial, name) for name in TRIAL}
        row["step_s"] = trial.step_s[1] if len(trial.step_s) == 3 else None
        row["verdict"] = worst(judged.get((trial.arm, trial.backend, trial.seed), []))
        add(table, [finite(row)])
    return table


def verdicts(run: Run) -> Table:
    """A row for each comparison: two backends (``a``, ``b``), or on one backend several ranks and
    methods ``against`` the arm that they must equal.

    ``steps`` were compared; ``ratio`` is the largest distance over its rounding envelope; where
    they part first: ``first_step``, ``first_phase``, ``first_tensor``.
    """
    table = empty(VERDICT)
    for each in compared(run):
        first = each.first_divergence or {}
        add(table, [finite({
            **{name: getattr(each, name) for name in ("arm", "seed", "a", "b", "verdict")},
            "against": each.against if isinstance(each, Serial) else None,
            "reason": each.reason, "steps": each.steps, "ratio": each.worst,
            **{f"first_{name}": first.get(name) for name in ("step", "phase", "tensor")},
        })])  # fmt: skip
    return table


def compared(run: Run) -> list[Comparison]:
    """All comparisons that came to a verdict."""
    return [*(run.comparisons or ()), *run.judged]


def worst(of: Iterable[str]) -> str | None:
    """Of several verdicts the one that counts; None of none."""
    return max(of, key=VERDICTS.index, default=None)


def key_of(trial: Trial) -> dict[str, Any]:
    return {"arm": trial.arm, "backend": trial.backend, "seed": trial.seed}


def empty(names: Sequence[str]) -> Table:
    return {name: [] for name in names}


def add(table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        for name, values in table.items():
            values.append(row.get(name))
