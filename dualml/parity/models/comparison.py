"""The result of a model comparison: for scripts, for people in two languages, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import Signature
from typing import TYPE_CHECKING, Any, cast

from dualml.common.json_types import JsonObject
from dualml.common.words import Messages
from dualml.experiment.comparison import Comparison, FirstDivergence
from dualml.parity.models.messages import (
    Language,
    describe_divergence_numbers,
    describe_divergence_place,
    describe_elements,
    format_message,
)
from dualml.parity.models.sentences import (
    describe_causes,
    format_count,
    format_place,
    make_hypothesis,
)
from dualml.parity.patches.sentences import describe_patch

if TYPE_CHECKING:
    from dualml.parity.models.answer_parts import AnswerSource

#: Keys of notes that come first: the error, and its catalogue entry; the pattern that decides.
LEADING = ("raised", "types", "entry", "pattern")
#: What the JSON says of the first divergence.
DIVERGENCE_KEYS = (
    *("step", "phase", "layer", "type", "tensor", "other", "kind", "distance", "envelope"),
    *("shapes", "elements", "side", "outside"),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class ModelComparison(Comparison):
    """The verdict on two models, or on two traces: a `Comparison` with more attributes.

    Attributes:
        margin: how many rounding envelopes apart arrays still count as equal.
        tolerance: ``measured`` (by draws) or ``bound`` (√fan-in · 2⁻²³, if no draws were made).
        mapping: for each parameter its two names, how they were paired, and how the array is
            converted.
        environment: side → its versions and device.
        reach: how far both sides agree: number of arrays before the first beyond the margin, number
            of operations of the second side before the first whose output the first side does not
            compute.
        lost: number of values of the second side that the first does not compute.
        distances: (step, phase, name on the first side) → relative distance of every judged array,
            see `dualml.common.distance`.
        outside: (step, phase, name) of the arrays beyond the margin, or of those of a pattern,
            inside of it.
        blocks: ratios and drift of each block in a comparison block by block, see
            `dualml.parity.models.lockstep.judge.describe_blocks`.
        patch: the patch of the second side, if one was asked for, see
            `dualml.parity.patches.finding.find_patch`.
    """

    #: Empty, because users do not construct it: `dualml.parity.compare` returns it.
    __signature__ = Signature()

    margin: float
    tolerance: str
    mapping: tuple[dict[str, str], ...] = ()
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    reach: tuple[int, int] = (0, 0)
    lost: int = 0
    distances: Mapping[tuple[int, str, str], float] = field(default_factory=dict)
    outside: frozenset[tuple[int, str, str]] = frozenset()
    blocks: tuple[JsonObject, ...] = ()
    patch: JsonObject | None = None

    def __repr__(self) -> str:
        first = "" if self.first is None else f", first at {self.first.tensor}"
        return f"<Comparison: {self.verdict}{first}>"

    def _repr_markdown_(self) -> str:
        """Return `page` in a Markdown code block, for a notebook."""
        fence = "`" * 3
        return f"{fence}text\n{self.page()}\n{fence}"

    @property
    def equal(self) -> bool:
        """Whether the verdict is ``equal``."""
        return self.verdict == "equal"

    @property
    def worst(self) -> float:
        """The largest ratio of a distance to the rounding envelope at that array, over all phases;
        0 if nothing was compared."""
        return max((float(p["ratio"]) for p in self.phases.values()), default=0.0)

    def describe(self) -> JsonObject:
        """Return the result as a JSON object, with its text in English and Chinese, without
        `reach`, `lost`, `distances` and `outside`."""
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "sides": list(self.sides),
            "steps": self.steps,
            "margin": self.margin,
            "tolerance": self.tolerance,
            "worst_ratio": self.worst,
            "first": None if self.first is None else self.first.describe(*DIVERGENCE_KEYS),
            "phases": {phase: dict(worst) for phase, worst in self.phases.items()},
            "explanation": None if self.explanation is None else dict(self.explanation),
            "mapping": list(self.mapping),
            "text": {"en": self.paragraph("en"), "zh": self.paragraph("zh")},
            "notes": [{"key": note.key, **note.values} for note in self.notes],
            "environment": {side: dict(facts) for side, facts in self.environment.items()},
            **({"blocks": [dict(one) for one in self.blocks]} if self.blocks else {}),
            **({} if self.patch is None else {"patch": dict(self.patch)}),
        }

    def paragraphs(self, words: Messages) -> list[str]:
        """Return the verdict, its evidence, the notes and the patch as sentences, the verdict
        first.

        Args:
            words: messages of the language.
        """
        lang = cast("Language", words.lang)
        say = partial(format_message, lang)
        notes: dict[bool, list[str]] = {True: [], False: []}  # those that decide come first
        for note in self.notes:
            notes[note.key in LEADING].append(say(f"note.{note.key}", **note.values))
        margin = f"{self.margin:g}"
        a, b = self.sides
        sentences = [say(f"verdict.{self.verdict.replace(' ', '_')}", a=a, b=b), *notes[True]]
        if self.first is not None:
            sentences += self._describe_divergence(self.first, lang)
        else:
            sentences += self.evidence_texts(lang)
        sentences += notes[False]
        if self.patch is not None:
            sentences += describe_patch(lang, self.patch, b)
        if self.tolerance == "bound" and self.phases and self.steps:
            sentences.append(say("tolerance.bound", margin=margin))
        return sentences

    def evidence_texts(self, lang: Language) -> list[str]:
        """Return, for a comparison without a first divergence, a sentence on how many arrays are
        equal, or on why the two sides cannot be compared; empty if both raised, which a note
        says."""
        say = partial(format_message, lang)
        if self.verdict != "equal":
            return [] if self.reason == "both_raised" else [say(f"reason.{self.reason}")]
        arrays = sum(int(worst["arrays"]) for worst in self.phases.values())
        steps, worst = format_count(lang, "steps", self.steps), f"{self.worst:.2g}"
        unjudged = sum(int(n.values["n"]) for n in self.notes if n.key == "wild")
        evidence = "equal.evidence_in_part" if unjudged else "equal.evidence"
        counts = {"arrays": arrays, "all": arrays + unjudged, "steps": steps}
        return [say(evidence, worst=worst, margin=f"{self.margin:g}", **counts)]

    def page(self, lang: str = "en") -> str:
        """Return the answer on one page, at most 24 lines of 100 columns: verdict, source lines of
        both sides, numbers, cause, patch, and what is still open.

        Args:
            lang: ``en`` or ``zh``.
        """
        from dualml.parity.models.answer_page import make_page

        lines = self.patch_lines(lang)
        return "\n".join(line.text for line in make_page(self.answer(lang), lang, patch=lines))

    def patch_lines(self, lang: str) -> list[str]:
        """Return sentences about the patch as one line, then the lines of its unified diff and of
        its map; empty if no patch was asked for."""
        if self.patch is None:
            return []
        sentences = describe_patch(cast("Language", lang), self.patch, self.sides[1])
        text = self.patch["diff"] + self.patch["map"]
        return [Messages(lang).join_sentences(sentences), *text.splitlines()]

    def answer(self, lang: str) -> AnswerSource:
        """Return the source from which `dualml.parity.models.answer_page.make_page` makes the page.

        Args:
            lang: ``en`` or ``zh``, for the sentences of evidence.
        """
        from dualml.parity.models.answer_parts import AnswerSource

        texts = [] if self.first is not None else self.evidence_texts(cast("Language", lang))
        return AnswerSource(self, self.margin, self.tolerance, tuple(texts))

    def _describe_divergence(self, first: FirstDivergence, lang: Language) -> Iterator[str]:
        """Yield sentences on the first divergence: place, numbers, elements, and causes if they are
        known."""
        yield describe_divergence_place(lang, first, self.sides)
        yield from describe_divergence_numbers(lang, first, self.sides, self.margin, "first.value")
        if first.elements:
            yield describe_elements(lang, first, self.sides)
        if self.explanation is not None:
            yield from self._describe_causes(self.explanation, lang)

    def _describe_causes(self, explanation: Mapping[str, Any], lang: Language) -> Iterator[str]:
        """Yield sentences on the first operations that differ, the causes that explain them, and
        the catalogue entries of the likeliest ones."""
        first = next(iter(explanation["causes"]), explanation)
        places = [
            format_place(lang, side, first[key])
            for side, key in zip(self.sides, ("place", "other"), strict=True)
        ]
        if any(places):
            joined = format_message(lang, "semicolon").join(filter(None, places))
            yield format_message(lang, "place.both", places=joined)
        yield from describe_causes(lang, explanation, self.sides, self.steps)
        likeliest = [make_hypothesis(cause["alterations"][0]) for cause in explanation["causes"]]
        for entry in dict.fromkeys(entry for one in likeliest for entry in one.entries):
            yield format_message(lang, "first.entry", entry=entry)
