"""Settings of the run: the experiment with its plan, the arms, their ranks, the environments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dualml.common.words import Messages, numbers
from dualml.experiment.arm import Arm
from dualml.experiment.store.run import RunData
from dualml.parallel.aggregation import ASYNCHRONOUS
from dualml.report import ranks
from dualml.report.blocks import Block, Column
from dualml.report.columns import Columns, number, table, tabulate
from dualml.report.run_partitions import format_settings
from dualml.report.topics import ReportSection


def experiment(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the table of the known facts that all backends had in common, such as model, data,
    seeds and version, and the table of the hashes of the plan's parts."""
    meta = run.meta
    data = meta.get("data") or {}
    source = str(data.get("source") or "")
    values = {
        "name": meta.get("name"),
        "model": run.experiment.get("model"),
        "loss": run.experiment.get("loss"),
        "data": data.get("name"),
        "source": words.get(f"data_source.{source}", source),
        "data_hash": data.get("sha256"),
        "train": numbers.quantity(data.get("train")),
        "test": numbers.quantity(data.get("test")),
        "seeds": ", ".join(map(str, run.seeds)),
        "quick": words("value.yes" if run.experiment.get("quick") else "value.no"),
        "created": meta.get("created"),
        "dualml": meta.get("dualml"),
        "git": meta.get("git"),
        "plan": meta.get("plan_hash"),
        "folder": ", ".join(folder.name for folder in run.folders),
    }
    known = {key: value for key, value in values.items() if value}
    rows = [[words(f"setting.{key}"), _text(value, "; ", ": ")] for key, value in known.items()]
    yield from table(words, "experiment", ("name", "value"), rows)
    parts = meta.get("plan_parts") or {}
    hashes = [[words.get(f"part.{name}", name), str(value)] for name, value in parts.items()]
    yield from table(words, "plan", ("part", "`hash`"), hashes)


def _text(value: Any, comma: str, colon: str) -> str:
    """Return a JSON value as text; nested values (dataset hashes by file) one after the other."""
    if isinstance(value, Mapping):
        return comma.join(f"{k}{colon}{v}" for k, v in value.items())
    return numbers.NO_VALUE if value is None else str(value)


def environment(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the table of the recorded environment (versions, threads, …), a column per backend."""
    known = {b: run.environment.get(b) or {} for b in run.backends} | {**run.environment}
    names = dict.fromkeys(key for values in known.values() for key in values)
    rows = [
        [
            words.get(f"environment.{key}", key),
            *(_text(values.get(key), ", ", "=") for values in known.values()),
        ]
        for key in names
    ]
    yield from table(words, "environment", ["name", *(Column(b, b) for b in known)], rows)


def arms(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the table of the hyperparameters of every training arm; in multi-rank runs arms with
    equal ones share a row."""
    samples = number(words, "samples", words("setting.train"), "count")
    head = (
        "`optimizer`",
        "lr:1",
        "batch_size:samples",
        "epochs:epochs",
        "updates:count",
        samples,
        "`schedule`",
        "`hyper`",
    )
    settings = {arm: _hyperparameters(run, arm, words) for arm in ranks.training_arms(run)}
    if ranks.is_distributed(run):
        alike: dict[tuple[Any, ...], list[str]] = {}
        for arm, cells in settings.items():
            alike.setdefault(tuple(cells), []).append(arm)
        rows = [[*cells, ", ".join(names)] for cells, names in alike.items()]
        yield from table(words, "arms", (*head, "`arms`"), rows)
    else:
        groups = {arm: str(run.arms[arm].get("group") or "main") for arm in settings}
        rows = [
            [arm, words.get(f"group.{groups[arm]}", groups[arm]), *cells]
            for arm, cells in settings.items()
        ]
        yield from table(words, "arms", ("`arm`", "group", *head), rows)


def _hyperparameters(run: RunData, arm: str, words: Messages) -> list[str | float | None]:
    """Return the cells of an arm's hyperparameters."""
    settings = run.arms[arm]
    rule = dict(settings.get("optimizer") or {})
    updates = {numbers.quantity(t.updates) for t in run.select(arm)}
    size = settings.get("batch_size")
    return [
        str(rule.pop("name", numbers.NO_VALUE)),
        numbers.plain(rule.pop("lr", None)),
        words("value.full") if size == 0 else size,
        None if settings.get("updates") else settings.get("epochs"),
        " / ".join(sorted(updates)) or None,
        settings.get("samples") or words("value.all", n=numbers.quantity(run.train_size)),
        _schedule(settings.get("schedule") or {}),
        ", ".join(f"{key}={numbers.plain(value)}" for key, value in rule.items()),
    ]


def _schedule(schedule: Mapping[str, Any]) -> str:
    """Return the kind of a learning-rate schedule with the fields it uses."""
    kind = str(schedule.get("kind", "constant"))
    used = {"step": ("every", "gamma"), "cosine": ("total", "floor")}.get(kind, ())
    keys = [*used, *(["warmup"] if schedule.get("warmup") else [])]
    fields = ", ".join(f"{key}={numbers.plain(schedule.get(key))}" for key in keys)
    return f"{kind} ({fields})" if fields else kind


def aggregation(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the table of aggregation settings of unsplit training arms with several ranks, and that
    of arms that measure collectives."""
    settings = run.settings
    kinds = ("`strategy`", "of", "reduce", "every:updates", "bucket", "compress", "arrival")
    several: Columns[str] = {
        "`arm`": lambda arm: arm,
        "ranks:count": lambda arm: settings[arm].world_size,
        "cores_each:count?": lambda arm: settings[arm].cores or None,
        "`partition`?": lambda arm: (
            format_settings(settings[arm].partition) if settings[arm].partition else None
        ),
        "`zero`?": lambda arm: settings[arm].zero or None,
        kinds: lambda arm: _combined(settings[arm], words),
        "handicap": lambda arm: ranks.handicap_text(run, arm, words),
    }
    yield from tabulate(words, "aggregation", ranks.multi_rank_arms(run), several)
    measured: Columns[str] = {
        "`arm`": lambda arm: arm,
        "ranks:count": lambda arm: settings[arm].world_size,
        "`strategies`": lambda arm: ", ".join(settings[arm].strategies),
        "sizes": lambda arm: ", ".join(map(numbers.nbytes, settings[arm].sizes)),
        "budget:seconds": lambda arm: settings[arm].seconds,
    }
    arms = (arm for arm in settings if settings[arm].kind != "train")
    yield from tabulate(words, "measurements", arms, measured)


def _combined(arm: Arm, words: Messages) -> list[object]:
    """Return the cells of the aggregation settings; of an engine only its name."""
    s = arm.aggregation
    packed = {"none": numbers.NO_VALUE, "topk": f"topk {100 * s.fraction:g} %"}
    if arm.method:
        return [arm.method] + [None] * 6
    return [
        s.strategy,
        words.get(f"of.{s.of}", s.of),
        words.get(f"reduce.{s.reduce}", s.reduce),
        s.every,
        numbers.nbytes(s.bucket_bytes) if s.bucket_bytes else words("value.one_by_one"),
        packed.get(s.compress, s.compress),
        words.get(f"arrival.{s.arrival}", s.arrival) if s.strategy == ASYNCHRONOUS else None,
    ]


TOPICS = (
    ReportSection("experiment", 10, experiment, group="settings"),
    ReportSection("arms", 20, arms, group="settings"),
    ReportSection("aggregation", 40, aggregation, group="settings"),
    ReportSection("environment", 90, environment, group="settings"),
)
