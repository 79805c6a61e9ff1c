"""The result of every comparison: of two trials, two runs, two traces or two models.

`Comparison` has what all of them have: the verdict and its reason, the phases of an update with
the distance and the rounding envelope of their farthest tensor, the first divergence, causes and
notes. Its subclasses add what was compared, and how that is written as JSON:

- `TrialComparison` and `Serial` (`dualml.experiment.store.trial_comparison`): two trials of a run;
- `RunComparison` (`dualml.parity.against.outcome`): two runs, trial by trial;
- `ModelComparison` (`dualml.parity.models.comparison`): two models, or two traces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dualml.common.json_types import JsonObject
from dualml.common.version import __version__
from dualml.common.words import Messages
from dualml.experiment.verdict import AGREEING


@dataclass(frozen=True)
class FirstDivergence:
    """The first place where two sides differ by more than rounding explains.

    Attributes:
        step: from 1; 0 is before the first update.
        phase: ``data``, ``parameters``, ``forward``, ``loss``, ``gradient``, ``update`` or
            ``state``.
        tensor, other: the array's names on the two sides.
        distance, envelope: relative, see `dualml.common.distance`.
        after: the last step at which the phase was still inside; 0 if there is none.
        layer, type: the module and its class on the first side.
        kind: ``value``, ``shape``, ``outputs``, ``nan``, ``both_nan``, ``trained``, ``alone`` (a
            parameter) or ``raised``.
        shapes: shapes of the two arrays; None if there is none.
        elements: those that differ most: ``{"index": […], side: value, side: value}``.
        side: the side that has the NaN, that raised, or that does not train.
        outside: where the margin itself is exceeded, ``{"phase", "tensor", "ratio"}``, if only
            later: a small error begins at one layer and exceeds the margin at another.
    """

    step: int
    phase: str
    tensor: str
    distance: float
    envelope: float
    after: int = 0
    layer: str = ""
    type: str = ""
    other: str = ""
    kind: str = "value"
    shapes: tuple[tuple[int, ...], ...] | None = None
    elements: tuple[dict[str, Any], ...] = ()
    side: str = ""
    outside: dict[str, Any] | None = None

    def describe(self, *names: str) -> JsonObject:
        """Return a dict of the attributes with these names, with their values."""
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Note:
    """A remark beside the verdict.

    Attributes:
        key: key of its message.
        values: placeholder → value of the message.
    """

    key: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The verdict on two sides and what supports it.

    Attributes:
        sides: names of the two sides.
        verdict: ``equal``, ``statistically equal``, ``different`` or ``not comparable``.
        reason: code of the reason, such as ``inside_envelope``.
        evidence: numbers that support the reason.
        steps: number of updates that were compared.
        phases: phase of an update → its tensor with the largest ratio of the distance to the
            rounding envelope.
        first: the first divergence; None if there is none.
        explanation: causes of the difference, see `dualml.parity.causes.explainer`; None if not
            searched.
        notes: remarks beside the verdict.
        pairs: of two runs, the comparisons of their trials.
    """

    sides: tuple[str, str]
    verdict: str
    reason: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 0
    phases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    first: FirstDivergence | None = None
    explanation: Mapping[str, Any] | None = None
    notes: tuple[Note, ...] = ()
    pairs: tuple[Comparison, ...] = ()

    @property
    def versions(self) -> tuple[str, ...]:
        """Versions of dualml that made the two sides; here this version alone."""
        return (__version__,)

    @property
    def is_equal(self) -> bool:
        """Whether the two sides are equal or statistically equal."""
        return self.verdict in AGREEING

    @property
    def final_verdict(self) -> str:
        """The verdict that decides colour and exit code: here `verdict`; a subclass may be
        stricter."""
        return self.verdict

    def describe(self) -> JsonObject:
        """Return the comparison as JSON values. The base class raises `NotImplementedError`."""
        raise NotImplementedError

    def paragraphs(self, words: Messages) -> list[str]:
        """Return sentences in the language of ``words``, the verdict first and then its evidence;
        here the verdict alone."""
        return [words(f"verdict.{self.verdict.replace(' ', '_')}")]

    def paragraph(self, lang: str = "en") -> str:
        """Return the verdict and its evidence as one text of a few sentences, in English (``en``)
        or Chinese (``zh``)."""
        words = Messages(lang)
        return words.join_sentences(self.paragraphs(words))
