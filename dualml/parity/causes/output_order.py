"""Enumerate mutations that return a model's outputs in another order."""

from __future__ import annotations

import re

from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.tensor_mutations import pairwise_swaps
from dualml.parity.models.trace import OUTPUT, Trace

#: Pattern of the names of outputs that a model returns as a tuple.
TUPLE_OUTPUT = re.compile(re.escape(OUTPUT) + r"\[\d+\]")


def output_order_mutations(trace: Trace) -> list[Mutation]:
    """Return mutations that swap two outputs of the same shape, for a model that returns a tuple;
    else an empty list."""
    names = [name for name in trace.names("forward", 1) if TUPLE_OUTPUT.fullmatch(name)]
    arrays = [trace.find_array("forward", 1, name) for name in names]
    shapes = [() if one is None else one.shape for one in arrays]
    return [Mutation("layout", "returned", (), "", "", order) for order in pairwise_swaps(shapes)]
