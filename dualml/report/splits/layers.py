"""Split plans in words: a rank's layers, parameter slices, collectives."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dualml.common.words import Messages


@dataclass(frozen=True)
class LayerLine:
    """One line of a rank's layers. ``right``: shape and slice of the largest parameter; ``split``:
    whether the parameter is a slice."""

    text: str
    right: str = ""
    split: bool = False


def layer_lines(plan: Mapping[str, Any], rank: int, words: Messages) -> list[LayerLine]:
    """Return the layers of a rank's stages, with a heading per stage if the plan has several.
    Layers without parameters are appended to the line before them."""
    held, listed = plan["ranks"][rank], []
    parameters = held.get("parameters") or {}
    for stage in held.get("stages") or ():
        if len(plan["stages"]) > 1:
            listed.append(LayerLine(words("splits.stage", n=stage) + words("list.colon").rstrip()))
        first = len(listed)
        for layer in plan["stages"][stage]:
            own = [p for name, p in parameters.items() if name.rpartition(".")[0] == layer]
            if own or len(listed) == first:
                listed.append(_line(layer, own, words))
            else:
                text = words("list.comma").join([listed[-1].text, layer])
                listed[-1] = replace(listed[-1], text=text)
    return listed


def _line(layer: str, parameters: Sequence[Mapping[str, Any]], words: Messages) -> LayerLine:
    """Return the line of a layer with the shape of its largest parameter, and the slice of it that
    the rank has if it is sharded."""
    if not parameters:
        return LayerLine(layer)
    largest = max(parameters, key=lambda p: math.prod(p["shape"]))
    shape, part = "×".join(map(str, largest["shape"])), str(largest["part"])
    split = part != "whole"
    return LayerLine(layer, f"{shape}  {format_slice(part, words)}" if split else shape, split)


def format_slice(part: str, words: Messages, *, blocks: bool = False) -> str:
    """Return a slice, e.g. ``rows 1/2``, in the reader's language; with ``blocks`` also the number
    of blocks that are sliced alike. A text of another form is returned unchanged."""
    one = r"(\d+/\d+)"
    match = re.fullmatch(rf"(rows|columns) {one}(?: and {one})?(?: of each of (\d+) blocks)?", part)
    if match is None:
        return part
    both = words("splits.slice.twice", first=match[2], last=match[3]) if match[3] else match[2]
    text = words(f"splits.slice.{match[1]}", part=both)
    return words("splits.slice.blocks", part=text, n=match[4]) if blocks and match[4] else text


def format_span(names: Sequence[str]) -> str:
    """Return the first and the last name, e.g. ``conv1 … pool2``; a single name alone, empty
    without names."""
    return " … ".join(dict.fromkeys([names[0], names[-1]])) if names else ""


def collective_name(kind: str, words: Messages) -> str:
    """Return the name of a collective in the reader's language, e.g. ``all-reduce forward``."""
    return words.get(f"splits.collective.{kind.replace(' ', '_')}", kind)
