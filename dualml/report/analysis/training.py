"""Training on several ranks: time and share of the strategies, and what other rules change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from statistics import median
from typing import Any

from dualml.aggregation import ASYNCHRONOUS
from dualml.report import numbers, ranks
from dualml.report.analysis.base import Finding, Notes, frameworks
from dualml.report.model import Run
from dualml.report.words import Words


def training(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "training")
    for backend in run.backends:
        for n in sorted({ranks.size(run, arm) for arm in ranks.several(run)}):
            _strategies(notes, run, words, backend, n)
    for a, b in combinations(frameworks(run), 2):
        _backends(notes, run, a, b)
    for arm in ranks.several(run):
        if not run.select(arm) or ranks.slow(run, arm):
            continue
        told = ranks.aggregation(run, arm)
        if told["reduce"] == "sum":
            _sum(notes, run, words, arm)
        elif told["reduce"] == "mean":
            _against(notes, run, words, "uneven", arm, _other(run, arm, "reduce"))
        elif told["strategy"] == ASYNCHRONOUS:
            _against(notes, run, words, "asynchronous", arm, _other(run, arm, "strategy"))
            _staleness(notes, run, words, arm)
        elif told["strategy"] == "neighbour":
            _against(notes, run, words, "neighbour", arm, _other(run, arm, "strategy"))
        elif told["every"] > 1:
            other = _other(run, arm, "every")
            _against(notes, run, words, "local", arm, other, every=told["every"])
        elif told["of"] == "parameters":
            _against(notes, run, words, "parameters", arm, _other(run, arm, "of"))
        elif told["compress"] != "none":
            _compress(notes, run, words, arm)
        elif not told["bucket_bytes"]:
            _against(notes, run, words, "one_by_one", arm, _other(run, arm, "bucket_bytes"))
    return notes


#: What may differ between an arm and the plain one it is held against, and what the latter is.
_WANTED: Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]] = {
    "reduce": (("aggregation.reduce",), {"reduce": "weighted"}),
    "strategy": (("aggregation.strategy", "aggregation.arrival"), {"strategy": "all_reduce"}),
    "every": (("aggregation.every",), {"every": 1}),
    "of": (("aggregation.of",), {"of": "gradients"}),
    "bucket_bytes": (("aggregation.bucket_bytes",), {}),
    "compress": (("aggregation.compress", "aggregation.fraction"), {"compress": "none"}),
}


def _other(run: Run, arm: str, what: str) -> str | None:
    """The plain arm; where there is none that combines parameters, one that combines gradients."""
    without, wanted = _WANTED[what]
    found = ranks.like(run, arm, *without, **wanted)
    if found is None and what in ("strategy", "every"):
        more = {**wanted, "of": "gradients"}
        found = ranks.like(run, arm, *without, "aggregation.of", **more)
    return found


def _strategies(notes: Notes, run: Run, words: Words, backend: str, n: int) -> None:
    """Arms that differ in their strategy alone: the fastest and slowest, and their shares."""
    arms = [
        a
        for a in ranks.several(run)
        if ranks.size(run, a) == n
        and not ranks.slow(run, a)
        and ranks.exact(ranks.strategy(run, a))
        and ranks.plain(run, a)
    ]
    # Of arms of different lengths those of the length that most have.
    lengths = Counter(t.updates for a in arms for t in run.select(a, backend))
    usual = lengths.most_common(1)[0][0] if lengths else None
    steps = {
        a: s
        for a in arms
        if (s := ranks.mean_step(run, a, backend))
        and all(t.updates == usual for t in run.select(a, backend))
    }
    first = {ranks.strategy(run, a): a for a in reversed(steps)}  # one arm of each strategy
    steps = {a: s for a, s in steps.items() if a in first.values()}
    if len(set(steps.values())) < 2:
        return
    fast, slow = min(steps, key=lambda a: steps[a]), max(steps, key=lambda a: steps[a])
    notes.say(
        "steps",
        backend=backend,
        n=n,
        fast=fast,
        fast_ms=numbers.quantity(1e3 * steps[fast]),
        slow=slow,
        slow_ms=numbers.quantity(1e3 * steps[slow]),
        times=numbers.factor(steps[slow] / steps[fast]),
    )
    shares = {a: s for a in steps if (s := ranks.share(run, a, backend)) is not None}
    if len(shares) > 1:
        ordered = sorted(shares, key=lambda a: shares[a])
        listed = [f"{ranks.strategy(run, a)} {numbers.percent(shares[a])}" for a in ordered]
        notes.say("shares", backend=backend, n=n, values=words.join(listed))


def _backends(notes: Notes, run: Run, a: str, b: str) -> None:
    ratios = {}
    for arm in ranks.several(run):
        mine, theirs = (ranks.mean_step(run, arm, x) for x in (a, b))
        if mine and theirs:
            ratios[arm] = theirs / mine
    if not ratios:
        return
    up = median(ratios.values()) >= 1
    told = {arm: r if up else 1 / r for arm, r in ratios.items()}
    low, high = (f(told, key=lambda arm: told[arm]) for f in (min, max))
    notes.say(
        "backends",
        len(told),
        slow=b if up else a,
        fast=a if up else b,
        k=len(told),
        typical=numbers.factor(median(told.values())),
        low=numbers.factor(told[low]),
        low_arm=low,
        high=numbers.factor(told[high]),
        high_arm=high,
    )


def _loss(run: Run, arm: str, backend: str) -> float | None:
    return numbers.mean([t.final_loss for t in run.select(arm, backend)])


def _items(run: Run, words: Words, arm: str, other: str) -> list[str]:
    """Per backend: loss, accuracy and time of an update, of the one arm and of the other."""
    items = []
    for backend in run.backends:
        pair = [_loss(run, x, backend) for x in (arm, other)]
        steps = [ranks.mean_step(run, x, backend) for x in (arm, other)]
        scores = [
            numbers.mean([t.test_accuracy for t in run.select(x, backend)]) for x in (arm, other)
        ]
        if None not in pair and None not in steps:
            items.append(
                words(
                    "say.training.item",
                    backend=backend,
                    loss=numbers.loss(pair[0]),
                    other_loss=numbers.loss(pair[1]),
                    accuracy=numbers.percent(scores[0]),
                    other_accuracy=numbers.percent(scores[1]),
                    step=numbers.quantity(1e3 * (steps[0] or 0.0)),
                    other_step=numbers.quantity(1e3 * (steps[1] or 0.0)),
                )
            )
    return items


def _against(
    notes: Notes, run: Run, words: Words, key: str, arm: str, other: str | None, **more: int
) -> None:
    items = _items(run, words, arm, other) if other else []
    if items:
        notes.say(key, arm=arm, other=other, n=ranks.size(run, arm),
                  values=words.semicolons(items), **more)  # fmt: skip


def _sum(notes: Notes, run: Run, words: Words, arm: str) -> None:
    """A sum is a mean with n times the learning rate; with 1 / n of the rate it is the mean."""
    other = ranks.like(run, arm, "aggregation.reduce", "optimizer.lr", reduce="weighted")
    rate, n = float(run.arms[arm]["optimizer"].get("lr") or 0.0), ranks.size(run, arm)
    effective = {"arm": arm, "n": n, "rate": f"{rate:g}", "effective": f"{rate * n:g}"}
    items = _items(run, words, arm, other) if other else []
    if other is None or not items:
        notes.say("sum_alone", **effective)
        return
    theirs = float(run.arms[other]["optimizer"].get("lr") or 0.0)
    same = abs(rate * n - theirs) <= 1e-9 * theirs
    notes.say("sum_same" if same else "sum", **effective, other=other, other_rate=f"{theirs:g}",
              values=words.semicolons(items))  # fmt: skip


def _staleness(notes: Notes, run: Run, words: Words, arm: str) -> None:
    listed = [
        words("say.training.stale", backend=backend, mean=numbers.quantity(mean), most=most)
        for backend in run.backends
        if (found := [t.staleness for t in run.select(arm, backend) if t.staleness])
        and (mean := numbers.mean([f.get("mean") for f in found])) is not None
        and (most := max(int(f.get("max") or 0) for f in found)) is not None
    ]
    if listed:
        n = ranks.size(run, arm)
        notes.say("staleness", arm=arm, others=n - 1, values=words.semicolons(listed))


def _compress(notes: Notes, run: Run, words: Words, arm: str) -> None:
    """Bytes against the whole gradient, beside what the loss says."""
    told, other = ranks.aggregation(run, arm), _other(run, arm, "compress")
    items = _items(run, words, arm, other) if other else []
    if not items:
        return
    # Half of each number; or the chosen entries, each with its place (4 bytes as its value).
    share = 0.5 if told["compress"] == "fp16" else min(1.0, 2 * float(told["fraction"]))
    notes.say("compress", arm=arm, other=other, saved=numbers.percent(1 - share),
              values=words.semicolons(items))  # fmt: skip
