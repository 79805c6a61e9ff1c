"""Messages of the catalogue in both languages, for the command and the pages."""

from __future__ import annotations

from collections.abc import Mapping

from dualml.common.json_types import JsonMapping, JsonObject
from dualml.common.words import section_messages
from dualml.parity.diffs.compare import EntryResult
from dualml.parity.diffs.entry import DifferenceEntry, Lang


def format_silence(entry: DifferenceEntry, words: Mapping[str, str], suffix: str = "") -> str:
    """Return the word for a silent difference, for one the framework reports, or for no difference.

    Args:
        words: the messages of the section ``diffs``.
        suffix: ``.long`` selects the long form.
    """
    if entry.kind == "same":
        return words["same.long"] if suffix else words["none"]
    return words[("silent" if entry.silent else "told") + suffix]


def listing_heading(side: str, variant: str, words: Mapping[str, str]) -> str:
    """Return the heading of a code listing."""
    return words["code"].format(side=words[side], variant=words[f"code.{variant}"])


def is_silent(entry: DifferenceEntry) -> bool:
    """Return whether the entry describes a difference that neither framework reports."""
    return entry.silent and entry.kind != "same"


def table_cells(result: EntryResult, lang: Lang) -> tuple[str, str]:
    """Return two table cells: the effect, and the distance once both frameworks are made equal; the
    word for nothing where it was not measured or cannot be."""
    none = section_messages(lang, "diffs")["none"]
    if result.plain is None or result.equal is None:
        return none, none
    after = none if result.entry.after is None else result.equal.short_text(lang)
    return result.plain.short_text(lang), after


def measured_sentence(result: EntryResult, lang: Lang, *, brief: bool = False) -> str:
    """Describe the measurement of an entry in one line; both frameworks must have been measured.

    Args:
        brief: leave out the messages of errors.
    """
    words, entry = section_messages(lang, "diffs"), result.entry
    assert result.plain is not None
    assert result.equal is not None
    plain, equal = (
        (one.short_text if brief else one.text_in)(lang) for one in (result.plain, result.equal)
    )
    if entry.kind == "same" and result.plain.kind == "value":
        kind = "near"
    else:
        kind = result.plain.kind if result.plain.kind in ("value", "same") else "other"
    effect = words[f"differ.{kind}"].format(effect=plain)
    if entry.after is not None:
        return effect + words["join"] + words["equal.value"].format(effect=equal)
    return effect if entry.kind == "same" else effect + words["join"] + words["equal.none"]


def describe_entry(
    entry: DifferenceEntry, result: EntryResult | None, codes: JsonMapping
) -> JsonObject:
    """Return an entry as JSON: its data, its code and its measurement; ``measured`` is None unless
    both frameworks were measured, ``problem`` if the measurement agrees or was not made."""
    measured = None
    if result is not None and result.plain is not None and result.equal is not None:
        measured = {
            name: {"kind": seen.kind, "distance": seen.distance, "text": seen.text}
            for name, seen in (("plain", result.plain), ("equal", result.equal))
        }
    return {
        **entry.model_dump(mode="json"),
        "code": codes,
        "measured": measured,
        "problem": None if result is None else result.problem,
    }
