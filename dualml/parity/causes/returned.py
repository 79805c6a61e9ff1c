"""Enumerate mutations that return a model's outputs in another order."""

from __future__ import annotations

import re

from dualml.parity.causes.alteration import Alteration
from dualml.parity.causes.alterations import exchanges
from dualml.parity.models.trace import OUTPUT, Trace

#: Pattern of the names of outputs that a model returns as a tuple.
ONE = re.compile(re.escape(OUTPUT) + r"\[\d+\]")


def returned(trace: Trace) -> list[Alteration]:
    """Return mutations that swap two outputs of the same shape."""
    names = [name for name in trace.names("forward", 1) if ONE.fullmatch(name)]
    arrays = [trace.get("forward", 1, name) for name in names]
    shapes = [() if one is None else one.shape for one in arrays]
    return [Alteration("layout", "returned", (), "", "", order) for order in exchanges(shapes)]
