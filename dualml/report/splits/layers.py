"""A rank's part of a model in lines: layers with parameters, what follows them, their slices."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualml.report.words import Words


@dataclass(frozen=True)
class Line:
    """``title``: a stage's heading. ``right``: shape and slice of the largest parameter."""

    text: str
    right: str = ""
    title: bool = False
    split: bool = False


def lines(plan: Mapping[str, Any], rank: int, words: Words) -> list[Line]:
    """Of the rank's stages; with headings where it has several."""
    told = plan["ranks"][rank]
    mine = told.get("stages") or []
    made: list[Line] = []
    for stage in mine:
        if len(plan["stages"]) > 1:
            made.append(Line(words("splits.stage", n=stage), title=True))
        made += _stage(plan["stages"][stage], told.get("parameters") or {}, words)
    return made


def _stage(
    names: Sequence[str], parameters: Mapping[str, Mapping[str, Any]], words: Words
) -> list[Line]:
    """Layers without parameters stand beside the one before them."""
    made: list[tuple[list[str], str, bool]] = []
    for name in names:
        found = [p for key, p in parameters.items() if key.rpartition(".")[0] == name]
        if not found and made:
            made[-1][0].append(name)
            continue
        largest = max(found, key=lambda p: math.prod(p["shape"]), default=None)
        shape = "×".join(map(str, largest["shape"])) if largest else ""
        part = str(largest["part"]) if largest else "whole"
        cut = part != "whole"
        made.append(([name], f"{shape}  {sliced(part, words)}" if cut else shape, cut))
    return [Line(words("list.comma").join(text), right, split=cut) for text, right, cut in made]


def sliced(part: str, words: Words, *, blocks: bool = False) -> str:
    """``rows 1/2`` in the reader's language; with ``blocks`` also of how many blocks each."""
    found = re.fullmatch(r"(rows|columns) (\d+/\d+)(?: of each of (\d+) blocks)?", part)
    if found is None:
        return part
    told = words(f"splits.slice.{found[1]}", part=found[2])
    return words("splits.slice.blocks", part=told, n=found[3]) if blocks and found[3] else told


def span(names: Sequence[str]) -> str:
    """``conv1 … pool2``."""
    return " … ".join(dict.fromkeys([names[0], names[-1]])) if names else ""
