"""Other ways to compute the same update: the framework's own data parallelism, overlapped
communication, gradient accumulation; each compared with the plain way."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dualml.aggregation import NATIVE, REPLICAS
from dualml.communicator.how import PRIMITIVES
from dualml.report import families, ranks
from dualml.report.blocks import Block, Cell, Item
from dualml.report.columns import Row, percent, status, table
from dualml.report.families import crowding
from dualml.report.measures import loss_unit
from dualml.report.notes import Notes
from dualml.report.results import Result
from dualml.report.scaling import places
from dualml.report.spread import Spread, paired, ratio
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

OVERLAP, ACCUMULATE = "overlap", "accumulate"
SAME = 5e-7  # differences of losses below this are rounding
#: Mode, in the order of tables → settings besides the aggregation that may differ.
WAYS: Mapping[str, tuple[str, ...]] = {
    NATIVE: (),
    OVERLAP: (),
    REPLICAS: ("world_size", "cores"),
    ACCUMULATE: ("chunk",),
}


class Pair(NamedTuple):
    """An arm that trains in one of the `MODE_SETTINGS`, and ``other``, the plain arm that does the same
    (None: there is none)."""

    way: str
    arm: str
    other: str | None


@dataclass(frozen=True, eq=False)
class Held(Result):
    """The arm of a pair on one backend, compared with the plain arm there."""

    way: str
    other: str | None

    @cached_property
    def theirs(self) -> Result:
        """Results of the plain arm on the same backend."""
        return Result(self.run, self.other or "", self.backend)

    @cached_property
    def ratio(self) -> Spread | None:
        """Seconds of an update relative to the plain arm's, None if unknown."""
        return ratio(self.steps, self.theirs.steps)

    @cached_property
    def gap(self) -> Spread | None:
        """Difference of the final losses, None if unknown."""
        return paired(self.losses, self.theirs.losses, lambda a, b: a - b)

    @property
    def detail(self) -> str:
        """The framework's name for this mode."""
        names = [str(v) for t in self.trials for k, v in t.how.items() if k not in PRIMITIVES]
        text = next((text.partition(":")[2].strip() or text for text in names), "")
        return re.sub(r"\b(?:\w+\.)+", "", text)  # without the names of modules


def way(run: Run, arm: str) -> str:
    """Return the key of `MODE_SETTINGS` that an arm uses, empty if none."""
    settings = ranks.aggregation(run, arm)
    if settings.strategy in (NATIVE, REPLICAS):
        return settings.strategy
    if settings.overlap:
        return OVERLAP
    return ACCUMULATE if ranks.size(run, arm) > 1 and _whole(run, arm) else ""


def _whole(run: Run, arm: str) -> str | None:
    """Return the arm that computes the same gradient without accumulating chunks, None without
    one."""
    chunk, n = int(run.arms[arm].get("chunk") or 0), ranks.size(run, arm)
    batch = int(run.arms[arm].get("batch_size") or run.train_size or 0)
    if not chunk or chunk * n >= batch or ranks.split(run, arm):
        return None
    return run.contrast.partner(
        arm, vary=("chunk",), where=lambda other: int(run.arms[other].get("chunk") or 0) > chunk
    )


def pairs(run: Run) -> list[Pair]:
    """Return every arm that trains in one of the `MODE_SETTINGS`, in their order, with its plain arm."""
    healthy = {arm: way(run, arm) for arm in ranks.training(run) if not ranks.slow(run, arm)}
    return [Pair(w, arm, _other(run, w, arm)) for w in WAYS for arm in healthy if healthy[arm] == w]


def _other(run: Run, how: str, arm: str) -> str | None:
    """Return the plain arm that is otherwise the same, None without one; of several the one with
    the fewest ranks greater than one."""
    if how == ACCUMULATE:
        return _whole(run, arm)
    alike = run.contrast.partners(arm, vary=("aggregation", *WAYS[how]))
    if how != REPLICAS:
        alike = [a for a in alike if ranks.size(run, a) == ranks.size(run, arm)]
    plain = [a for a in alike if ranks.plain(run, a) and ranks.strategy(run, a) == "all_reduce"]
    ran = [a for a in plain if run.select(a)] or plain
    return min(ran, key=lambda a: (ranks.size(run, a) == 1, ranks.size(run, a)), default=None)


