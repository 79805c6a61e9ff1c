"""n workers against one, and a split model against the whole one, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.report import numbers, ranks
from dualml.report.analysis.base import Finding, Notes, named
from dualml.report.model import Run, Serial
from dualml.report.words import Words


def serial(run: Run, words: Words) -> list[Finding]:
    return _said(run, words, [s for s in run.serial if not split(run, s)], "count")


def split_serial(run: Run, words: Words) -> list[Finding]:
    return _said(run, words, [s for s in run.serial if split(run, s)], "count_split")


def split(run: Run, s: Serial) -> bool:
    """Whether a split arm is held against its whole model."""
    return s.arm in run.arms and ranks.split(run, s.arm)


def _said(run: Run, words: Words, told: Sequence[Serial], count: str) -> list[Finding]:
    notes = Notes(words, "serial")
    compared = [s for s in told if s.verdict]
    if compared:
        equal = [s for s in compared if s.verdict == "equal"]
        notes.say(count, len(compared), k=len(equal), of=len(compared))
        known = {k: r for k, s in enumerate(equal) if (r := s.worst) is not None}
        if known:
            worst = max(known, key=lambda k: known[k])
            margin = numbers.quantity(run.parity_settings.get("margin"))
            notes.say("closest", arm=equal[worst].arm, backend=equal[worst].backend,
                      ratio=numbers.scientific(known[worst]), margin=margin)  # fmt: skip
    for s in compared:
        first = s.first_divergence
        if s.verdict == "different" and first:
            phase = words.either(f"phase.{first.get('phase')}", str(first.get("phase")))
            notes.say(
                "diverged",
                arm=s.arm,
                against=s.against,
                backend=s.backend,
                seed=s.seed,
                step=numbers.quantity(first.get("step")),
                phase=phase + named(first),
                distance=numbers.scientific(first.get("distance")),
                envelope=numbers.scientific(first.get("envelope")),
            )
        elif s.verdict != "equal":
            notes.warn("open", arm=s.arm, against=s.against, backend=s.backend, seed=s.seed,
                       reason=words.either(f"reason.{s.reason}", s.reason))  # fmt: skip
    reasons: dict[str, list[str]] = {}
    for s in told:
        if not s.verdict and s.arm not in reasons.setdefault(s.reason, []):
            reasons[s.reason].append(s.arm)
    for reason, arms in reasons.items():
        notes.say("other_rule", len(arms), arms=words.join(arms),
                  rule=words.either(f"rule.{reason}", reason))  # fmt: skip
    return notes
