"""How times of split arms are shown: cells, bars of an update's parts, the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dualml.report import keys
from dualml.report.blocks import Cell, Notice
from dualml.report.columns import SIGNS, VERDICT_TONES
from dualml.report.figure import Bar, Key, Owner
from dualml.report.splits import times
from dualml.report.splits.arms import SplitArm
from dualml.store.run import Run, Serial
from dualml.words import Words, numbers

#: Verdicts against the whole model, the worst last; any other is worse.
VERDICTS = ("", "equal", "statistically equal", "not comparable")


def part_keys(words: Words) -> list[Key]:
    """Parts of an update; one pale bar where what the ranks did is not recorded."""
    whole = Key("series", "whole", words("splits.part.whole"), "pale")
    return [whole, *(key for key in keys.fine_parts(words) if key.name != "whole")]


def starred(text: str, run: Run, arm: str, backend: str) -> str:
    """With a star where ranks took turns on cores."""
    turns = text != numbers.NONE and times.take_turns(run, arm, backend)
    return f"{text} *" if turns else text


def stacked(
    y: float, parts: Mapping[str, float], scale: float, text: str = "", height: float = 0.76
) -> Iterator[Bar]:
    """Parts of a time beside one another; the text stands at the end."""
    left = 0.0
    for part, seconds in parts.items():
        yield Bar(y, scale * seconds, Owner(series=part), left, height)
        left += scale * seconds
    if text:
        yield Bar(y, 0.0, left=left, height=height, text=text)


def verdict(run: Run, arm: str, words: Words) -> Cell:
    """Against the whole model: the worst over backends and seeds."""
    judged = [s for s in run.serial if s.arm == arm]
    if not judged:
        return Cell(numbers.NONE)
    worst = max(judged, key=_badness)
    if not worst.verdict:
        reason = words.either(f"rule.{worst.reason}", worst.reason)
        return Cell(words("value.another_rule"), note=reason)
    tone = VERDICT_TONES.get(worst.verdict, "muted")
    text = words.either(f"verdict.{worst.verdict.replace(' ', '_')}", worst.verdict)
    return Cell(f"{SIGNS[tone]} {text}", tone)


def _badness(s: Serial) -> int:
    return VERDICTS.index(s.verdict) if s.verdict in VERDICTS else len(VERDICTS)


def crowded(run: Run, arms: Iterable[SplitArm], words: Words) -> Iterator[Notice]:
    """Before every time: whose ranks had to share cores."""
    names = times.crowded(run, arms)
    if names:
        yield Notice(words("page.crowded_split", arms=words.join(names)))


def joined(words: Words, texts: Iterable[str]) -> str:
    """What there is to say of each backend as parts of a sentence; empty where nothing is."""
    return words.semicolons([text for text in texts if text])


def listed(arms: Iterable[str], backends: Sequence[str], value: Callable[[str, str], str]) -> str:
    """``ring torch 1.2, ring mindspore 1.3``: the values of a figure in words."""
    places = [(arm, backend) for arm in arms for backend in backends]
    known = [(place, text) for place in places if (text := value(*place)) != numbers.NONE]
    return ", ".join(f"{arm} {backend} {text}" for (arm, backend), text in known)
