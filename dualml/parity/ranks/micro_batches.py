"""Join the micro-batches of an accumulated step, so that it can be compared with a whole one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from dualml.common.tensor_files import LazyArrays, array_shape
from dualml.parity.models.trace import Trace, array_key, count_calls, split_number
from dualml.parity.ranks.shards import join_batch


def join_calls(trace: Trace) -> Trace:
    """Return a copy of a trace whose model is called once in each step, with the outputs of several
    calls joined along the first axis when they are read; operations are left out.

    A module that each of these calls uses several times keeps as many outputs. A step in which some
    module is not used equally often by each call stays as it is.
    """
    arrays, order = LazyArrays(), []
    envelope = None if trace.envelope is None else dict(trace.envelope)
    for key in trace.arrays:
        if not key.startswith("forward/"):
            add_lazily(arrays, key, trace.arrays, [key])
    for step in range(1, len(trace.order) + 1):
        names = trace.names("forward", step)
        groups = group_calls(names, count_calls(trace, step)) or {name: [name] for name in names}
        for name, members in groups.items():
            keys = [array_key("forward", step, one) for one in members]
            key = array_key("forward", step, name)
            add_lazily(arrays, key, trace.arrays, keys)
            if envelope is not None:
                widths = [trace.envelope_width("forward", step, one) for one in members]
                envelope[key] = max(widths)
        order.append(list(groups))
    # Operations are those of one micro-batch.
    return replace(trace, arrays=arrays, order=order, envelope=envelope, operations=[])


def add_lazily(
    arrays: LazyArrays, key: str, source: Mapping[str, NDArray[Any]], keys: Sequence[str]
) -> None:
    """Add to ``arrays``, under ``key``, the arrays of ``source`` under ``keys``, joined along their
    first axis when they are read; the first one alone if their shapes do not fit."""
    shapes = [array_shape(source, one) for one in keys]
    fit = len(keys) > 1 and len({shape[1:] for shape in shapes}) == 1 and all(shapes)
    if fit:
        shape = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        arrays.add(key, shape, partial(read_joined, source, keys))
    else:
        arrays.add(key, shapes[0], partial(source.__getitem__, keys[0]))


def read_joined(source: Mapping[str, NDArray[Any]], keys: Sequence[str]) -> NDArray[Any]:
    """Read the arrays under ``keys``, whose shapes must fit, and return them joined along their
    first axis."""
    joined = join_batch([source[key] for key in keys])
    assert joined is not None
    return joined


def group_calls(names: Sequence[str], calls: int) -> Mapping[str, list[str]]:
    """Return name of an output in the joined trace → names of its parts, one for each of ``calls``
    calls of the model, in the order of their first part; empty if there is only one call, or if
    some module is not used equally often by each."""
    if calls < 2:
        return {}
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for name in names:
        plain, number = split_number(name)
        found[plain][number] = name
    groups: dict[str, list[str]] = {}
    for plain, members in found.items():
        each, rest = divmod(len(members), calls)
        if rest or sorted(members) != list(range(1, len(members) + 1)):
            return {}
        head, bracket, tail = plain.partition("[")
        for call in range(1, each + 1):
            name = (head if call == 1 else f"{head}#{call}") + bracket + tail
            groups[name] = [members[call + each * part] for part in range(calls)]
    place = {name: at for at, name in enumerate(names)}
    return dict(sorted(groups.items(), key=lambda item: place[item[1][0]]))
