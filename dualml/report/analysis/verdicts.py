"""The verdicts in sentences: the headline, and the distances behind it."""

from __future__ import annotations

from collections import Counter

from dualml.report import numbers
from dualml.report.analysis.base import Finding, Notes, named
from dualml.report.analysis.serial import split
from dualml.report.model import Comparison, Run
from dualml.report.words import Words

#: from worst to best; the tone of the headline is that of the worst verdict present
TONES = {
    "different": "bad",
    "not comparable": "muted",
    "statistically equal": "near",
    "equal": "good",
}


def headline(run: Run, words: Words) -> tuple[str, str]:
    """Tone and one sentence: which arms are equal, which different, and n workers against one."""
    tone, sentence = _frameworks(run, words)
    compared = run.judged
    if not compared:
        return tone, sentence
    order, told = list(TONES), []
    for key, wanted in (("serial", False), ("serial_split", True)):
        mine = [s for s in compared if split(run, s) == wanted]
        if mine:
            equal = sum(s.verdict == "equal" for s in mine)
            told.append(words(f"headline.{key}", equal=equal, n=len(mine)))
    worst = TONES[min((s.verdict for s in compared), key=_rank)]
    if not run.comparisons:  # one backend
        return worst, words.sentences(told)
    tones = [TONES[v] for v in order]
    return min(tone, worst, key=tones.index), words.sentences([sentence, *told])


def _rank(verdict: str) -> int:
    """0 for the worst, and for what this version does not know."""
    order = list(TONES)
    return order.index(verdict) if verdict in order else 0


def _frameworks(run: Run, words: Words) -> tuple[str, str]:
    if not run.comparisons:
        return "muted", words("headline.none" if run.comparisons is None else "headline.empty")
    worst: dict[str, str] = {}
    order = list(TONES)
    # Arms without a planned order cannot agree and are not meant to.
    meant = [c for c in run.comparisons if c.reason != "free_order"] or run.comparisons
    for c in meant:
        worst[c.arm] = min(worst.get(c.arm, "equal"), c.verdict, key=_rank)
    parts = []
    for verdict in reversed(order):
        arms = [arm for arm in run.arms if worst.get(arm) == verdict]
        if arms:
            key = f"headline.{verdict.replace(' ', '_')}"
            parts.append(words.plural(key, len(arms), arms=_names(run, arms, words)))
    tone = TONES[min(worst.values(), key=order.index)]
    backends = list(dict.fromkeys(b for c in run.comparisons for b in (c.a, c.b)))
    return tone, words(
        "headline.sentence", backends=words.join(backends), verdicts=words.semicolons(parts)
    )


def _names(run: Run, arms: list[str], words: Words, most: int = 5) -> str:
    """All of a few arms; of many, those of the main group and how many more."""
    if len(arms) <= most:
        return words.join(arms)
    shown = [arm for arm in arms if arm in run.main_arms()][:most] or arms[:most]
    more = len(arms) - len(shown)
    return words.join([*shown, *([words.count("more", more)] if more else [])])


def verdicts(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "verdicts")
    if not run.comparisons:
        notes.warn("none")
        return notes
    counts = Counter(c.verdict for c in run.comparisons)
    listed = [
        words("say.verdicts.item", n=counts[v], verdict=words(f"verdict.{v.replace(' ', '_')}"))
        for v in reversed(TONES)
        if counts[v]
    ]
    total = len(run.comparisons)
    notes.say("count", total, n=total, values=words.join(listed))
    agreeing = [c for c in run.comparisons if c.verdict == "equal"]
    worst = max(agreeing, key=_largest, default=None)
    if worst is not None:
        phase, values = _worst_phase(worst)
        notes.say(
            "closest",
            distance=numbers.scientific(values["max"]),
            phase=words.either(f"phase.{phase}", phase),
            arm=worst.arm,
            a=worst.a,
            b=worst.b,
            seed=worst.seed,
            ratio=numbers.scientific(values.get("ratio")),
        )
    free = list(dict.fromkeys(c.arm for c in run.comparisons if c.reason == "free_order"))
    if free:
        notes.say("free", len(free), arms=words.join(free))
    for c in run.comparisons:
        if c.reason != "free_order":
            _say(notes, words, c)
    return notes


def _say(notes: Notes, words: Words, c: Comparison) -> None:
    who = {"arm": c.arm, "a": c.a, "b": c.b, "seed": c.seed}
    first = c.first_divergence
    if c.verdict == "different" and first:
        limit, distance = first.get("envelope"), first.get("distance")
        where = words.either(f"phase.{first.get('phase')}", str(first.get("phase")))
        notes.say(
            "diverged",
            **who,
            step=numbers.quantity(first.get("step")),
            phase=where + named(first),
            distance=numbers.scientific(distance),
            envelope=numbers.scientific(limit),
        )
    elif c.verdict == "not comparable":
        notes.warn("incomparable", **who, reason=words.either(f"reason.{c.reason}", c.reason))
    if c.verdict != "equal" and c.verdict != "not comparable":
        pair = c.outcome.get("test_accuracy") or [None, None]
        if all(numbers.known(v) for v in pair):
            notes.say("outcome", **who, points=f"{100 * abs(pair[0] - pair[1]):.2f}")


def _largest(c: Comparison) -> float:
    return max((p["max"] for p in c.phases.values() if numbers.known(p.get("max"))), default=0.0)


def _worst_phase(c: Comparison) -> tuple[str, dict[str, float]]:
    known = {name: dict(p) for name, p in c.phases.items() if numbers.known(p.get("max"))}
    if not known:
        return "–", {"max": float("nan")}
    name = max(known, key=lambda n: known[n]["max"])
    return name, known[name]
