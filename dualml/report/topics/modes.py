"""Other ways to do the same update: the framework's own data parallel training, overlapped
communication, accumulated gradients, each held against the plain way here."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dualml.aggregation import NATIVE, REPLICAS
from dualml.communicator.how import PRIMITIVES
from dualml.report import families, ranks
from dualml.report.blocks import Block, Cell, Item
from dualml.report.columns import Line as Row
from dualml.report.columns import percent, status, table
from dualml.report.families import crowding
from dualml.report.measures import loss_unit
from dualml.report.notes import Notes
from dualml.report.results import Result
from dualml.report.scaling import places
from dualml.report.spread import interval, paired, ratio
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

OVERLAP, ACCUMULATE = "overlap", "accumulate"
SAME = 5e-7  # a smaller difference of losses is rounding
#: The ways in the order of tables, and what else than the aggregation may differ.
WAYS: Mapping[str, tuple[str, ...]] = {
    NATIVE: (),
    OVERLAP: (),
    REPLICAS: ("world_size", "cores"),
    ACCUMULATE: ("chunk",),
}


@dataclass(frozen=True)
class Pair:
    """``arm`` does in another ``way`` what ``other`` does in the plain one (None: no such arm)."""

    way: str
    arm: str
    other: str | None


class Held:
    """A pair on one backend; ``theirs`` is the plain way, without results where there is none."""

    def __init__(self, run: Run, pair: Pair, backend: str) -> None:
        self.pair, self.backend = pair, backend
        self.ours = Result(run, pair.arm, backend)
        self.theirs = Result(run, pair.other or "", backend)
        self.ratio = ratio(self.ours.steps, self.theirs.steps)
        self.gap = paired(self.ours.losses, self.theirs.losses, lambda a, b: a - b)

    @property
    def equal(self) -> bool:
        """Whether the losses end alike but for rounding."""
        return self.gap is not None and all(abs(v) < SAME for v in (self.gap.mean, *self.gap.ends))


def way(run: Run, arm: str) -> str:
    """The key of `WAYS`, or nothing for an arm of another sort."""
    settings = ranks.aggregation(run, arm)
    if settings.strategy in (NATIVE, REPLICAS):
        return settings.strategy
    if settings.overlap:
        return OVERLAP
    return ACCUMULATE if ranks.size(run, arm) > 1 and _whole(run, arm) else ""


def _whole(run: Run, arm: str) -> str | None:
    """The arm that computes at once the gradient that this one accumulates from chunks."""
    chunk, n = int(run.arms[arm].get("chunk") or 0), ranks.size(run, arm)
    batch = int(run.arms[arm].get("batch_size") or run.train_size or 0)
    if not chunk or chunk * n >= batch or ranks.split(run, arm):
        return None
    return run.contrast.partner(
        arm, vary=("chunk",), where=lambda other: int(run.arms[other].get("chunk") or 0) > chunk
    )


def pairs(run: Run) -> list[Pair]:
    """Every arm that trains in one of the `WAYS`; empty where none does."""
    found = [(way(run, arm), arm) for arm in ranks.training(run) if not ranks.slow(run, arm)]
    ordered = sorted((f for f in found if f[0]), key=lambda f: list(WAYS).index(f[0]))
    return [Pair(w, arm, _other(run, w, arm)) for w, arm in ordered]


def _other(run: Run, how: str, arm: str) -> str | None:
    """Plain and otherwise the same; of several the one with the fewest ranks but one."""
    if how == ACCUMULATE:
        return _whole(run, arm)
    alike = run.contrast.partners(arm, vary=("aggregation", *WAYS[how]))
    if how != REPLICAS:
        alike = [a for a in alike if ranks.size(run, a) == ranks.size(run, arm)]
    plain = [a for a in alike if ranks.plain(run, a) and ranks.strategy(run, a) == "all_reduce"]
    ran = [a for a in plain if run.select(a)] or plain
    return min(ran, key=lambda a: (ranks.size(run, a) == 1, ranks.size(run, a)), default=None)


def held(run: Run) -> list[Held]:
    """Pairs with a successful trial of the first arm."""
    return [Held(run, pair, backend) for pair in pairs(run)
            for _, backend in ranks.ran(run, [pair.arm])]  # fmt: skip


# --- evidence -------------------------------------------------------------------------------------


def evidence(run: Run, words: Words) -> Iterator[Block]:
    rows = [_row(run, h, words) for h in held(run)]
    absent = [
        [arm, ", ".join(backends), words(f"way.{how}"), status(state, words), why]
        for (arm, how, state, why), backends in missing(run).items()
    ]
    if rows or absent:
        arms = [arm for pair in pairs(run) for arm in (pair.arm, pair.other) if arm]
        yield from crowding(run, words, arms)
    head = ("`arm`", "backend", "way", "ranks:count", "`against`", "step:milliseconds",
            "step_other:milliseconds", "step_ratio:relative", f"loss_gap:{loss_unit(run)}",
            "shares:percent")  # fmt: skip
    yield from table(words, "modes", head, rows)
    yield from table(
        words, "modes-missing", ("`arm`", "backend", "way", "status", "reason"), absent
    )


def _row(run: Run, h: Held, words: Words) -> Row:
    arm, room = h.pair.arm, families.room(run, h.pair.arm, h.backend)
    return [
        arm,
        h.backend,
        Cell(words(f"way.{h.pair.way}"), note=_detail(run, h, words)),
        Cell(str(ranks.size(run, arm)), note=places(room, words) if room.enough is False else ""),
        h.pair.other,
        h.ours.step,
        h.theirs.step,
        h.ratio,
        h.gap.cell(signed) if h.gap else None,
        " / ".join(percent(x.share) for x in (h.ours, h.theirs)),
    ]


def _detail(run: Run, h: Held, words: Words) -> str:
    """What the framework calls it, the size of a bucket, or that of a chunk."""
    if h.pair.way == OVERLAP:
        return words("way.buckets", size=ranks.aggregation(run, h.pair.arm).bucket_bytes)
    if h.pair.way == ACCUMULATE:
        return words("way.chunks", n=run.arms[h.pair.arm]["chunk"])
    names = [str(v) for t in h.ours.trials for k, v in t.how.items() if k not in PRIMITIVES]
    text = next((text.partition(":")[2].strip() or text for text in names), "")
    return re.sub(r"\b(?:\w+\.)+", "", text)  # without the names of modules


def signed(x: float) -> str:
    """A difference: ``+0.012``; nothing but rounding is 0."""
    if abs(x) < SAME:
        return "0"
    return f"{'+' if x > 0 else '−'}{numbers.scientific(abs(x))}"


def missing(run: Run) -> dict[tuple[str, str, str, str], list[str]]:
    """(arm, way, status, reason) → backends on which no trial of the arm succeeded."""
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
            ends = interval(h.ratio, text=numbers.factor)
            gap = signed(h.gap.mean) if h.gap else numbers.NONE
            losses = words("modes.equal") if h.equal else words("modes.losses", gap=gap)
            notes.say("alike" if h.ratio.holds(1) else "held", h=h, way=words(f"way.{h.pair.way}"),
                      interval=ends and words("modes.interval", values=ends),
                      losses=losses)  # fmt: skip
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
