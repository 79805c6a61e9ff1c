"""Sentences about a patch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from dualml.parity.models.messages import Language, format_message


def describe_patch(lang: Language, patch: Mapping[str, Any], side: str) -> list[str]:
    """Return sentences about a patch, see `dualml.parity.patches.finding.find_patch`: whether it
    makes both sides equal, where it is applied, what is left otherwise, or why there is none.

    Args:
        patch: result of the search, as a dict.
        side: name of the side that is the port, unless the patch says otherwise.
    """
    say, n = partial(format_message, lang), patch["tried"]
    side = patch.get("side", side)
    if patch["map"]:
        return [say("patch.map")]
    where = patch.get("folder")
    apply = [say("patch.apply", folder=where)] if patch["diff"] and where else []
    if patch["diff"] and "original" in patch:
        apply.insert(0, say("patch.of_first", **{key: patch[key] for key in ("port", "original")}))
    if patch["verdict"] == "equal":
        return [say("patch.equal", side=side, n=n), *apply]
    sentences = []
    if patch["diff"]:
        left = patch["left"] or {"step": "?", "phase": "forward", "tensor": "?"}
        phase = say(f"phase.{left['phase']}")
        sentences += [say("patch.closer", **{**left, "phase": phase, "side": side}), *apply]
    return [*sentences, say(f"patch.{patch['reason']}", file=patch["file"], n=n)]
