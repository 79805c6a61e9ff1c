"""Bytes sent between ranks: the plan of every link and collective, compared with the counted
bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData, Trial
from dualml.report.blocks import Block, Cell
from dualml.report.columns import Row, table
from dualml.report.notes import Notes
from dualml.report.splits import events
from dualml.report.splits.arms import SplitArm, Splits, without_straggler
from dualml.report.splits.layers import collective_name
from dualml.report.topics import ReportSection

CLOSE = 1e-3  # relative difference above which counted bytes differ from the planned ones
ARMS, MODELS = 4, 2  # most arms in a cell, most models in a sentence
HEAD = (
    "`arms`",
    "`model`",
    "backend",
    "crosses",
    "crossing",
    "calls_planned:count",
    "calls_counted:count",
    "bytes_planned:bytes",
    "bytes_counted:bytes",
    "counted_planned:relative",
)


@dataclass(frozen=True)
class Crossing:
    """Planned and counted traffic of one update on a link or in a group of ranks, ``where``, e.g.
    ``0 → 1`` or ``0, 1``; ``what``: names of what is sent, or of the collectives. Counted values
    are None if nothing was recorded."""

    where: str
    what: tuple[str, ...]
    messages: float
    nbytes: float
    counted_messages: float | None
    counted: float | None

    @property
    def ratio(self) -> float | None:
        """Counted relative to planned bytes, None if unknown."""
        return self.counted / self.nbytes if self.counted is not None and self.nbytes else None

    @property
    def differs(self) -> bool:
        """Whether the counted bytes differ from the planned ones by more than `CLOSE`."""
        return self.ratio is not None and abs(self.ratio - 1) > CLOSE


def crossings(arm: SplitArm, trial: Trial) -> Iterator[Crossing]:
    """Yield planned and counted traffic of each link and group. Planned bytes are those of the mean
    batch; gradients do not depend on it. All-gathers and all-reduces of the forward pass are
    counted together, as are all gradient reductions of a rank: if a rank makes several, or shards
    its state, no count of a single one exists."""
    share = mean_share(arm, trial)
    links = {f"{x['source']} → {x['target']}": x for x in trial.split.get("links") or ()}
    planned: dict[tuple[tuple[int, ...], str], list[tuple[str, float, float]]] = {}
    for x in arm.plan.get("links") or ():
        parts = planned.setdefault(((x["source"], x["target"]), ""), [])
        parts.append((x["what"], x["messages"], share * x["nbytes"]))
    for c in arm.plan.get("meetings") or ():
        way = c["kind"].rpartition(" ")[2]
        size = c["nbytes"] * (1.0 if way == "gradients" else share)
        planned.setdefault((tuple(c["ranks"]), way), []).append((c["kind"], c["calls"], size))
    sums = Counter(rank for group, way in planned if way == "gradients" for rank in group)
    sharded = arm.run.settings[arm.name].zero
    for (group, way), parts in planned.items():
        where = (", " if way else " → ").join(map(str, group))
        link = links.get(where) or {}
        counted = link.get("messages"), link.get("bytes")
        if way:
            calls, nbytes = events.collective_calls(trial, group[0]).get(way) or (None, None)
            several = way == "gradients" and (sharded or sums[group[0]] > 1)
            counted = (calls, nbytes) if nbytes and not several else (None, None)
        kinds, messages, sizes = zip(*parts, strict=True)
        yield Crossing(where, tuple(dict.fromkeys(kinds)), sum(messages), sum(sizes), *counted)


def mean_share(arm: SplitArm, trial: Trial) -> float:
    """Return the size of the mean batch relative to a full one, since the last batch of an epoch
    may be smaller; 1 if unknown."""
    batch = arm.plan.get("batch")
    if not batch or not trial.updates or not trial.sample_gradients:
        return 1.0
    return float(trial.sample_gradients) / float(trial.updates) / float(batch)


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a table of planned and counted traffic in the first trial of each arm and backend;
    arms, backends and places with equal numbers share a row."""
    where: dict[tuple[Any, ...], list[tuple[str, str]]] = {}
    for arm in Splits(run):
        for backend in run.backends:
            for trial in run.select(arm.name, backend)[:1]:
                for c in crossings(arm, trial):
                    row = (arm.model, *_cells(c, words))
                    where.setdefault((c.where, row), []).append((arm.name, backend))
    rows: dict[tuple[Any, ...], list[str]] = {}
    for (place, row), arms in where.items():
        names, backends = (tuple(dict.fromkeys(each)) for each in zip(*arms, strict=True))
        rows.setdefault((names, backends, row), []).append(place)
    yield from table(
        words,
        "links",
        HEAD,
        (
            [
                ", ".join(names if len(names) <= ARMS + 1 else [*names[:ARMS], "…"]),
                *(model, ", ".join(backends), what, words.semicolons(places), *cells),
            ]
            for (names, backends, (model, what, *cells)), places in rows.items()
        ),
    )


def _cells(c: Crossing, words: Messages) -> Row:
    """Return the cells of a row; bytes are rounded, because a mean over updates has fractions."""
    sizes = (numbers.quantity(None if x is None else round(x)) for x in (c.nbytes, c.counted))
    ratio = Cell(numbers.factor(c.ratio), "bad" if c.differs else "")
    return (_format_contents(c.what, words), c.messages, c.counted_messages, *sizes, ratio)


def _format_contents(kinds: Iterable[str], words: Messages) -> str:
    """Return what a link or group transfers, e.g. activations or an all-reduce, joined by ``+`` in
    the reader's language."""
    return " + ".join(
        collective_name(kind, words) if " " in kind else words.get(f"splits.what.{kind}", kind)
        for kind in kinds
    )


# --- sentences ------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData) -> None:
    """Add the bytes that split arms send, and how many links and groups of all trials carried as
    many bytes as planned."""
    splits = Splits(run)
    models = (_format_sent(notes, members) for members in splits.families.values())
    notes.add_joined("sent", [text for text in models if text][:MODELS])
    trials = [(arm, t) for arm in splits for t in run.select(arm.name)]
    known = [(t, c) for arm, t in trials for c in crossings(arm, t) if c.ratio is not None]
    wrong = [(t, c) for t, c in known if c.differs]
    if known:
        notes.add("crossed", n=len(known), k=len(known) - len(wrong))
    for trial, c in wrong[:1]:
        notes.add_warning("crossed_else", trial=trial, c=c)


def _format_sent(notes: Notes, members: list[SplitArm]) -> str:
    """Return the planned bytes of an update of one model for the first arm split by layer, inside
    layers and over trainers, as text; empty without any."""
    ways: dict[str, SplitArm] = {}
    for arm in without_straggler(members):
        if arm.main_split_kind in ("by_layer", "inside", "trainers") and arm.crossing_bytes:
            ways.setdefault(arm.main_split_kind, arm)
    each = [
        notes.format_part("way", way=notes.words(f"splits.way.{way}"), arm=arm)
        for way, arm in ways.items()
    ]
    values = notes.words("list.comma").join(each)
    return notes.format_part("model", model=members[0].model, values=values) if each else ""


TOPIC = ReportSection("links", 640, evidence, findings, "table-links", priority=lambda run: 50)
