"""The state outside of model and optimizer that a step changes: schedules, scalers, counters.

A recorder calls the function of a step again. What the function refers to, in its closure, its
globals or the object that it is a method of, must be as it was before the first call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from dualml.parity.models.attributes import (
    PLAIN,
    SavedValue,
    capture_attributes,
    restore_attributes,
)

#: Elements of the largest array, and entries of the largest container, that are copied: what is
#: larger is data, not state.
MAX_ELEMENTS, MAX_ENTRIES = 1 << 20, 10_000
#: Parts of the names of modules whose classes have state that a step changes.
STATEFUL_MODULES = ("lr_scheduler", "learning_rate_schedule", ".amp", "swa_utils")


@dataclass(frozen=True)
class Reference:
    """A name that a function uses for a value outside of itself, and that value.

    Attributes:
        place: mapping that has the value under ``name``: globals of the function, or a
            `ClosureCell`; an empty dict and name if the value is not assigned to a name, such as
            the object of a method.
    """

    place: Any
    name: str
    value: Any


@dataclass(frozen=True)
class ClosureCell:
    """A variable of an enclosing function; assigning an item with any key sets the variable."""

    cell: CellType

    def __setitem__(self, name: str, value: Any) -> None:
        self.cell.cell_contents = value


@dataclass
class Surroundings:
    """Copies of the state that a function refers to, made at once; `restore` puts the state back.

    Args:
        function: makes one step.
        copy_tensor: returns a copy of a tensor of the framework; None for any other value.
        is_kept: returns whether a value is none of the step's state, or is put back by other means:
            the model, its parts, the optimizer, the recorder.
        capture_tensors: for a tensor, or another model such as an average of the weights, returns a
            function that puts its present numbers back; None for any other value.
    """

    function: Callable[..., Any]
    copy_tensor: Callable[[Any], Any]
    is_kept: Callable[[Any], bool]
    capture_tensors: Callable[[Any], Callable[[], None] | None]
    references: list[Reference] = field(default_factory=list)
    saved: list[SavedValue] = field(default_factory=list)
    tensors: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        module = module_of(self.function)
        for reference in find_references(self.function):
            value = reference.value
            found = [self.capture_tensors(one) for one in with_entries(value)]
            restores = [restore for restore in found if restore is not None]
            self.tensors += restores
            if isinstance(value, (*PLAIN, tuple)) or restores:
                self.references.append(reference)
            if not self.skips(value) and has_state(value, module):
                self.saved += capture_attributes(value, self.copy, self.skips)

    def copy(self, value: Any) -> Any:
        """Return a copy of a tensor or array that is small enough to be state; None for any other
        value."""
        if isinstance(value, np.ndarray):
            return value.copy() if value.size <= MAX_ELEMENTS else None
        return self.copy_tensor(value)

    def skips(self, value: Any) -> bool:
        """Return whether a value is neither copied nor restored: `is_kept` says so, it is a type,
        module or function, a container of more than `MAX_ENTRIES` entries, or another object with
        item assignment, which may be a file."""
        if self.is_kept(value) or isinstance(value, type | ModuleType | FunctionType):
            return True
        if isinstance(value, dict | list):
            return len(value) > MAX_ENTRIES
        return hasattr(value, "__setitem__") and not isinstance(value, np.ndarray)

    def restore(self) -> None:
        """Put all values back as they were when this object was made, as often as wanted."""
        for one in self.references:
            one.place[one.name] = one.value
        restore_attributes(self.saved, self.copy)
        for restore in self.tensors:
            restore()


def with_entries(value: Any) -> list[Any]:
    """Return a list of a value and, if it is a list, tuple or dict of at most `MAX_ENTRIES`
    entries, of its entries (a dict's values)."""
    if not isinstance(value, dict | list | tuple) or len(value) > MAX_ENTRIES:
        return [value]
    return [value, *(value.values() if isinstance(value, dict) else value)]


def find_references(function: Callable[..., Any]) -> Iterator[Reference]:
    """Yield the values that a function refers to outside of itself: variables of enclosing
    functions, globals, the object of a method, arguments of a `functools.partial`; also those of
    the functions of the same module that it refers to."""
    waiting, seen, module = [function], set[int](), module_of(function)
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, functools.partial):
            waiting.append(one.func)
            for value in (*one.args, *one.keywords.values()):
                yield Reference({}, "", value)
            continue
        if isinstance(one, MethodType):
            yield Reference({}, "", one.__self__)
            one = one.__func__
        if not isinstance(one, FunctionType):
            yield Reference({}, "", one)
            if (call := getattr(type(one), "__call__", None)) is not None:  # noqa: B004
                waiting.append(call)
            continue
        for reference in [*closure_of(one), *globals_of(one)]:
            yield reference
            if isinstance(reference.value, FunctionType) and reference.value.__module__ == module:
                waiting.append(reference.value)


def module_of(function: Callable[..., Any]) -> str:
    """Return the name of the module that defines a function, method or class of callable objects;
    for a `functools.partial` that of its function. Empty if unknown."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__module__", ""))


def closure_of(function: FunctionType) -> Iterator[Reference]:
    """Yield the variables of enclosing functions that a function uses and that have a value."""
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            yield Reference(ClosureCell(cell), name, cell.cell_contents)
        except ValueError:  # not assigned yet
            continue


def globals_of(function: FunctionType) -> Iterator[Reference]:
    """Yield the existing globals that a function, or one defined inside of it, names."""
    waiting, names = [function.__code__], dict[str, None]()
    while waiting:
        code = waiting.pop()
        names.update(dict.fromkeys(code.co_names))
        waiting += [const for const in code.co_consts if isinstance(const, CodeType)]
    for name in names:
        if name in function.__globals__:
            yield Reference(function.__globals__, name, function.__globals__[name])


def has_state(value: Any, module: str) -> bool:
    """Return whether a value has state that a step may change: a dict or list, an object with
    ``state_dict``, one of a class from a module named as in `STATEFUL_MODULES` (schedules,
    scalers), or an object with a ``__dict__`` of a class that the user's module defines."""
    if isinstance(value, dict | list):
        return True
    kind = type(value)
    if hasattr(value, "state_dict") or any(part in kind.__module__ for part in STATEFUL_MODULES):
        return True
    return kind.__module__ == module and hasattr(value, "__dict__")
