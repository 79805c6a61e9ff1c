"""Partition or sample: what an epoch misses, and whether the result is the same."""

from __future__ import annotations

from dualml.parity.statistics import MARGIN
from dualml.partition import Bootstrap
from dualml.report import numbers
from dualml.report.analysis.base import Finding, Notes
from dualml.report.analysis.merged import Merged
from dualml.report.deals import Deal, deal_of, rule
from dualml.report.gaps import Gap, gap, short, told
from dualml.report.model import Run
from dualml.report.sampling import DRAWN, Contest, again, contests, expected
from dualml.report.words import Words


def sampling(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "sampling")
    merged, tests = Merged(notes, words), 0
    for contest in contests(run):
        _epochs(notes, run, words, contest)
        for backend in run.backends:
            gaps = {
                arm: found
                for arm in contest.others
                if (found := gap(run, arm, contest.base, backend)) is not None
            }
            _results(merged, words, contest, backend, gaps)
            tests += sum(found.kind != "few" for found in gaps.values())
        merged.close()
    if tests > 1:
        notes.warn("tests", n=tests)
    return notes


def _epochs(notes: Notes, run: Run, words: Words, contest: Contest) -> None:
    """What the epochs of each rule see, repeat and miss."""
    whole: list[str] = []
    for arm in contest.arms:
        deal = deal_of(run, arm)
        if deal is None:
            continue
        if rule(run, arm) in DRAWN:
            _drawn(notes, arm, deal)
        elif not deal.mean("missed") and not again(deal):
            whole.append(arm)
        elif not deal.mean("missed"):
            notes.say("padded", arm=arm, again=numbers.quantity(again(deal)))
        else:
            notes.say("partial", arm=arm, missed=numbers.quantity(deal.mean("missed")),
                      again=numbers.quantity(again(deal)))  # fmt: skip
    if whole:
        notes.say("once", len(whole), arms=words.join(whole))


def _drawn(notes: Notes, arm: str, deal: Deal) -> None:
    missed, n, chance = deal.mean("missed") or 0.0, deal.first["samples"], expected(deal)
    key = "drawn_once" if deal.settings["name"] == Bootstrap.name else "drawn"
    notes.say(
        key if chance is not None else f"{key}_plain",
        arm=arm,
        n=numbers.quantity(n),
        missed=numbers.quantity(round(missed, 1)),
        share=numbers.percent(missed / n),
        expected=numbers.percent((chance or 0.0) / n),
        again=numbers.quantity(round(again(deal) or 0.0, 1)),
    )


def _results(
    merged: Merged, words: Words, contest: Contest, backend: str, gaps: dict[str, Gap]
) -> None:
    """Arms with the same outcome in one sentence."""
    for kind in ("equal", "apart", "open", "few"):
        mine = {arm: found for arm, found in gaps.items() if found.kind == kind}
        if not mine:
            continue
        seeds = min(found.seeds for found in mine.values())
        text = short if kind == "few" else told
        merged.say(
            backend,
            kind,
            seeds if kind == "few" else None,
            warning=kind == "few",
            base=contest.base,
            n=seeds,
            margin=f"{100 * MARGIN:g}",
            values=words.join([f"{arm} {text(found, words)}" for arm, found in mine.items()]),
        )
