"""Bytes that crossed: what the plan says of every link and collective, and what was counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from dualml.report.blocks import Block, Cell, Table
from dualml.report.columns import columns
from dualml.report.notes import Notes
from dualml.report.splits import events
from dualml.report.splits.arms import SplitArm, Splits, healthy
from dualml.report.splits.layers import collective_name
from dualml.report.topics import Topic
from dualml.store.run import Run, Trial
from dualml.words import Words, numbers

#: A model, and the texts of a crossing of it.
Numbers: TypeAlias = tuple[str, tuple[Cell | str, ...]]

CLOSE = 1e-3  # from here on the counted bytes are not the planned ones
ARMS, MODELS = 4, 2  # in a cell, and in a sentence


@dataclass(frozen=True)
class Crossing:
    """Of one update: ``what`` crosses from rank to rank, or within a group; counted None where
    nothing was recorded."""

    where: str
    what: tuple[str, ...]
    messages: float
    nbytes: float
    counted_messages: float | None
    counted: float | None

    @property
    def ratio(self) -> float | None:
        return self.counted / self.nbytes if self.counted is not None and self.nbytes else None

    @property
    def differs(self) -> bool:
        return self.ratio is not None and abs(self.ratio - 1) > CLOSE


def crossings(arm: SplitArm, trial: Trial) -> list[Crossing]:
    """Planned bytes are those of the mean batch; gradients do not depend on it."""
    share = mean_share(arm, trial)
    return [*_links(arm.plan, trial, share), *_collectives(arm.plan, trial, share)]


def mean_share(arm: SplitArm, trial: Trial) -> float:
    """Samples of the mean batch over those of a full one: the last of an epoch may be smaller."""
    batch = arm.plan.get("batch")
    if not batch or not trial.updates or not trial.sample_gradients:
        return 1.0
    return float(trial.sample_gradients) / float(trial.updates) / float(batch)


def _links(plan: Mapping[str, Any], trial: Trial, share: float) -> Iterator[Crossing]:
    counted = {(x["source"], x["target"]): x for x in trial.split.get("links") or ()}
    planned: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for x in plan.get("links") or ():
        planned.setdefault((x["source"], x["target"]), []).append(x)
    for (source, target), parts in planned.items():
        link = counted.get((source, target)) or {}
        yield Crossing(
            f"{source} → {target}",
            tuple(dict.fromkeys(str(x["what"]) for x in parts)),
            sum(x["messages"] for x in parts),
            share * sum(x["nbytes"] for x in parts),
            link.get("messages"),
            link.get("bytes"),
        )


def _collectives(plan: Mapping[str, Any], trial: Trial, share: float) -> Iterator[Crossing]:
    """What is gathered and what is added up forward were counted together."""
    planned: dict[tuple[tuple[int, ...], str], list[Mapping[str, Any]]] = {}
    for c in plan.get("meetings") or ():
        way = str(c["kind"]).rpartition(" ")[2]
        planned.setdefault((tuple(c["ranks"]), way), []).append(c)
    for (group, way), parts in planned.items():
        counted = events.collectives(trial, group[0]).get(way)
        if counted is not None and not counted.nbytes:
            counted = None
        yield Crossing(
            ", ".join(map(str, group)),
            tuple(dict.fromkeys(str(c["kind"]) for c in parts)),
            sum(c["calls"] for c in parts),
            sum(c["nbytes"] for c in parts) * (1.0 if way == "gradients" else share),
            counted.calls if counted else None,
            counted.nbytes if counted else None,
        )


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """Arms, backends and places with equal numbers share a row."""
    where: dict[tuple[str, Numbers], list[tuple[str, str]]] = {}
    for arm in Splits(run):
        for backend in run.backends:
            for c in crossings(arm, trials[0]) if (trials := run.select(arm.name, backend)) else ():
                row = (arm.model, _cells(c, words))
                where.setdefault((c.where, row), []).append((arm.name, backend))
    rows: dict[tuple[tuple[str, ...], tuple[str, ...], Numbers], list[str]] = {}
    for (place, row), arms in where.items():
        names, backends = (tuple(dict.fromkeys(each)) for each in zip(*arms, strict=True))
        rows.setdefault((names, backends, row), []).append(place)
    cells = [
        [
            ", ".join(names if len(names) <= ARMS + 1 else [*names[:ARMS], "…"]),
            model,
            ", ".join(backends),
            texts[0],
            words("list.semicolon").join(places),
            *texts[1:],
        ]
        for (names, backends, (model, texts)), places in rows.items()
    ]
    head = columns(
        words,
        *("`arms`", "`model`", "backend", "crosses", "crossing", "calls_planned:count"),
        *("calls_counted:count", "bytes_planned:bytes", "bytes_counted:bytes"),
        "counted_planned:relative",
    )
    yield Table("links", words("table.links"), head, cells)


def _cells(c: Crossing, words: Words) -> tuple[Cell | str, ...]:
    return (
        _what(c.what, words),
        numbers.quantity(c.messages),
        numbers.quantity(c.counted_messages),
        _whole(c.nbytes),
        _whole(c.counted),
        Cell(numbers.factor(c.ratio), "bad" if c.differs else ""),
    )


def _what(kinds: Iterable[str], words: Words) -> str:
    return " + ".join(
        collective_name(kind, words) if " " in kind else words.either(f"splits.what.{kind}", kind)
        for kind in kinds
    )


def _whole(nbytes: float | None) -> str:
    """Whole bytes: a mean over updates has fractions."""
    return numbers.NONE if nbytes is None else numbers.quantity(round(nbytes))


# --- sentences ------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Notes:
    notes, splits = Notes(words, "links", "table-links"), Splits(run)
    _sent(notes, splits)
    known = [
        (t, c)
        for arm in splits
        for t in run.select(arm.name)
        for c in crossings(arm, t)
        if c.ratio is not None
    ]
    wrong = [(t, c) for t, c in known if c.differs]
    if known:
        notes.say("crossed", n=len(known), k=len(known) - len(wrong))
    for trial, c in wrong[:1]:
        notes.warn("crossed_else", arm=trial.arm, backend=trial.backend, where=c.where,
                   ratio=numbers.factor(c.ratio))  # fmt: skip
    return notes


def _sent(notes: Notes, splits: Splits) -> None:
    """What an update sends, of every model in each way to split it."""
    words, items = notes.words, []
    for members in splits.families.values():
        ways: dict[str, SplitArm] = {}
        for arm in healthy(members):
            if arm.way in ("by_layer", "inside", "trainers") and arm.crossing_bytes:
                ways.setdefault(arm.way, arm)
        each = [
            words("say.links.way", way=words(f"splits.way.{way}"),
                  size=numbers.nbytes(arm.crossing_bytes), n=arm.crossing_calls)
            for way, arm in ways.items()
        ]  # fmt: skip
        if each:
            values = words("list.comma").join(each)
            items.append(words("say.links.model", model=members[0].model, values=values))
    if items:
        notes.say("sent", values=words.semicolons(items[:MODELS]))


TOPIC = Topic("links", 640, evidence, findings, leads=lambda run: 50)
