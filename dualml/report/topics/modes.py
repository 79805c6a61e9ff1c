"""Other ways to do the same update: the framework's own data parallel training, overlapped
communication, accumulated gradients, each held against the plain way here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dualml.aggregation import NATIVE, REPLICAS
from dualml.communicator.how import PRIMITIVES
from dualml.report import families, ranks
from dualml.report.blocks import Block, Cell, Item, Table
from dualml.report.columns import columns, percent, status
from dualml.report.crowding import crowding
from dualml.report.measures import loss_unit
from dualml.report.notes import Notes
from dualml.report.scaling import places, steps
from dualml.report.spread import Spread, cell, interval, paired, ratio, spread
from dualml.report.topics import Topic
from dualml.store.run import Run, Trial
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


@dataclass(frozen=True)
class Held:
    """A pair on one backend: ms of an update, their ratio, difference of the final losses."""

    pair: Pair
    backend: str
    step: Spread | None
    other_step: Spread | None
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
    return [
        _held(run, pair, backend)
        for pair in pairs(run)
        for backend in run.backends
        if run.select(pair.arm, backend)
    ]


def _held(run: Run, pair: Pair, backend: str) -> Held:
    trials = run.select(pair.arm, backend)
    others = run.select(pair.other, backend) if pair.other else []
    return Held(
        pair=pair,
        backend=backend,
        step=spread(steps(trials).values()),
        other_step=spread(steps(others).values()),
        ratio=ratio(steps(trials), steps(others)),
        gap=paired(_losses(trials), _losses(others), lambda a, b: a - b),
    )


def _losses(trials: Sequence[Trial]) -> dict[int, float]:
    return {t.seed: float(t.final_loss) for t in trials if numbers.known(t.final_loss)}


# --- evidence -------------------------------------------------------------------------------------


def evidence(run: Run, words: Words) -> Iterator[Block]:
    spec = (
        *("`arm`", "backend", "way", "ranks:count", "`against`", "step:milliseconds"),
        *("step_other:milliseconds", "step_ratio:relative", f"loss_gap:{loss_unit(run)}"),
        "shares:percent",
    )
    rows = [_row(run, h, words) for h in held(run)]
    absent = list(_missing_rows(run, words))
    if rows or absent:
        arms = [arm for pair in pairs(run) for arm in (pair.arm, pair.other) if arm]
        yield from crowding(run, words, arms)
    if rows:
        yield Table("modes", words("table.modes"), columns(words, *spec), rows)
    if absent:
        missing_spec = columns(words, "`arm`", "backend", "way", "status", "reason")
        yield Table("modes-missing", words("table.modes_missing"), missing_spec, absent)


def _row(run: Run, h: Held, words: Words) -> list[Cell | str]:
    arm, other = h.pair.arm, h.pair.other
    room = families.room(run, arm, h.backend)
    short = places(room, words) if room.enough is False else ""
    shares = [ranks.share(run, a, h.backend) if a else None for a in (arm, other)]
    return [
        arm,
        h.backend,
        Cell(words(f"way.{h.pair.way}"), note=_detail(run, h, words)),
        Cell(str(ranks.size(run, arm)), note=short),
        other or numbers.NONE,
        *(cell(s, 1e3) for s in (h.step, h.other_step)),
        cell(h.ratio, text=numbers.factor),
        cell(h.gap, text=signed),
        " / ".join(percent(share) for share in shares),
    ]


def _detail(run: Run, h: Held, words: Words) -> str:
    """What the framework calls it, the size of a bucket, or that of a chunk."""
    if h.pair.way == OVERLAP:
        nbytes = ranks.aggregation(run, h.pair.arm).bucket_bytes
        return words("way.buckets", size=numbers.nbytes(nbytes))
    if h.pair.way == ACCUMULATE:
        return words("way.chunks", n=run.arms[h.pair.arm]["chunk"])
    trials = run.select(h.pair.arm, h.backend)
    names = [str(v) for t in trials for k, v in t.how.items() if k not in PRIMITIVES]
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
    for pair in pairs(run):
        for backend in run.backends:
            trials = run.select(pair.arm, backend, ok=False)
            if trials and not any(t.ok for t in trials):
                key = (pair.arm, pair.way, trials[0].status, trials[0].reason)
                absent.setdefault(key, []).append(backend)
    return absent


def _missing_rows(run: Run, words: Words) -> Iterator[list[Cell | str]]:
    """Ways that this machine or a framework does not have."""
    for (arm, how, state, why), backends in missing(run).items():
        trial = next(t for t in run.trials if t.arm == arm and t.status == state)
        yield [arm, ", ".join(backends), words(f"way.{how}"), status(trial, words), why]


# --- findings -------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "modes", "table-modes")
    for h in held(run):
        _compared(notes, run, words, h)
    alone = list(dict.fromkeys(p.arm for p in pairs(run) if p.other is None and run.select(p.arm)))
    if alone:
        notes.warn("alone", len(alone), arms=words.join(alone))
    notes.about("table-modes-missing")
    for (arm, how, state, reason), backends in missing(run).items():
        if state in ("unsupported", "failed"):
            notes.warn(state, arm=arm, way=words(f"way.{how}"), backends=words.join(backends),
                       reason=reason.rstrip(" .:"))  # fmt: skip
    return notes


def _compared(notes: Notes, run: Run, words: Words, h: Held) -> None:
    """One sentence: time, its ratio, where the losses end, how much is communication."""
    if h.ratio is None or h.step is None or h.other_step is None:
        return
    low, high = h.ratio.low, h.ratio.high
    alike = h.ratio.seeds >= 3 and low is not None and high is not None and low < 1 < high
    ends = interval(h.ratio, text=numbers.factor)
    shares = [ranks.share(run, a, h.backend) for a in (h.pair.arm, h.pair.other or "")]
    notes.say(
        "alike" if alike else "held",
        way=words(f"way.{h.pair.way}"),
        arm=h.pair.arm,
        other=h.pair.other,
        backend=h.backend,
        mine=numbers.quantity(1e3 * h.step.mean),
        theirs=numbers.quantity(1e3 * h.other_step.mean),
        times=numbers.factor(h.ratio.mean),
        interval=words("modes.interval", values=ends) if ends else "",
        losses=words("modes.equal")
        if h.equal
        else words("modes.losses", gap=signed(h.gap.mean) if h.gap else numbers.NONE),
        share=numbers.percent(shares[0]),
        other_share=numbers.percent(shares[1]),
    )


TOPIC = Topic("modes", 310, evidence, findings)
