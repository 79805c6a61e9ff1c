"""Tracing of every torch function that a model calls, into a `Tape`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

import dualml
import dualml_torch
from dualml.parity.models.operations import Tape, caller_frame
from dualml_torch.algorithms.parts.attention import attention

#: Packages whose lines are not the user's; torchvision's count as the user's.
SKIP = tuple(
    os.path.join(os.path.dirname(str(file)), "")
    for file in (torch.__file__, dualml_torch.__file__, dualml.__file__)
)
#: Functions that change their first argument; some return nothing.
ASSIGNS = ("__setitem__", "copy_", "fill_", "zero_")
#: Common argument types that contain no tensor.
PLAIN = frozenset((int, float, bool, str, type(None), slice, torch.dtype))
#: Properties that are computations.
PROPERTIES = ("T", "mT", "H", "mH", "real", "imag", "data")


class OperationTracer(TorchFunctionMode):
    """A mode, used as a context manager, that records in ``tape`` each call that returns tensors,
    with its inputs, settings and outputs.

    Args:
        fused: name of a function → one that computes it by other functions; these are recorded in
            its place, as for those in `PARTS`.
        keeps_attention: whether fused attention is recorded as one call, see `find_parts`.
    """

    def __init__(
        self,
        tape: Tape,
        fused: Mapping[str, Callable[..., Any]] | None = None,
        keeps_attention: bool = False,
    ) -> None:
        super().__init__()
        self.tape, self.fused, self.keeps_attention = tape, fused or {}, keeps_attention

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = operation_name(func)
        parts = self.fused.get(name) or find_parts(name, args, kwargs, self.keeps_attention)
        if parts is not None:
            with self, contextlib.suppress(NotImplementedError):
                return parts(*args, **kwargs)
        inputs = find_tensors((args, kwargs))
        if any(map(torch._C._functorch.is_functorch_wrapped_tensor, inputs)):
            return func(*args, **kwargs)  # no values inside of vmap or grad
        # Before the call: it may overwrite them.
        sources = [self.tape.find_source(one) for one in inputs] if name else []
        result = self.call(func, name, args, kwargs)
        outputs = find_tensors(args[0] if name in ASSIGNS else result) if name else []
        if outputs:
            given = {
                k: v
                for k, v in BoundCall(func, name, args, kwargs).values.items()
                if not find_tensors(v)
            }
            self.tape.record_call(name, inputs, given, outputs, caller_frame(), sources)
        return result

    def call(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return ``func(*args, **kwargs)``; subclasses may change the call."""
        return func(*args, **kwargs)


