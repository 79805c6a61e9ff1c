"""The catalogue's own words in both languages, for the command and the pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualml.diffs.compare import Found
from dualml.diffs.entry import Entry, Lang
from dualml.words import phrases


def mark(entry: Entry, words: Mapping[str, str], suffix: str = "") -> str:
    """Whether anything tells the user; nothing has to where there is no difference."""
    if entry.kind == "same":
        return words["same.long"] if suffix else words["none"]
    return words[("silent" if entry.silent else "told") + suffix]


def heading(side: str, variant: str, words: Mapping[str, str]) -> str:
    """What stands above a listing."""
    return words["code"].format(side=words[side], variant=words[f"code.{variant}"])


def is_silent(entry: Entry) -> bool:
    return entry.silent and entry.kind != "same"


def cells(found: Found, lang: Lang) -> tuple[str, str]:
    """Effect, and distance once both are made equal, as a table has them."""
    none = phrases(lang, "diffs")["none"]
    if found.plain is None or found.equal is None:
        return none, none
    after = none if found.entry.after is None else found.equal.short(lang)
    return found.plain.short(lang), after


def sentence(found: Found, lang: Lang, *, brief: bool = False) -> str:
    """What was measured of an entry, in one line; ``brief`` leaves out what an error said."""
    words, entry = phrases(lang, "diffs"), found.entry
    assert found.plain is not None
    assert found.equal is not None
    plain, equal = ((one.short if brief else one.told)(lang) for one in (found.plain, found.equal))
    if entry.kind == "same" and found.plain.kind == "value":
        kind = "near"
    else:
        kind = found.plain.kind if found.plain.kind in ("value", "same") else "other"
    said = words[f"differ.{kind}"].format(effect=plain)
    if entry.after is not None:
        return said + words["join"] + words["equal.value"].format(effect=equal)
    return said if entry.kind == "same" else said + words["join"] + words["equal.none"]


def described(entry: Entry, found: Found | None, codes: Mapping[str, Any]) -> dict[str, Any]:
    """An entry for scripts: its data, its code, and what was measured."""
    measured = None
    if found is not None and found.plain is not None and found.equal is not None:
        measured = {
            name: {"kind": seen.kind, "distance": seen.distance, "text": seen.text}
            for name, seen in (("plain", found.plain), ("equal", found.equal))
        }
    return {
        **entry.model_dump(mode="json"),
        "code": codes,
        "measured": measured,
        "problem": None if found is None else found.problem,
    }
