"""Whether ranks train one model: compared weights after updates, and bytes of the combined
gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report import ranks
from dualml.report.blocks import Block, Cell, Item
from dualml.report.columns import SIGNS, table
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.store.agreement import Agreement, trained_apart
from dualml.store.run import Run, Trial
from dualml.words import Words, numbers


def _several(run: Run) -> list[Trial]:
    """Return the trials with several ranks, including those whose ranks trained apart."""
    arms = [arm for arm in ranks.training(run) if ranks.size(run, arm) > 1]
    every = (t for arm in arms for b in run.backends for t in run.select(arm, b, ok=False))
    return [t for t in every if t.agreement is not None or trained_apart(t.reason)]


def evidence(run: Run, words: Words) -> Iterator[Block]:
    head = ("`arm`", "backend", "seed:", "ranks:count", "`strategy`", "promise", "compared",
            "sent_together:bytes_update", "closed_together:bytes_update")  # fmt: skip
    rows = []
    for t in _several(run):
        first = [t.arm, t.backend, str(t.seed), ranks.size(run, t.arm), _combined(run, t.arm)]
        if t.agreement is None:
            rows.append([*first, None, Cell(f"{SIGNS['bad']} {t.reason}", "bad"), None, None])
            continue
        promise = words(f"promise.{t.agreement.promise}")
        moved = (_sent(t.agreement, words), t.agreement.closed_bytes)
        rows.append([*first, promise, _compared(t.agreement, words), *moved])
    yield from table(words, "agreement", head, rows)


def _combined(run: Run, arm: str) -> str:
    if ranks.split(run, arm):
        return "split"
    return ranks.strategy(run, arm)


def _compared(agreement: Agreement, words: Words) -> Cell:
    """Return the updates after which weights were compared, and the largest difference."""
    if agreement.averagings is not None:
        text = words("agreement.averagings", share=numbers.percent(agreement.averagings))
        return Cell(f"{SIGNS['good']} {text}", "good")
    if not agreement.checks:
        return Cell(words("agreement.never"), "muted")
    updates = " · ".join(f"{check.update:,}" for check in agreement.checks)
    apart = max(check.apart for check in agreement.checks)
    if agreement.promise in ("shards", "stages"):
        return Cell(updates, note=words("agreement.own_part"))
    note = words("agreement.rounding", apart=f"{apart:.1g}") if apart else words("agreement.equal")
    return Cell(f"{SIGNS['good']} {updates}", "good", note)


def _sent(agreement: Agreement, words: Words) -> Cell:
    if agreement.sent_bytes is None:
        return Cell(words("agreement.not_seen"), "muted")
    times = agreement.times_sent or 1.0
    twice = words("agreement.times", times=f"{times:.2g}") if round(times) > 1 else ""
    return Cell(numbers.nbytes(agreement.sent_bytes), note=twice)


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "agreement", "table-agreement")
    trials = _several(run)
    for backend in run.backends:
        here = [t for t in trials if t.backend == backend]
        apart = list(dict.fromkeys(t.arm for t in here if trained_apart(t.reason)))
        if apart:
            notes.say("apart", len(apart), backend=backend, arms=", ".join(apart), n=len(apart))
        seen = {t.arm for t in here} - {*apart}
        if seen:
            notes.say("one_model", len(seen), backend=backend, n=len(seen))
    return notes


TOPIC = Topic("agreement", 395, evidence, findings, when=lambda run: bool(_several(run)))
