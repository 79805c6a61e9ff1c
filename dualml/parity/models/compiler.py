"""Explanations by a framework's compiler, as the parent process of a comparison states them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dualml.parity.models.sides import ResolvedSide


def explain_by_compiler(
    compiled: Sequence[ResolvedSide], results: Mapping[str, Mapping[str, Any] | None]
) -> dict[str, Any]:
    """Return the explanation of a difference that exists only where a model is compiled.

    Args:
        compiled: the sides that are compiled.
        results: label of a side → the result of the search for the smallest module that shows the
            difference; None if the search failed.

    Returns:
        An explanation without causes by mutation; ``compiler`` has a row for each compiled side:
            ``side``, ``mode``, ``plain`` (the mode that compiles nothing), ``tried`` (number of
            modules) and ``smallest``, see `dualml.parity.models.compiled_modules`.
    """
    rows = [
        {
            "side": side.label,
            "mode": side.mode,
            "plain": side.info.modes[0],
            **(results.get(side.label) or {"tried": 0, "smallest": None}),
        }
        for side in compiled
    ]
    return {
        "equal": False,
        "enough": False,
        "tried": [0, 0],
        "late": False,
        "evidence": [],
        "place": None,
        "other": None,
        "causes": [],
        "compiler": rows,
    }
