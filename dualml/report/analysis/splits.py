"""Whole against split in sentences: which split is fastest, where the time goes, what crossed."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.report import numbers, ranks
from dualml.report.analysis.base import Finding, Notes
from dualml.report.model import Run
from dualml.report.splits import arms, spent
from dualml.report.splits.links import crossings
from dualml.report.words import Words


def splits(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "splits")
    for backend in spent.shown(run):
        for base, members in arms.families(run).items():
            ran = [a for a in arms.healthy(run, members) if run.select(a, backend)]
            if base and ran and run.select(base, backend):
                _fastest(notes, run, words, backend, base, ran)
            _shares(notes, run, words, backend, ran)
    _rpc(notes, run, words)
    _asynchronous(notes, run, words)
    _crossed(notes, run)
    used = arms.split_arms(run)
    again = [b for b in run.backends if run.framework(b) == "mindspore"]
    if any(run.select(a, b) for a in used for b in again):
        notes.warn("again", backends=words.join(again))
    turns = spent.turns_anywhere(run)
    if turns:
        notes.warn("turns", len(turns), arms=words.join(turns))
    return notes


def ms(seconds: float | None) -> str:
    return numbers.quantity(1e3 * seconds) if seconds is not None else numbers.NONE


def _fastest(
    notes: Notes, run: Run, words: Words, backend: str, base: str, ran: Sequence[str]
) -> None:
    """Arms whose ranks had cores of their own; where none had, all of them."""
    own = [a for a in ran if not spent.turns(run, a, backend)]
    fair = own or ran
    found = {a: s.mean for a in fair if (s := spent.step(run, a, backend)) is not None}
    one = spent.step(run, base, backend)
    if not found or one is None:
        return
    fast, slow = min(found, key=lambda a: found[a]), max(found, key=lambda a: found[a])
    k = sum(v < one.mean for v in found.values())
    told = {
        "backend": backend,
        "base": base,
        "model": arms.model(run, base),
        "one": ms(one.mean),
        "fast": fast,
        "fast_how": arms.told(run, fast, words),
        "fast_ms": ms(found[fast]),
        "fast_times": numbers.factor(found[fast] / one.mean),
    }
    if len(found) == 1:
        notes.say("only", **told)
        return
    slowest = {"slow": slow, "slow_ms": ms(found[slow])}
    slowest["slow_times"] = numbers.factor(found[slow] / one.mean)
    where = words("say.splits.own_cores") if own and len(own) < len(ran) else ""
    notes.say("fastest", **told, **slowest, n=len(found), k=k, where=where)


def _shares(
    notes: Notes, run: Run, words: Words, backend: str, ran: Sequence[str], most: int = 6
) -> None:
    """Of the first arm of each way to split."""
    seen: dict[object, str] = {}
    for arm in ran:
        key = (*arms.kind(run, arm), arms.schedule(run, arm) if arms.piped(run, arm) else "")
        if spent.by_rank(run, arm, backend):
            seen.setdefault(key, arm)
    items = []
    for arm in [*seen.values()][:most]:
        parts = spent.average(spent.by_rank(run, arm, backend))
        whole = sum(parts.values())
        if whole:
            share = {k: numbers.percent(v / whole) for k, v in parts.items()}
            items.append(words("say.splits.share", arm=arm, **share))
    if items:
        notes.say("shares", backend=backend, values=words.semicolons(items))


def _rpc(notes: Notes, run: Run, words: Words) -> None:
    """Calls against messages, with the same stages on as many ranks."""
    for arm in arms.split_arms(run):
        if arms.split(run, arm)["engine"] != "rpc":
            continue
        for other in arms.split_arms(run):
            same = arms.split(run, other)["engine"] != "rpc" and _same_stages(run, arm, other)
            items = []
            for backend in run.backends if same else ():
                mine, theirs = (spent.step(run, a, backend) for a in (arm, other))
                if mine and theirs:
                    times = numbers.factor(mine.mean / theirs.mean)
                    items.append(words("say.splits.rpc_item", backend=backend, mine=ms(mine.mean),
                                       theirs=ms(theirs.mean), times=times))  # fmt: skip
            if items:
                notes.say("rpc", arm=arm, other=other, n=ranks.size(run, arm),
                          values=words.semicolons(items))  # fmt: skip
                break


def _same_stages(run: Run, arm: str, other: str) -> bool:
    a, b = (arms.plan(run, name) for name in (arm, other))
    return bool(
        a and a.get("stages") == b.get("stages")
        and arms.whole(run, arm) == arms.whole(run, other)
        and arms.micro_batches(run, arm) == arms.micro_batches(run, other)
    )  # fmt: skip


def _asynchronous(notes: Notes, run: Run, words: Words) -> None:
    """Trainers that do not wait for one another, against those that do."""
    for arm in arms.split_arms(run):
        if arms.split(run, arm)["arrival"] != "asynchronous":
            continue
        mine = arms.identity(run, arm, "split.arrival")
        for other in arms.split_arms(run):
            if other == arm or arms.identity(run, other, "split.arrival") != mine:
                continue
            items = []
            for backend in run.backends:
                steps = [spent.step(run, a, backend) for a in (arm, other)]
                losses = [
                    numbers.mean([t.final_loss for t in run.select(a, backend)])
                    for a in (arm, other)
                ]
                if all(steps) and None not in losses:
                    told = [ms(s.mean if s else None) for s in steps]
                    items.append(
                        words("say.splits.asynchronous_item", backend=backend, mine=told[0],
                              theirs=told[1], loss=numbers.loss(losses[0]),
                              other_loss=numbers.loss(losses[1]))
                    )  # fmt: skip
            if items:
                notes.say("asynchronous", arm=arm, other=other, values=words.semicolons(items))


def _crossed(notes: Notes, run: Run) -> None:
    """Bytes counted against bytes planned."""
    every = [
        (t.arm, t.backend, c)
        for arm in arms.split_arms(run)
        for t in run.select(arm)
        for c in crossings(run, t)
    ]
    known = [(arm, b, c) for arm, b, c in every if c.ratio is not None]
    if not known:
        return
    good = [x for x in known if abs((x[2].ratio or 0.0) - 1) <= 1e-3]
    notes.say("crossed", n=len(known), k=len(good))
    for arm, backend, c in known:
        if (arm, backend, c) not in good:
            notes.warn("crossed_else", arm=arm, backend=backend, where=c.where,
                       ratio=numbers.factor(c.ratio))  # fmt: skip
            break
