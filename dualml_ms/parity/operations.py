"""Tracing of every operator that a cell runs in PyNative mode, into a `Tape`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import mindspore as ms
from mindspore.utils import MsDispatchMode

import dualml
import dualml_ms
from dualml.parity.models.operations import Tape, caller_frame

#: Lines of these packages are not the user's.
SKIP = tuple(
    os.path.join(os.path.dirname(str(file)), "")
    for file in (ms.__file__, dualml_ms.__file__, dualml.__file__)
)
#: Queries about a tensor.
SILENT = ("typeof", "make_range", "shape", "dtype")


class OperationTracer(MsDispatchMode):
    """A mode, used as a context manager, that records in ``tape`` each operator with its inputs,
    settings and outputs.

    MindSpore calls ``__ms_dispatch__`` for every operator of PyNative mode. A slice that is a view
    is no operator: `Tensor.__getitem__` is replaced inside the block to record it as ``getitem``.
    """

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self.tape = tape

    def __enter__(self) -> OperationTracer:
        own, tape = ms.Tensor.__getitem__, self.tape

        def traced_getitem(tensor: ms.Tensor, index: Any) -> ms.Tensor:
            result = own(tensor, index)
            if id(result) not in tape.sources:  # a view, not made by an operator
                tape.record_call("getitem", [tensor], {"index": index}, [result], caller_frame())
            return result

        ms.Tensor.__getitem__ = traced_getitem
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        del ms.Tensor.__getitem__  # the base class's method becomes visible again
        return super().__exit__(*error)

    def __ms_dispatch__(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        primitive, given = None, list(args)
        if len(given) == 3 and isinstance(given[0], ms.ops.Primitive):
            primitive, given = given[0], list(given[2])
        inputs = find_tensors((given, kwargs or {}))
        sources = [] if func.name in SILENT else [self.tape.find_source(one) for one in inputs]
        result = func(*args, **(kwargs or {}))
        outputs = [] if func.name in SILENT else find_tensors(result)
        if outputs:
            self.tape.record_call(
                func.name,
                inputs,
                operator_settings(primitive, given, kwargs or {}),
                outputs,
                caller_frame(),
                sources,
            )
        return result


def find_tensors(value: Any) -> list[ms.Tensor]:
    """Return all tensors in an argument or a result, in mappings, lists and tuples at any depth, in
    order; an empty list for none."""
    if isinstance(value, ms.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [one for inner in value for one in find_tensors(inner)]
    return []


def operator_settings(
    primitive: Any, given: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return an operator's arguments that contain no tensor: the primitive's attributes by name if
    it has some, else positional ones as ``argument 0``, …; keyword arguments in both cases."""
    known = (
        {}
        if primitive is None
        else {name: value for name, value in primitive.attrs.items() if not find_tensors(value)}
    )
    if not known:
        known = {f"argument {i}": value for i, value in enumerate(given) if not find_tensors(value)}
    return {**known, **{name: value for name, value in kwargs.items() if not find_tensors(value)}}
