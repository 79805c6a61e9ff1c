"""Tables of what was set: the experiment, the plan, the arms, the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualml.report import numbers, ranks
from dualml.report.cells import Cell, Head, Table, heads, number
from dualml.report.model import Run
from dualml.report.rank_tables import rank_settings
from dualml.report.splits.setting_tables import split_settings
from dualml.report.words import Words


def settings(run: Run, words: Words) -> list[Table]:
    made = [_experiment(run, words), _plan(run, words), _arms(run, words)]
    made += [*split_settings(run, words), *rank_settings(run, words), _environment(run, words)]
    return [table for table in made if table.rows]


def _experiment(run: Run, words: Words) -> Table:
    meta, experiment = run.meta, run.experiment
    data = meta.get("data") or {}
    source = str(data.get("source") or "")
    values = {
        "name": meta.get("name"),
        "model": experiment.get("model"),
        "loss": experiment.get("loss"),
        "data": data.get("name"),
        "source": words.either(f"data_source.{source}", source),
        "data_hash": data.get("sha256"),
        "train": numbers.quantity(data.get("train")),
        "test": numbers.quantity(data.get("test")),
        "seeds": ", ".join(map(str, run.seeds)),
        "quick": words("value.yes" if experiment.get("quick") else "value.no"),
        "created": meta.get("created"),
        "dualml": meta.get("dualml"),
        "git": meta.get("git"),
        "plan": meta.get("plan_hash"),
        "folder": ", ".join(folder.name for folder in run.folders),
    }
    rows = [
        [Cell(words(f"setting.{key}")), _value(value, words)]
        for key, value in values.items()
        if value not in (None, "", {})
    ]
    return Table("experiment", words("table.experiment"), heads(words, "name", "value"), rows)


def _value(value: Any, words: Words) -> Cell:
    """Values of JSON as text; nested ones (dataset hashes by file) line by line."""
    if isinstance(value, Mapping):
        return Cell("; ".join(f"{k}: {v}" for k, v in value.items()), "code")
    if isinstance(value, bool):
        return Cell(words("value.yes" if value else "value.no"))
    return Cell(str(value), "code" if len(str(value)) > 40 else "text")


def _plan(run: Run, words: Words) -> Table:
    parts = run.meta.get("plan_parts") or {}
    rows = [[Cell(words.either(f"part.{k}", k)), Cell(str(v), "code")] for k, v in parts.items()]
    return Table("plan", words("table.plan"), heads(words, "part", "hash"), rows)


def _arms(run: Run, words: Words) -> Table:
    if ranks.distributed(run):
        return _alike(run, words)
    rows = []
    for arm in ranks.training(run):
        group = str(run.arms[arm].get("group") or "main")
        told = Cell(words.either(f"group.{group}", group))
        rows.append([Cell(arm, "code"), told, *_hyper(run, arm, words)])
    head = [*heads(words, "arm", "group"), *_hyper_heads(words)]
    return Table("arms", words("table.arms"), head, rows)


def _alike(run: Run, words: Words) -> Table:
    """Arms with ranks differ elsewhere: those with the same hyperparameters share a row."""
    found: dict[tuple[Cell, ...], list[str]] = {}
    for arm in ranks.training(run):
        found.setdefault(tuple(_hyper(run, arm, words)), []).append(arm)
    rows = [[*cells, Cell(", ".join(arms), "code")] for cells, arms in found.items()]
    head = [*_hyper_heads(words), *heads(words, "arms")]
    return Table("arms", words("table.arms"), head, rows)


def _hyper(run: Run, arm: str, words: Words) -> list[Cell]:
    s = run.arms[arm]
    rule = dict(s.get("optimizer") or {})
    made = {numbers.quantity(t.updates) for t in run.select(arm)}
    return [
        Cell(str(rule.pop("name", numbers.NONE)), "code"),
        number(_plain(rule.pop("lr", None))),
        number(_batch(s.get("batch_size"), words)),
        number(numbers.quantity(s.get("epochs")) if not s.get("updates") else numbers.NONE),
        number(" / ".join(sorted(made)) or numbers.NONE),
        number(_samples(run, s, words)),
        Cell(_schedule(s.get("schedule") or {}), "code"),
        Cell(", ".join(f"{k}={_plain(v)}" for k, v in rule.items()), "code"),
    ]


def _hyper_heads(words: Words) -> list[Head]:
    first = heads(words, "optimizer", "lr:1", "batch_size:samples", "epochs:epochs")
    samples = Head(words("setting.train"), words("unit.count"), True)
    return [*first, *heads(words, "updates:count"), samples, *heads(words, "schedule", "hyper")]


def _plain(value: Any) -> str:
    """A hyperparameter as the experiment file writes it."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return f"({', '.join(_plain(v) for v in value)})"
    return numbers.NONE if value is None else str(value)


def _batch(size: Any, words: Words) -> str:
    return words("value.full") if size == 0 else numbers.quantity(size)


def _samples(run: Run, arm: Mapping[str, Any], words: Words) -> str:
    chosen = arm.get("samples")
    if chosen:
        return numbers.quantity(chosen)
    return words("value.all", n=numbers.quantity(run.train_size))


def _schedule(schedule: Mapping[str, Any]) -> str:
    """The kind with the fields it uses."""
    kind = str(schedule.get("kind", "constant"))
    used = {"step": ("every", "gamma"), "cosine": ("total", "floor")}.get(kind, ())
    keys = [*used, *(["warmup"] if schedule.get("warmup") else [])]
    fields = ", ".join(f"{k}={_plain(schedule.get(k))}" for k in keys)
    return f"{kind} ({fields})" if fields else kind


def _environment(run: Run, words: Words) -> Table:
    known = {b: run.environment.get(b) or {} for b in run.backends}
    known |= {b: e for b, e in run.environment.items() if b not in known}
    keys = list(dict.fromkeys(k for values in known.values() for k in values))
    rows = []
    for key in keys:
        cells = [Cell(_text(values.get(key))) for values in known.values()]
        rows.append([Cell(words.either(f"environment.{key}", key)), *cells])
    head = [*heads(words, "name"), *(Head(b) for b in known)]
    return Table("environment", words("table.environment"), head, rows)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return numbers.NONE if value is None else str(value)
