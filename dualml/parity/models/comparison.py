"""The result of a model comparison: for scripts, for people in two languages, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from inspect import Signature
from typing import Any

from dualml.common.json_types import JsonObject
from dualml.parity.models.messages import Language, format_message
from dualml.parity.models.sentences import (
    describe_causes,
    entries_about,
    format_count,
    format_place,
)

#: Keys of notes that come first: the error, and its catalogue entry.
ERROR = ("raised", "entry")


@dataclass(frozen=True)
class FirstDivergence:
    """The first place where two sides differ by more than rounding explains.

    Attributes:
        step: from 1; 0 is before the first update.
        phase: ``parameters``, ``forward``, ``loss``, ``gradient``, ``update`` or ``state``.
        layer, type: the module and its class on the first side.
        tensor, other: the array's names on the two sides.
        kind: ``value``, ``shape``, ``outputs``, ``nan``, ``both_nan``, ``trained``, ``alone`` (a
            parameter) or ``raised``.
        distance, envelope: relative, see `dualml.common.distance`.
        shapes: shapes of the two arrays; None if there is none.
        elements: those that differ most: ``{"index": […], side: value, side: value}``.
        side: the side that has the NaN, that raised, or that does not train.
        outside: where the margin itself is exceeded, ``{"phase", "tensor", "ratio"}``, if only
            later: a small error begins at one layer and exceeds the margin at another.
    """

    step: int
    phase: str
    layer: str
    type: str
    tensor: str
    other: str
    kind: str
    distance: float
    envelope: float
    shapes: tuple[tuple[int, ...], ...] | None
    elements: tuple[dict[str, Any], ...]
    side: str = ""
    outside: dict[str, Any] | None = None


@dataclass(frozen=True)
class Note:
    """A remark beside the verdict: a message key, and the values for the message."""

    key: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelComparison:
    """The verdict on two models.

    Attributes:
        verdict: ``equal``, ``different`` or ``not comparable``.
        reason: the reason in one word.
        sides: names of the two sides.
        margin: how many times the measured rounding still counts as equal.
        tolerance: ``measured`` (by draws) or ``bound`` (√fan-in · 2⁻²³, if no draws were made).
        steps: number of steps compared.
        mapping: for each parameter its two names, how they were paired, and how the array is
            converted.
        environment: side → its versions and device.
        first: the first divergence; None if there is none.
        notes: remarks beside the verdict.
        phases: phase → the array with the largest ratio to its rounding.
        reach: how far both sides agree: number of arrays before the first outside, number of
            operations before the first that is not shared.
        lost: number of values of the second side that the first does not compute.
        explanation: causes of the difference, see `dualml.parity.causes.explainer`; None if not
            searched.
        distances: (step, phase, name) → relative distance of every judged array, see
            `dualml.common.distance`.
        outside: the arrays beyond the margin.
    """

    #: Empty, because users do not construct it: `dualml.parity.compare` returns it.
    __signature__ = Signature()

    verdict: str
    reason: str
    sides: tuple[str, str]
    margin: float
    tolerance: str
    steps: int
    mapping: tuple[dict[str, str], ...]
    environment: Mapping[str, Mapping[str, str]]
    first: FirstDivergence | None = None
    phases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    reach: tuple[int, int] = (0, 0)
    lost: int = 0
    explanation: Mapping[str, Any] | None = None
    distances: Mapping[tuple[int, str, str], float] = field(default_factory=dict)
    outside: frozenset[tuple[int, str, str]] = frozenset()

    def __repr__(self) -> str:
        first = "" if self.first is None else f", first at {self.first.tensor}"
        return f"<Comparison: {self.verdict}{first}>"

    def _repr_markdown_(self) -> str:
        """Return the Markdown text that a notebook displays."""
        return self.paragraph()

    @property
    def equal(self) -> bool:
        """Whether the verdict is ``equal``."""
        return self.verdict == "equal"

    @property
    def worst(self) -> float:
        """The largest ratio of a distance to the rounding measured there; 0 if nothing was
        compared."""
        return max((float(p["ratio"]) for p in self.phases.values()), default=0.0)

    def describe(self) -> JsonObject:
        """Return the result as JSON, without `reach`, `lost`, `distances` and `outside`."""
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "sides": list(self.sides),
            "steps": self.steps,
            "margin": self.margin,
            "tolerance": self.tolerance,
            "worst_ratio": self.worst,
            "first": None if self.first is None else asdict(self.first),
            "phases": {phase: dict(worst) for phase, worst in self.phases.items()},
            "explanation": None if self.explanation is None else dict(self.explanation),
            "mapping": list(self.mapping),
            "text": {"en": self.paragraph("en"), "zh": self.paragraph("zh")},
            "notes": [{"key": note.key, **note.values} for note in self.notes],
            "environment": {side: dict(facts) for side, facts in self.environment.items()},
        }

    def paragraph(self, lang: Language = "en") -> str:
        """Describe the verdict and its evidence in a few sentences; ``en`` or ``zh``."""
        a, b = self.sides

        def notes(of_an_error: bool) -> list[str]:
            """Return the notes about an error, or all other notes."""
            return [
                format_message(lang, f"note.{note.key}", **note.values)
                for note in self.notes
                if (note.key in ERROR) == of_an_error
            ]

        sentences = [format_message(lang, f"verdict.{self.verdict.replace(' ', '_')}", a=a, b=b)]
        if self.first is not None:
            sentences += self._describe_divergence(self.first, lang)
        elif self.verdict == "equal":
            arrays = sum(int(worst["arrays"]) for worst in self.phases.values())
            steps, margin = format_count(lang, "steps", self.steps), f"{self.margin:g}"
            sentences.append(
                format_message(
                    lang,
                    "equal.evidence",
                    worst=f"{self.worst:.2g}",
                    arrays=arrays,
                    margin=margin,
                    steps=steps,
                )
            )
        elif self.reason != "both_raised":  # the errors themselves are reported
            sentences.append(format_message(lang, f"reason.{self.reason}"))
        sentences[1:1] = notes(True)
        sentences += notes(False)
        if self.tolerance == "bound" and self.phases and self.steps:
            sentences.append(format_message(lang, "tolerance.bound", margin=f"{self.margin:g}"))
        return (" " if lang == "en" else "").join(sentences)

    def _describe_divergence(self, first: FirstDivergence, lang: Language) -> list[str]:
        """Describe the first divergence: place, numbers, elements, and causes if they are known."""
        a, b = self.sides
        layer = first.layer or first.tensor
        shown = f"{layer} ({first.type})" if first.type else layer
        other = f" ({b}: {first.other})" if first.other not in ("", first.tensor) else ""
        sentences = [
            format_message(
                lang,
                "first.place",
                step=first.step,
                phase=format_message(lang, f"phase.{first.phase}"),
                layer=shown,
                tensor=first.tensor + other,
            )
        ]
        if first.shapes and first.kind in ("shape", "outputs"):
            shapes = [str(tuple(shape)) for shape in first.shapes]
            sentences.append(
                format_message(lang, "first.shape", a=a, b=b, left=shapes[0], right=shapes[1])
            )
        elif first.kind == "value":
            ratio = first.distance / first.envelope if first.envelope else float("inf")
            sentences.append(
                format_message(
                    lang,
                    "first.value",
                    distance=f"{first.distance:.1e}",
                    ratio=f"{ratio:.3g}",
                    envelope=f"{first.envelope:.1e}",
                    margin=f"{self.margin:g}",
                )
            )
            if first.outside:
                phase = format_message(lang, f"phase.{first.outside['phase']}")
                sentences.append(
                    format_message(lang, "first.outside", **{**first.outside, "phase": phase})
                )
        elif first.kind != "outputs":
            sentences.append(format_message(lang, f"first.{first.kind}", side=first.side))
        if first.elements:
            listed = (
                format_message(
                    lang,
                    "first.element",
                    index=e["index"],
                    a=a,
                    b=b,
                    left=f"{e[a]:.7g}",
                    right=f"{e[b]:.7g}",
                )
                for e in first.elements
            )
            sentences.append(
                format_message(
                    lang, "first.elements", elements=format_message(lang, "semicolon").join(listed)
                )
            )
        if self.explanation is not None:
            sentences += self._describe_causes(self.explanation, lang)
        return sentences

    def _describe_causes(self, explanation: Mapping[str, Any], lang: Language) -> list[str]:
        """Describe the first operations that differ, and the causes that explain them."""
        first = next(iter(explanation["causes"]), explanation)
        places = [
            format_place(lang, side, first[key])
            for side, key in zip(self.sides, ("place", "other"), strict=True)
        ]
        sentences = []
        if any(places):
            joined = format_message(lang, "semicolon").join(one for one in places if one)
            sentences.append(format_message(lang, "place.both", places=joined))
        sentences += describe_causes(lang, explanation, self.sides, self.steps)
        alterations = [one for cause in explanation["causes"] for one in cause["alterations"][:1]]
        return sentences + [
            format_message(lang, "first.entry", entry=one) for one in entries_about(alterations)
        ]
