"""The hyperparameters of every arm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dualml.report import ranks
from dualml.report.blocks import Block, Column, Table
from dualml.report.columns import columns
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """A row for each arm; where arms differ elsewhere, those with the same share one."""
    arms = ranks.training(run)
    if ranks.distributed(run):
        alike: dict[tuple[str, ...], list[str]] = {}
        for arm in arms:
            alike.setdefault(tuple(_settings(run, arm, words)), []).append(arm)
        rows = [[*cells, ", ".join(names)] for cells, names in alike.items()]
        shown = [*_columns(words), *columns(words, "`arms`")]
    else:
        groups = {arm: str(run.arms[arm].get("group") or "main") for arm in arms}
        rows = [
            [arm, words.either(f"group.{groups[arm]}", groups[arm]), *_settings(run, arm, words)]
            for arm in arms
        ]
        shown = [*columns(words, "`arm`", "group"), *_columns(words)]
    if rows:
        yield Table("arms", words("table.arms"), shown, rows)


def _columns(words: Words) -> list[Column]:
    first = columns(words, "`optimizer`", "lr:1", "batch_size:samples", "epochs:epochs")
    samples = Column("samples", words("setting.train"), words("unit.count"), "number")
    return [*first, *columns(words, "updates:count"), samples,
            *columns(words, "`schedule`", "`hyper`")]  # fmt: skip


def _settings(run: Run, arm: str, words: Words) -> list[str]:
    settings = run.arms[arm]
    rule = dict(settings.get("optimizer") or {})
    updates = {numbers.quantity(t.updates) for t in run.select(arm)}
    size = settings.get("batch_size")
    samples = settings.get("samples")
    return [
        str(rule.pop("name", numbers.NONE)),
        _plain(rule.pop("lr", None)),
        words("value.full") if size == 0 else numbers.quantity(size),
        numbers.NONE if settings.get("updates") else numbers.quantity(settings.get("epochs")),
        " / ".join(sorted(updates)) or numbers.NONE,
        numbers.quantity(samples)
        if samples
        else words("value.all", n=numbers.quantity(run.train_size)),
        _schedule(settings.get("schedule") or {}),
        ", ".join(f"{k}={_plain(v)}" for k, v in rule.items()),
    ]


def _plain(value: Any) -> str:
    """A hyperparameter as the experiment file writes it."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return f"({', '.join(_plain(v) for v in value)})"
    return numbers.NONE if value is None else str(value)


def _schedule(schedule: Mapping[str, Any]) -> str:
    """The kind with the fields it uses."""
    kind = str(schedule.get("kind", "constant"))
    used = {"step": ("every", "gamma"), "cosine": ("total", "floor")}.get(kind, ())
    keys = [*used, *(["warmup"] if schedule.get("warmup") else [])]
    fields = ", ".join(f"{k}={_plain(schedule.get(k))}" for k in keys)
    return f"{kind} ({fields})" if fields else kind


TOPIC = Topic("arms", 20, evidence, part="settings")
