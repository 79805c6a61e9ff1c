"""Other ways to do the same update: the framework's own data parallel training, overlapped
communication, accumulated gradients, each held against the plain way here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dualml.aggregation import NATIVE, REPLICAS
from dualml.communicator.how import PRIMITIVES
from dualml.report import families, numbers, ranks
from dualml.report.cells import Cell, Table, heads, number, percent, status
from dualml.report.collectives import size_of
from dualml.report.model import Run, Trial
from dualml.report.scaling import places, steps
from dualml.report.spread import Spread, cell, paired, ratio, spread
from dualml.report.style import loss_unit
from dualml.report.words import Words

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


@dataclass(frozen=True)
class Held:
    """A pair on one backend: ms of an update, their ratio, difference of the final losses."""

    pair: Pair
    backend: str
    mine: Spread | None
    theirs: Spread | None
    ratio: Spread | None
    gap: Spread | None

    @property
    def equal(self) -> bool:
        """Whether the losses end alike but for rounding."""
        gap = self.gap
        ends = (gap.mean, gap.low, gap.high) if gap else ()
        return bool(ends) and all(abs(v) < SAME for v in ends if v is not None)


def way(run: Run, arm: str) -> str:
    """The key of `WAYS`, or nothing for an arm of another sort."""
    told = ranks.aggregation(run, arm)
    if told["strategy"] in (NATIVE, REPLICAS):
        return str(told["strategy"])
    if told.get("overlap"):
        return OVERLAP
    return ACCUMULATE if ranks.size(run, arm) > 1 and _whole(run, arm) else ""


def _whole(run: Run, arm: str) -> str | None:
    """The arm that computes at once the gradient that this one accumulates from chunks."""
    chunk, n = int(run.arms[arm].get("chunk") or 0), ranks.size(run, arm)
    batch = int(run.arms[arm].get("batch_size") or run.train_size or 0)
    if not chunk or chunk * n >= batch:
        return None
    mine = ranks.key(run, arm, "chunk", "aggregation")
    for other in ranks.several(run):
        more = int(run.arms[other].get("chunk") or 0) > chunk
        same = ranks.aggregation(run, other) == ranks.aggregation(run, arm)
        if more and same and ranks.key(run, other, "chunk", "aggregation") == mine:
            return other
    return None


def pairs(run: Run) -> list[Pair]:
    """Every arm that trains in one of the `WAYS`; empty where none does."""
    found = [(way(run, arm), arm) for arm in ranks.training(run) if not ranks.slow(run, arm)]
    ordered = sorted((f for f in found if f[0]), key=lambda f: list(WAYS).index(f[0]))
    return [Pair(w, arm, _other(run, w, arm)) for w, arm in ordered]


def _other(run: Run, how: str, arm: str) -> str | None:
    """Plain and otherwise the same; of several the one with the fewest ranks but one."""
    if how == ACCUMULATE:
        return _whole(run, arm)
    free = ("aggregation", *WAYS[how])
    mine = ranks.key(run, arm, *free)
    alike = [a for a in ranks.training(run) if a != arm and ranks.key(run, a, *free) == mine]
    if how != REPLICAS:
        alike = [a for a in alike if ranks.size(run, a) == ranks.size(run, arm)]
    plain = [a for a in alike if ranks.plain(run, a) and ranks.strategy(run, a) == "all_reduce"]
    ran = [a for a in plain if run.select(a)] or plain
    return min(ran, key=lambda a: (ranks.size(run, a) == 1, ranks.size(run, a)), default=None)


def held(run: Run) -> list[Held]:
    """Pairs with a successful trial of the first arm."""
    return [
        _held(run, pair, backend)
        for pair in pairs(run)
        for backend in run.backends
        if run.select(pair.arm, backend)
    ]


def _held(run: Run, pair: Pair, backend: str) -> Held:
    mine = run.select(pair.arm, backend)
    theirs = run.select(pair.other, backend) if pair.other else []
    return Held(
        pair=pair,
        backend=backend,
        mine=spread(steps(mine).values()),
        theirs=spread(steps(theirs).values()),
        ratio=ratio(steps(mine), steps(theirs)),
        gap=paired(_losses(mine), _losses(theirs), lambda a, b: a - b),
    )


def _losses(trials: Sequence[Trial]) -> dict[int, float]:
    return {t.seed: float(t.final_loss) for t in trials if numbers.known(t.final_loss)}


def mode_arms(run: Run) -> list[str]:
    return [arm for pair in pairs(run) for arm in (pair.arm, pair.other) if arm]


def mode_table(run: Run, words: Words) -> Table | None:
    rows = [_row(run, h, words) for h in held(run)]
    if not rows:
        return None
    head = heads(
        words,
        *("arm", "backend", "way", "ranks:count", "against", "step:milliseconds"),
        *("step_other:milliseconds", "step_ratio:relative", f"loss_gap:{loss_unit(run)}"),
        "shares:percent",
    )
    return Table("modes", words("table.modes"), head, rows)


def _row(run: Run, h: Held, words: Words) -> list[Cell]:
    arm, other = h.pair.arm, h.pair.other
    room = families.room(run, arm, h.backend)
    short = places(room, words) if room.enough is False else ""
    shares = [ranks.share(run, a, h.backend) if a else None for a in (arm, other)]
    return [
        Cell(arm, "code"),
        Cell(h.backend),
        Cell(words(f"way.{h.pair.way}"), note=_detail(run, h, words)),
        Cell(str(ranks.size(run, arm)), "number", note=short),
        Cell(other or numbers.NONE, "code"),
        *(cell(s, 1e3) for s in (h.mine, h.theirs)),
        cell(h.ratio, text=numbers.factor),
        cell(h.gap, text=signed),
        number(" / ".join(percent(s) for s in shares)),
    ]


def _detail(run: Run, h: Held, words: Words) -> str:
    """What the framework calls it, the size of a bucket, or that of a chunk."""
    if h.pair.way == OVERLAP:
        return words(
            "way.buckets", size=size_of(ranks.aggregation(run, h.pair.arm)["bucket_bytes"])
        )
    if h.pair.way == ACCUMULATE:
        return words("way.chunks", n=run.arms[h.pair.arm]["chunk"])
    trials = run.select(h.pair.arm, h.backend)
    told = [str(v) for t in trials for k, v in t.how.items() if k not in PRIMITIVES]
    text = next((text.partition(":")[2].strip() or text for text in told), "")
    return re.sub(r"\b(?:\w+\.)+", "", text)  # without the names of modules


def signed(x: float) -> str:
    """A difference: ``+0.012``; nothing but rounding is 0."""
    if abs(x) < SAME:
        return "0"
    return f"{'+' if x > 0 else '−'}{numbers.scientific(abs(x))}"


def missing(run: Run) -> dict[tuple[str, str, str, str], list[str]]:
    """(arm, way, status, reason) → backends on which no trial of the arm succeeded."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for pair in pairs(run):
        for backend in run.backends:
            trials = run.select(pair.arm, backend, ok=False)
            if trials and not any(t.ok for t in trials):
                key = (pair.arm, pair.way, trials[0].status, trials[0].reason)
                found.setdefault(key, []).append(backend)
    return found


def missing_table(run: Run, words: Words) -> Table | None:
    """Ways that this machine or a framework does not have."""
    rows = []
    for (arm, how, state, why), backends in missing(run).items():
        trial = next(t for t in run.trials if t.arm == arm and t.status == state)
        rows.append(
            [
                Cell(arm, "code"),
                Cell(", ".join(backends)),
                Cell(words(f"way.{how}")),
                status(trial, words),
                Cell(why),
            ]
        )
    if not rows:
        return None
    head = heads(words, "arm", "backend", "way", "status", "reason")
    return Table("modes-missing", words("table.modes_missing"), head, rows)
