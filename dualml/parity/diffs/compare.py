"""Compare what two probes returned, and check the result against the catalogue entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.distance import distance as of_numbers
from dualml.common.words import all_languages, section_messages
from dualml.parity.diffs import VARIANTS
from dualml.parity.diffs.entry import DifferenceEntry, Lang

Probed = tuple[str, Any]  # ("arrays", name → array), ("raised", text), ("died", text)


@dataclass(frozen=True)
class VariantOutcome:
    """The difference between the two frameworks for one variant of an entry.

    Attributes:
        kind: ``same`` or the kind of difference: ``value``, ``shape``, ``type``, ``raises``,
            ``nan``; also ``both raise``, and ``died`` if a probe terminated its process.
        distance: the largest relative distance of any array; infinite where no distance is defined.
        text: the result as English text with numbers.
        zh: the Chinese text; empty if it equals ``text``.
    """

    kind: str
    distance: float
    text: str
    zh: str = ""

    def text_in(self, lang: Lang = "en") -> str:
        """Return the result as text in a language."""
        return (self.zh or self.text) if lang == "zh" else self.text

    def short_text(self, lang: Lang = "en") -> str:
        """Return the result as text, without the message of an error."""
        cut = self.kind in ("raises", "both raise", "died")
        return (
            self.text_in(lang).replace("：", ":").partition(":")[0] if cut else self.text_in(lang)
        )


@dataclass(frozen=True)
class EntryResult:
    """The measured result of an entry on this machine.

    Attributes:
        plain, equal: the difference as users write the code, and with the remedy applied; None if a
            framework is missing.
        problem: how the measurement contradicts the entry; None if it agrees.
    """

    entry: DifferenceEntry
    plain: VariantOutcome | None
    equal: VariantOutcome | None
    problem: str | None

    def problem_in(self, lang: Lang = "en") -> str | None:
        """Return `problem` in a language; None if the measurement agrees with the entry, or was not
        made."""
        if self.plain is None or self.equal is None:
            return self.problem
        return describe_problem(self.entry, self.plain, self.equal, lang)


def judge_entry(entry: DifferenceEntry, probed: Mapping[str, Mapping[str, Probed]]) -> EntryResult:
    """Compare the probe results of both frameworks, and check them against the entry.

    Args:
        probed: framework → variant → result; without both frameworks nothing is compared.
    """
    if not {"torch", "mindspore"} <= set(probed):
        return EntryResult(entry, None, None, None)
    plain, equal = (compare_variant(probed["torch"][v], probed["mindspore"][v]) for v in VARIANTS)
    return EntryResult(entry, plain, equal, describe_problem(entry, plain, equal))


def compare_variant(torch: Probed, mindspore: Probed) -> VariantOutcome:
    """Compare the results of the two frameworks for one variant: arrays if both returned some, else
    which one died or raised."""
    sides = {"torch": torch, "MindSpore": mindspore}
    for name, (kind, why) in sides.items():
        if kind == "died":
            return make_outcome("died", "died", name=name, why=why)
    raised = [f"{name} {error}" for name, (kind, error) in sides.items() if kind == "raised"]
    if len(raised) == 2:
        return make_outcome("both raise", "both_raise", errors="; ".join(raised))
    for name, (kind, error) in sides.items():
        if kind == "raised":
            return make_outcome("raises", "raises", name=name, error=error)
    return compare_arrays(torch[1], mindspore[1])


def compare_arrays(a: Mapping[str, NDArray[Any]], b: Mapping[str, NDArray[Any]]) -> VariantOutcome:
    """Compare PyTorch's arrays ``a`` with MindSpore's arrays ``b``, by name.

    ``nan`` if only one side is finite throughout; ``type`` only if all numbers are equal.
    """
    if a.keys() != b.keys():
        return make_outcome("shape", "keys", torch=sorted(a), mindspore=sorted(b))
    for key in a:
        if a[key].shape != b[key].shape:
            return make_outcome("shape", "against", torch=a[key].shape, mindspore=b[key].shape)
    finite = [all(is_finite(one) for one in side.values()) for side in (a, b)]
    if finite[0] != finite[1]:
        return make_outcome("nan", "nan", name="MindSpore" if finite[0] else "torch")
    far = max((array_distance(a[key], b[key]) for key in a), default=0.0)
    for key in a:
        if far == 0 and a[key].dtype != b[key].dtype:
            return make_outcome("type", "against", 0.0, torch=a[key].dtype, mindspore=b[key].dtype)
    return VariantOutcome("value" if far else "same", far, format_distance(far))


def make_outcome(kind: str, key: str, far: float = np.inf, **values: object) -> VariantOutcome:
    """Make an outcome whose text is the message ``diffs.outcome.KEY`` in both languages; ``far`` is
    its distance."""
    texts = all_languages(f"diffs.outcome.{key}", **values)
    return VariantOutcome(kind, far, texts["en"], texts["zh"])


def is_finite(array: NDArray[Any]) -> bool:
    """Return whether an array has no infinity and no NaN; True for integers and strings."""
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def array_distance(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Return the relative distance of two arrays, see `dualml.common.distance`.

    Strings are equal (0) or infinitely far apart.
    """
    if a.dtype.kind in "US" or b.dtype.kind in "US":
        return 0.0 if np.array_equal(a, b) else np.inf
    if a.dtype.kind == "c" or b.dtype.kind == "c":
        a, b = (np.stack([one.real, one.imag]) for one in (a, b))
    with np.errstate(invalid="ignore"):  # ∞ − ∞: not finite, so infinitely far apart
        return of_numbers(a, b)


def format_distance(far: float) -> str:
    """Format a distance for people: ``0``, ``1.7e-4``, ``0.98``, ``∞``.

    >>> [format_distance(x) for x in (0.0, 1.74e-4, 0.981)]
    ['0', '1.7e-4', '0.98']
    """
    if not np.isfinite(far):
        return "∞"
    if far == 0 or far >= 0.01:
        return f"{far:.2g}"
    mantissa, _, exponent = f"{far:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def describe_problem(
    entry: DifferenceEntry, plain: VariantOutcome, equal: VariantOutcome, lang: Lang = "en"
) -> str | None:
    """Describe how the measurement contradicts the entry; None if it agrees."""

    def format_mismatch(what: str, seen: VariantOutcome, bound: float = 0.0) -> str:
        """Format the message about one contradiction."""
        return section_messages(lang, "diffs.mismatch")[what].format(
            bound=f"{bound:g}", kind=entry.kind, found=seen.kind, text=seen.text_in(lang)
        )

    for seen in (plain, equal):
        if seen.kind == "died":
            return seen.text_in(lang)
    if entry.kind == "same":
        if plain.kind not in ("same", "value") or plain.distance > entry.at_least:
            return format_mismatch("same", plain, entry.at_least)
    elif plain.kind != entry.kind:
        return format_mismatch("kind", plain)
    elif entry.kind == "value" and plain.distance < entry.at_least:
        return format_mismatch("value", plain, entry.at_least)
    if entry.after is not None and not equal.distance <= entry.after:
        return format_mismatch("after", equal, entry.after)
    return None
