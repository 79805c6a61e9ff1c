"""A plan in words: a rank's part of the model in lines, slices, collectives."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualml.words import Words


@dataclass(frozen=True)
class LayerLine:
    """``right``: shape and slice of the largest parameter; ``split``: that is a slice."""

    text: str
    right: str = ""
    split: bool = False


def lines(plan: Mapping[str, Any], rank: int, words: Words) -> list[LayerLine]:
    """Of the rank's stages; each with a heading where the plan has several."""
    held = plan["ranks"][rank]
    listed: list[LayerLine] = []
    for stage in held.get("stages") or []:
        if len(plan["stages"]) > 1:
            listed.append(LayerLine(words("splits.stage", n=stage) + words("list.colon").rstrip()))
        listed += _stage(plan["stages"][stage], held.get("parameters") or {}, words)
    return listed


def _stage(
    layers: Sequence[str], parameters: Mapping[str, Mapping[str, Any]], words: Words
) -> Iterator[LayerLine]:
    """Layers without parameters stand beside the one before them."""
    lines: list[tuple[list[str], str, bool]] = []
    for layer in layers:
        own = [p for name, p in parameters.items() if name.rpartition(".")[0] == layer]
        if not own and lines:
            lines[-1][0].append(layer)
            continue
        largest = max(own, key=lambda p: math.prod(p["shape"]), default=None)
        shape = "×".join(map(str, largest["shape"])) if largest else ""
        part = str(largest["part"]) if largest else "whole"
        sliced = part != "whole"
        lines.append(([layer], f"{shape}  {slice_of(part, words)}" if sliced else shape, sliced))
    for names, right, sliced in lines:
        yield LayerLine(words("list.comma").join(names), right, sliced)


def slice_of(part: str, words: Words, *, blocks: bool = False) -> str:
    """``rows 1/2`` in the reader's language; with ``blocks`` also of how many blocks each."""
    match = re.fullmatch(r"(rows|columns) (\d+/\d+)(?: of each of (\d+) blocks)?", part)
    if match is None:
        return part
    text = words(f"splits.slice.{match[1]}", part=match[2])
    return words("splits.slice.blocks", part=text, n=match[3]) if blocks and match[3] else text


def span(names: Sequence[str]) -> str:
    """``conv1 … pool2``."""
    return " … ".join(dict.fromkeys([names[0], names[-1]])) if names else ""


def collective_name(kind: str, words: Words) -> str:
    """``all-reduce forward``."""
    return words.either(f"splits.collective.{kind.replace(' ', '_')}", kind)
