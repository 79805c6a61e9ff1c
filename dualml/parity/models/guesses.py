"""Partners that were a guess: where only the guess was wrong, the models are not different."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualml.parity.models.comparison import Comparison

PREFIX = "parameter:"


def better(found: Comparison, explanation: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Other partners with which the two sides are equal, if all that differs is which of several
    parameters of one shape is which: gate and up, the queries' and the keys' matrix.

    Returns:
        PyTorch's name → MindSpore's, of those whose partners change; None where an explanation
        needs more than exchanges of parameters that were paired by their order alone.
    """
    if explanation is None or not explanation["equal"] or not explanation["causes"]:
        return None
    pairs = {pair["a"]: pair["b"] for pair in found.mapping if pair["how"] == "order"}
    changed: dict[str, str] = {}
    for cause in explanation["causes"]:
        swaps = [one for one in cause["alterations"] if one["action"] == "parameters"]
        if not swaps:
            return None
        x, y = (str(swaps[0][key]).removeprefix(PREFIX) for key in ("old", "value"))
        if x not in pairs or y not in pairs:
            return None
        pairs[x], pairs[y] = pairs[y], pairs[x]
        changed |= {x: pairs[x], y: pairs[y]}
    return changed
