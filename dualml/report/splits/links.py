"""Bytes that crossed: what the plan says of every link and collective, and what was counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualml.report import numbers
from dualml.report.cells import Cell, Table, heads, number
from dualml.report.model import Run, Trial
from dualml.report.splits import arms, events
from dualml.report.words import Words


@dataclass(frozen=True)
class Crossing:
    """Of one update: ``what`` crosses from rank to rank, or within a group; measured None where
    nothing was recorded."""

    where: str
    what: str
    messages: float
    nbytes: float
    measured_messages: float | None
    measured: float | None

    @property
    def ratio(self) -> float | None:
        return self.measured / self.nbytes if self.measured is not None and self.nbytes else None


def mean_share(run: Run, trial: Trial) -> float:
    """Samples of the mean batch over those of a full one: the last of an epoch may be smaller."""
    batch = arms.plan(run, trial.arm).get("batch")
    if not batch or not trial.updates or not trial.sample_gradients:
        return 1.0
    return float(trial.sample_gradients) / float(trial.updates) / float(batch)


def crossings(run: Run, trial: Trial) -> list[Crossing]:
    """Planned bytes are those of the mean batch; gradients do not depend on it."""
    plan, share = arms.plan(run, trial.arm), mean_share(run, trial)
    return [*_links(plan, trial, share), *_meetings(plan, trial, share)]


def _links(plan: Mapping[str, Any], trial: Trial, share: float) -> Iterator[Crossing]:
    told = {(x["source"], x["target"]): x for x in trial.split.get("links") or ()}
    planned: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for x in plan.get("links") or ():
        planned.setdefault((x["source"], x["target"]), []).append(x)
    for (source, target), mine in planned.items():
        found = told.get((source, target)) or {}
        yield Crossing(
            f"{source} → {target}",
            "+".join(dict.fromkeys(str(x["what"]) for x in mine)),
            sum(x["messages"] for x in mine),
            share * sum(x["nbytes"] for x in mine),
            found.get("messages"),
            found.get("bytes"),
        )


def _meetings(plan: Mapping[str, Any], trial: Trial, share: float) -> Iterator[Crossing]:
    """What is gathered and what is added up forward were counted together."""
    planned: dict[tuple[tuple[int, ...], str], list[Mapping[str, Any]]] = {}
    for m in plan.get("meetings") or ():
        way = str(m["kind"]).rpartition(" ")[2]
        planned.setdefault((tuple(m["ranks"]), way), []).append(m)
    for (group, way), mine in planned.items():
        found = events.met(trial, group[0]).get(way)
        if found is not None and not found.nbytes:
            found = None  # not counted
        yield Crossing(
            ", ".join(map(str, group)),
            "+".join(dict.fromkeys(str(m["kind"]) for m in mine)),
            sum(m["calls"] for m in mine),
            sum(m["nbytes"] for m in mine) * (1.0 if way == "gradients" else share),
            found.calls if found else None,
            found.nbytes if found else None,
        )


def told_what(what: str, words: Words) -> str:
    parts = []
    for name in what.split("+"):
        key = name.replace(" ", "_")
        table = "meeting" if " " in name else "what"
        parts.append(words.either(f"splits.{table}.{key}", name))
    return " + ".join(parts)


def link_table(run: Run, words: Words) -> Table | None:
    """Arms and backends with equal numbers share a row."""
    found: dict[tuple[str, ...], dict[str, dict[str, list[str]]]] = {}
    tones: dict[tuple[str, ...], str] = {}
    for arm in arms.split_arms(run):
        for backend in run.backends:
            trials = run.select(arm, backend)
            for c in crossings(run, trials[0]) if trials else ():
                told = (
                    arms.model(run, arm),
                    told_what(c.what, words),
                    numbers.quantity(c.messages),
                    numbers.quantity(c.measured_messages),
                    _bytes(c.nbytes),
                    _bytes(c.measured),
                    numbers.factor(c.ratio),
                )
                here = found.setdefault(told, {}).setdefault(arm, {})
                here.setdefault(c.where, []).append(backend)
                tones[told] = "bad" if c.ratio is not None and abs(c.ratio - 1) > 1e-3 else ""
    rows = []
    for key, by_arm in found.items():
        model, what, *counts = key
        places: dict[tuple[str, ...], dict[str, list[str]]] = {}
        for arm, here in by_arm.items():
            places.setdefault(tuple(here), {})[arm] = [b for names in here.values() for b in names]
        for where, named in places.items():
            backends = list(dict.fromkeys(b for names in named.values() for b in names))
            rows.append(
                [
                    Cell(_short(list(named)), "code"),
                    Cell(model, "code"),
                    Cell(", ".join(backends)),
                    Cell(words("list.semicolon").join(where)),
                    Cell(what),
                    *(number(text) for text in counts[:-1]),
                    Cell(counts[-1], "number", tones[key]),
                ]
            )
    if not rows:
        return None
    head = heads(
        words,
        *("arms", "model", "backend", "crossing", "crosses", "calls_planned:count"),
        *("calls_measured:count", "bytes_planned:bytes", "bytes_measured:bytes"),
        "measured_planned:relative",
    )
    return Table("links", words("table.links"), head, rows)


def _bytes(value: float | None) -> str:
    """Whole bytes: a mean over updates has fractions."""
    return numbers.NONE if value is None else numbers.quantity(round(value))


def _short(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names if len(names) <= most + 1 else [*names[:most], "…"])