def find_tensors(value: Any) -> list[torch.Tensor]:
    """Return all tensors in an argument or a result, at any depth, in order; an empty list for
    none."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [one for part in value for one in find_tensors(part)]
    if type(value) in PLAIN:
        return []
    if type(value) is dict:
        return [one for part in value.values() for one in find_tensors(part)]
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]


def operation_name(func: Any) -> str:
    """Return the name of an operation, such as ``conv2d``; an empty string for queries about a
    tensor and functions that only concern gradients, which are not recorded."""
    name: str = getattr(func, "__name__", "")
    if name == "__get__":
        owner: str = getattr(getattr(func, "__self__", None), "__name__", "")
        return owner if owner in PROPERTIES else ""
    if func in DISPATCHED:
        return DISPATCHED[func]
    return "" if name in SILENT else name


#: Queries about a tensor, and functions that only concern gradients.
SILENT = frozenset(
    (
        "dim", "size", "numel", "stride", "is_floating_point", "is_complex", "is_contiguous",
        "item", "tolist", "numpy", "element_size", "data_ptr", "storage_offset", "requires_grad_",
        "register_hook", "backward", "retain_grad", "get_device", "is_same_size", "__len__",
        "__bool__", "__float__", "__int__", "__set__", "__repr__", "__format__", "__hash__",
        "__contains__",
    )
)  # fmt: skip
#: Pooling functions are all named ``fn``.
DISPATCHED = {
    value: name
    for name, value in vars(functional).items()
    if callable(value) and getattr(value, "__qualname__", "").startswith("boolean_dispatch")
}


def without_dispatch(function: FunctionType) -> Callable[..., Any]:
    """Return a copy of a function of torch that skips its own dispatch, so that the calls inside it
    are traced; keyword-only defaults are not copied."""
    names = {"has_torch_function": lambda given: False}
    return FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


def trace_inside(function: Any) -> Callable[..., Any]:
    """Return a copy of a function, with its keyword defaults, whose inner calls are traced."""
    copied = without_dispatch(function)
    copied.__kwdefaults__ = function.__kwdefaults__  # type: ignore[attr-defined]
    return copied


ATTENTION = "scaled_dot_product_attention"
#: Functions that are whole models: the calls inside are traced instead.
PARTS: dict[str, Callable[..., Any]] = {
    "multi_head_attention_forward": trace_inside(functional.multi_head_attention_forward),
    ATTENTION: attention,
}
#: Position of attention's argument ``dropout_p``.
DROPOUT_POSITION = 4


def find_parts(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], keeps_attention: bool
) -> Callable[..., Any] | None:
    """Return the function that computes the function ``name`` by several calls, from `PARTS`; None
    for a function that is called, and traced, as it is.

    Args:
        keeps_attention: whether fused attention is called as it is. With a Dropout inside it never
            is, because a kernel draws its own random numbers.
    """
    if name == ATTENTION and keeps_attention:
        passed = args[DROPOUT_POSITION] if len(args) > DROPOUT_POSITION else 0.0
        return PARTS[name] if kwargs.get("dropout_p", passed) else None
    return PARTS.get(name)


class BoundCall:
    """The arguments of a call by name, with positions to change them.

    Attributes:
        values: name → value, with the defaults of what was not passed.
    """

    def __init__(
        self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self.args, self.kwargs = list(args), dict(kwargs)
        self.positions: dict[str, int | slice] = {}
        # The original of a wrapped function.
        func = getattr(func, "original", func)
        names, defaults, lists = find_signature(
            func, name, argument_kinds(args), tuple(sorted(kwargs))
        )
        self.values: dict[str, Any] = dict(defaults)
        for i, value in enumerate(args):
            one = names[i] if i < len(names) else f"argument {i}"
            if one in lists and i == len(names[: names.index(one)]) and are_integers(args[i:]):
                self.positions[one] = slice(i, len(args))
                self.values[one] = list(args[i:])
                break
            self.positions[one] = i
            self.values[one] = value
        self.values |= kwargs

    def set_argument(self, name: str, value: Any) -> None:
        """Replace the argument called ``name`` by ``value`` in place, where the call passed it, in
        `args` or `kwargs`; one that it did not pass becomes a keyword argument."""
        at = self.positions.get(name)
        if at is None:
            self.kwargs[name] = value
        elif isinstance(at, slice):
            self.args[at] = [tuple(value)] if isinstance(value, list | tuple) else [value]
        else:
            self.args[at] = value
        self.values[name] = value


def argument_kinds(args: Sequence[Any]) -> str:
    """Return one letter per positional argument: t(ensor), n(umber, booleans too), l(ist or tuple),
    a(ny) for None, o(ther)."""
    return "".join(
        "a"
        if one is None
        else "t"
        if isinstance(one, torch.Tensor)
        else "n"
        if isinstance(one, int | float)
        else "l"
        if isinstance(one, list | tuple)
        else "o"
        for one in args
    )


def are_integers(args: Sequence[Any]) -> bool:
    """Return whether there are arguments and all of them are integers."""
    return len(args) > 0 and all(isinstance(one, int) and not isinstance(one, bool) for one in args)


@functools.cache
def find_signature(
    func: Any, name: str, given: str, named: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[str, Any], frozenset[str]]:
    """Return the names of an operation's arguments in order, their defaults by name, and a set with
    the last positional argument if it may take several integers as its list. All are empty for an
    unknown operation.

    Args:
        given: kinds of the positional arguments, see `argument_kinds`.
        named: names of the keyword arguments.
    """
    if isinstance(func, FunctionType):
        try:
            known = inspect.signature(func)
        except ValueError:  # a wrapper around a builtin
            known = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
        if not any(p.kind == p.VAR_POSITIONAL for p in known.parameters.values()):
            defaults = {
                n: p.default
                for n, p in known.parameters.items()
                if p.default is not p.empty and not callable(p.default)
            }
            return tuple(known.parameters), defaults, frozenset()
    if func in DISPATCHED:
        inner = inspect.signature(getattr(functional, f"_{name}", func))
        defaults = {n: p.default for n, p in inner.parameters.items() if p.default is not p.empty}
        return tuple(inner.parameters), defaults, frozenset()
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name.strip('_')}"):
        arguments = schema.arguments
        names = [one.name for one in arguments]
        placed = [one for one in arguments if not one.kwarg_only]
        several = bool(placed) and "List[int]" in str(placed[-1].type) and given[-1:] == "n"
        if len(given) > len(placed) and not several:
            continue
        if any(one not in names for one in named):
            continue
        types = [str(one.type) for one in arguments]
        lists = frozenset(n for n, t in zip(names, types, strict=True) if "List[int]" in t)
        if all(
            accepts_kind(kind, kind_of, n in lists)
            for kind, kind_of, n in zip(given, types, names, strict=False)
        ):
            defaults = {one.name: one.default_value for one in arguments if one.has_default_value()}
            # `permute(0, 2, 1)` is one list; `conv2d(x, w, b, 2, 1)` has a stride and a padding.
            return tuple(names), defaults, lists & {one.name for one in placed[-1:]}
    return (), {}, frozenset()


def accepts_kind(kind: str, wanted: str, is_list: bool) -> bool:
    """Return whether an argument of a kind, a letter of `argument_kinds`, can be passed where a
    schema wants the type ``wanted``; ``is_list``: that is a list of integers."""
    if kind == "a":
        return "Optional" in wanted
    if kind == "t":
        return "Tensor" in wanted
    if kind == "n":
        return "Tensor" not in wanted or is_list
    return "Tensor" not in wanted or (kind == "l" and "List[Tensor]" in wanted)
