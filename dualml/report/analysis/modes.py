"""The framework's own data parallel training, overlap and accumulation against the plain way."""

from __future__ import annotations

from dualml.report import numbers, ranks
from dualml.report.analysis.base import Finding, Notes
from dualml.report.model import Run
from dualml.report.modes import Held, held, missing, pairs, signed
from dualml.report.spread import interval
from dualml.report.words import Words


def modes(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "modes")
    for h in held(run):
        if h.ratio is not None and h.mine is not None and h.theirs is not None:
            _told(notes, run, words, h)
    alone = list(dict.fromkeys(p.arm for p in pairs(run) if p.other is None and run.select(p.arm)))
    if alone:
        notes.warn("alone", len(alone), arms=words.join(alone))
    for (arm, way, state, reason), backends in missing(run).items():
        if state in ("unsupported", "failed"):
            notes.warn(state, arm=arm, way=words(f"way.{way}"), backends=words.join(backends),
                       reason=reason.rstrip(" .:"))  # fmt: skip
    return notes


def _told(notes: Notes, run: Run, words: Words, h: Held) -> None:
    """One sentence: time, its ratio, where the losses end, how much is communication."""
    assert h.ratio is not None
    assert h.mine is not None
    assert h.theirs is not None
    low, high = h.ratio.low, h.ratio.high
    open_ = h.ratio.seeds >= 3 and low is not None and high is not None and low < 1 < high
    ends = interval(h.ratio, text=numbers.factor)
    shares = [ranks.share(run, a, h.backend) for a in (h.pair.arm, h.pair.other or "")]
    notes.say(
        "alike" if open_ else "held",
        way=words(f"way.{h.pair.way}"),
        arm=h.pair.arm,
        other=h.pair.other,
        backend=h.backend,
        mine=numbers.quantity(1e3 * h.mine.mean),
        theirs=numbers.quantity(1e3 * h.theirs.mean),
        times=numbers.factor(h.ratio.mean),
        interval=words("modes.interval", values=ends) if ends else "",
        losses=words("modes.equal")
        if h.equal
        else words("modes.losses", gap=signed(h.gap.mean) if h.gap else numbers.NONE),
        share=numbers.percent(shares[0]),
        other_share=numbers.percent(shares[1]),
    )
