"""The patch of a comparison: whether one is searched for, and how it is said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dualml.common.files import read_json
from dualml.common.json_types import JsonObject
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.sides import ResolvedSide
from dualml.parity.patches.finding import find_patch

#: Notes about a comparison that found other pairs of parameters than it was given.
MAP_NOTES = ("exchanged", "interleaved")


def add_patch(
    folder: Path, job: Mapping[str, Any], sides: Sequence[ResolvedSide], found: ModelComparison
) -> ModelComparison:
    """Return a comparison with the patch of its port (see `find_port`), searched now, or with the
    reason why there is none; no file of the user's is changed.

    Args:
        folder: folder of the comparison, with both traces.
        job: job with which the comparison began; its map is the user's.
    """
    notes = {note.key for note in found.notes}
    if found.equal and notes & {*MAP_NOTES}:
        before = json.loads(json.dumps(job["map"]))  # as it is read back
        partners = changed_pairs(before, read_json(folder / "job.json")["map"])
        row = without_patch("", found.verdict) | {"map": map_text(partners)}
        return replace(found, patch=row)
    if found.verdict != "different":
        return replace(found, patch=without_patch("not_needed" if found.equal else "no_causes"))
    if any(side.is_compiled for side in sides):
        return replace(found, patch=without_patch("compiled"))
    if not (found.explanation or {}).get("causes"):
        return replace(found, patch=without_patch("no_causes"))
    return replace(found, patch=find_patch(folder, sides, found))


def without_patch(reason: str, verdict: str = "none") -> JsonObject:
    """Return the JSON of a patch that changes no file.

    Args:
        reason: message key of why there is none.
        verdict: verdict of the comparison, ``none`` if no patch was tried.
    """
    empty = {"file": "", "diff": "", "folder": "", "map": "", "tried": 0, "left": None}
    return {"verdict": verdict, "reason": reason, **empty}


def changed_pairs(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of the map ``after`` that ``before`` lacks or has with another partner."""
    return {name: partner for name, partner in after.items() if before.get(name) != partner}


def map_text(partners: Mapping[str, Any]) -> str:
    """Return a map of parameters as the TOML text that ``--map`` reads; empty for an empty map."""
    rows = (
        f"{json.dumps(name)} = {json.dumps(partner, ensure_ascii=False)}\n"
        for name, partner in partners.items()
    )
    return "".join(rows)
