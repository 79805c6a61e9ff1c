"""The experiment and its plan: what was the same on all backends, with the hashes that prove it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dualml.report.blocks import Block, Cells, Table
from dualml.report.columns import columns
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers


def evidence(run: Run, words: Words) -> Iterator[Block]:
    rows: list[Cells] = [
        [words(f"setting.{key}"), _text(value, words)]
        for key, value in _values(run, words).items()
        if value not in (None, "", {})
    ]
    yield Table("experiment", words("table.experiment"), columns(words, "name", "value"), rows)
    parts = run.meta.get("plan_parts") or {}
    hashes = [[words.either(f"part.{name}", name), str(value)] for name, value in parts.items()]
    if hashes:
        yield Table("plan", words("table.plan"), columns(words, "part", "`hash`"), hashes)


def _values(run: Run, words: Words) -> dict[str, Any]:
    meta, experiment = run.meta, run.experiment
    data = meta.get("data") or {}
    source = str(data.get("source") or "")
    return {
        "name": meta.get("name"),
        "model": experiment.get("model"),
        "loss": experiment.get("loss"),
        "data": data.get("name"),
        "source": words.either(f"data_source.{source}", source),
        "data_hash": data.get("sha256"),
        "train": numbers.quantity(data.get("train")),
        "test": numbers.quantity(data.get("test")),
        "seeds": ", ".join(map(str, run.seeds)),
        "quick": bool(experiment.get("quick")),
        "created": meta.get("created"),
        "dualml": meta.get("dualml"),
        "git": meta.get("git"),
        "plan": meta.get("plan_hash"),
        "folder": ", ".join(folder.name for folder in run.folders),
    }


def _text(value: Any, words: Words) -> str:
    """Values of JSON as text; nested ones (dataset hashes by file) one after the other."""
    if isinstance(value, Mapping):
        return "; ".join(f"{k}: {v}" for k, v in value.items())
    if isinstance(value, bool):
        return words("value.yes" if value else "value.no")
    return str(value)


TOPIC = Topic("experiment", 10, evidence, part="settings")