def held(run: Run) -> list[Held]:
    """Return the comparison of every pair whose first arm has a successful trial."""
    return [
        Held(run, *place, pair.way, pair.other)
        for pair in pairs(run)
        for place in ranks.ran(run, [pair.arm])
    ]


# --- evidence -------------------------------------------------------------------------------------


def evidence(run: Run, words: Words) -> Iterator[Block]:
    absent = [
        [arm, ", ".join(backends), words(f"way.{how}"), status(state, words), why]
        for (arm, how, state, why), backends in missing(run).items()
    ]
    arms = [arm for pair in pairs(run) for arm in (pair.arm, pair.other) if arm]
    if arms:
        yield from crowding(run, words, arms)
    head = ("`arm`", "backend", "way", "ranks:count", "`against`", "step:milliseconds",
            "step_other:milliseconds", "step_ratio:relative", f"loss_gap:{loss_unit(run)}",
            "shares:percent")  # fmt: skip
    yield from table(words, "modes", head, [_row(h, words) for h in held(run)])
    yield from table(
        words, "modes-missing", ("`arm`", "backend", "way", "status", "reason"), absent
    )


def _row(h: Held, words: Words) -> Row:
    room = families.room(h.run, h.arm, h.backend)
    turns = places(room, words) if room.enough is False else ""
    detail = h.detail
    if h.way == OVERLAP:
        detail = words("way.buckets", size=ranks.aggregation(h.run, h.arm).bucket_bytes)
    elif h.way == ACCUMULATE:
        detail = words("way.chunks", n=h.run.arms[h.arm]["chunk"])
    return [
        *(h.arm, h.backend, Cell(words(f"way.{h.way}"), note=detail)),
        *(Cell(str(ranks.size(h.run, h.arm)), note=turns), h.other, h.step, h.theirs.step, h.ratio),
        h.gap.cell(signed) if h.gap else None,
        " / ".join(percent(x.share and x.share.mean) for x in (h, h.theirs)),
    ]


def signed(x: float) -> str:
    """Return a signed difference, e.g. ``+0.012``; rounding differences count as 0."""
    if abs(x) < SAME:
        return "0"
    return f"{'+' if x > 0 else '−'}{numbers.scientific(abs(x))}"


def missing(run: Run) -> dict[tuple[str, str, str, str], list[str]]:
    """Return (arm, way, status, reason) → backends on which no trial of the arm succeeded."""
    absent: dict[tuple[str, str, str, str], list[str]] = {}
    for pair, backend in itertools.product(pairs(run), run.backends):
        trials = run.select(pair.arm, backend, ok=False)
        if trials and not any(t.ok for t in trials):
            key = (pair.arm, pair.way, trials[0].status, trials[0].reason)
            absent.setdefault(key, []).append(backend)
    return absent


# --- findings -------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "modes", "table-modes")
    for h in held(run):
        if h.ratio:
            ends = h.ratio.interval(numbers.factor)
            same = h.gap and {signed(v) for v in (h.gap.mean, *h.gap.ends)} == {"0"}
            gap = signed(h.gap.mean) if h.gap else numbers.NONE
            losses = words("modes.equal") if same else words("modes.losses", gap=gap)
            between = ends and words("modes.interval", values=ends)
            notes.say("alike" if h.ratio.holds(1) else "held", h=h, way=words(f"way.{h.way}"),
                      interval=between, losses=losses)  # fmt: skip
    alone = dict.fromkeys(p.arm for p in pairs(run) if p.other is None and run.select(p.arm))
    if alone:
        notes.warn("alone", len(alone), arms=alone)
    notes.about("table-modes-missing")
    for (arm, how, state, reason), backends in missing(run).items():
        if state in ("unsupported", "failed"):
            notes.warn(state, arm=arm, way=words(f"way.{how}"), backends=backends,
                       reason=reason.rstrip(" .:"))  # fmt: skip
    return notes


TOPIC = Topic("modes", 310, evidence, findings)
