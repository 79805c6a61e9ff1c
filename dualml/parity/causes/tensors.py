"""Mutations of parameters that only one side trains, and outputs for buffers that a model
writes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from dualml.common.tensor_files import array_shape
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.runs import MutatedRun
from dualml.parity.models.trace import Trace
from dualml.parity.models.value_matching import TraceOperand


def add_buffer_outputs(
    now: MutatedRun, b: Trace, here: TraceOperand, there: TraceOperand, names: Mapping[str, str]
) -> None:
    """Add the values written to buffers that differ after the first step to ``final_values`` of
    ``here`` and ``there``."""
    back = {v.removeprefix("parameter:"): k.removeprefix("parameter:") for k, v in names.items()}
    for step, phase, name in now.comparison.outside:
        tensor = name.removeprefix("buffer/")
        if (step, phase) != (1, "state") or tensor == name:
            continue
        for side, trace, own in ((here, now.trace, tensor), (there, b, back.get(tensor, tensor))):
            array = trace.find_array("state", 1, f"buffer/{own}")
            same = (
                []
                if array is None
                else [
                    n
                    for n in side.arrays
                    if n.startswith("op:")
                    and prod(array_shape(side.arrays, n)) == array.size
                    and np.array_equal(side.arrays[n].ravel(), array.ravel())
                ]
            )
            side.final_values |= frozenset(same[-1:])


def training_mutations(a: Trace, b: Trace, names: Mapping[str, str]) -> list[Mutation]:
    """Return up to two mutations: one that freezes all parameters that only the first side trains,
    one that trains all that only the second does; parameters without a partner are left out."""
    there = {t.name: t.trained for t in b.tensors}
    back = {v: k for k, v in names.items()}
    found: dict[bool, list[str]] = {True: [], False: []}
    for one in a.tensors:
        partner = back.get(f"parameter:{one.name}", "").removeprefix("parameter:")
        if one.trained != there.get(partner, one.trained):
            found[one.trained].append(one.name)
    changes = [("freeze", tuple(found[True])), ("train", tuple(found[False]))]
    return [Mutation("parameters", action, (), "", "", value) for action, value in changes if value]
