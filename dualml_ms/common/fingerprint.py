"""A hash of everything that a cell's graph is made from: equal hashes mean equal graphs.

The hash covers code (of dualml, of the cells' own files, of methods replaced at run time),
attributes, constants, and the names, shapes and types of parameters and arguments. It does not
cover parameters' values, which a graph reads when it runs. Content of an unknown kind raises an
error instead of a guess.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import platform
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn

import dualml

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
#: Descriptors of classes with slots and of abstract classes.
DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
#: Attributes of `nn.Cell` itself that affect a graph; the others are counters and caches.
FINGERPRINTED_ATTRIBUTES = (
    "_cells",
    "_params",
    "_params_list",
    "_primitives",
    "_buffers",
    "_amp_level",
    "_jit_config_dict",
    "has_bprop",
    "mixed_precision_type",
    "requires_grad",
    "training",
)
#: Attributes in which MindSpore caches the arguments of calls, the time when a function was made,
#: the name of the last graph, and, in GRAPH_MODE, that a cell has been compiled.
VOLATILE = (
    "weights_id",
    "hash_obj",
    "current_phase",
    "sequence_modified",
    "_func_graph_flags",
    "__compile_cell_hook__",
    "__parse_method__",
)
#: Packages whose versions stand for their code.
LIBRARIES = ("mindspore", "builtins", "abc", "typing", "pybind11_builtins")


class UnknownContent(TypeError):
    """An error: a cell has content whose effect on its graph is unknown."""


def fingerprint(cell: nn.Cell, tensors: Iterable[Any]) -> str:
    """Return the hash of the graph of ``cell`` for tensors of these shapes and types, 32 hex
    digits.

    Raises:
        UnknownContent: the cell holds content of an unknown kind, or uses parameters that it does
            not list; MindSpore would not find them for a graph from disk.
    """
    walk = GraphHasher()
    walk.update_hash("dualml", SOURCES, ms.__version__, platform.python_version())
    walk.update_hash(ms.get_context("mode"), ms.get_context("device_target"))
    walk.update_hash(*sorted(item for item in os.environ.items() if item[0].startswith("MS_DEV_")))
    walk.visit(cell)
    for tensor in tensors:
        walk.update_hash("argument", tensor.shape, str(tensor.dtype))
    listed = {id(p) for p in cell.parameters_dict().values()}
    if missing := [p.name for p in walk.parameters if id(p) not in listed]:
        raise UnknownContent(f"{type(cell).__name__} uses parameters it does not list: {missing}")
    return walk.hash.hexdigest()[:32]


class GraphHasher:
    """Hashes an object and everything it refers to, by `visit`.

    Attributes:
        hash: the SHA-256 so far.
        parameters: the parameters that were visited.
        seen: id of each visited object → its number.
    """

    def __init__(self) -> None:
        self.hash, self.parameters = hashlib.sha256(), list[ms.Parameter]()
        self.seen = dict[int, int]()
        self.alive = list[Any]()  # keeps ids from being reused

    def update_hash(self, *what: Any) -> None:
        """Add values to the hash by their repr; objects inside are not visited."""
        self.hash.update(repr(what).encode() + b"\0")

    def visit(self, x: Any) -> None:
        """Hash a value and what it refers to; of an object visited before only its number."""
        if type(x) in PLAIN:
            self.update_hash(type(x).__name__, x)
        elif id(x) in self.seen:
            self.update_hash("again", self.seen[id(x)])
        else:
            self.seen[id(x)] = len(self.seen)
            self.alive.append(x)
            self.hash_new(x)

    def hash_new(self, x: Any) -> None:
        """Hash an object that has not been visited before, by its kind: a parameter by name, shape
        and type, a tensor by its content, a container by its entries, a function or class by its
        code. Raise `UnknownContent` if its effect is unknown."""
        if isinstance(x, ms.Parameter):
            self.parameters.append(x)
            self.update_hash("parameter", x.name, x.shape, str(x.dtype), x.requires_grad)
        elif isinstance(x, ms.Tensor | np.ndarray | np.generic):
            value = np.asarray(x.asnumpy() if isinstance(x, ms.Tensor) else x)
            content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            self.update_hash(type(x).__name__, value.shape, str(x.dtype), content)
        elif isinstance(x, Mapping):
            self.update_hash(type(x).__name__, len(x))
            self.visit_all(part for item in x.items() for part in item)
        elif isinstance(x, list | tuple):
            self.update_hash(type(x).__name__, len(x))
            self.visit_all(x)
        elif isinstance(x, set | frozenset):
            self.update_hash(type(x).__name__, len(x))
            self.visit_all(sorted(x, key=repr))
        elif isinstance(x, types.MethodType):
            self.visit_all((x.__func__, x.__self__))
        elif isinstance(x, types.FunctionType):
            self.hash_function(x)
        elif isinstance(x, functools.partial):
            self.visit_all((x.func, x.args, x.keywords))
        elif isinstance(x, type):
            self.hash_class(x)
        elif isinstance(x, types.ModuleType | types.BuiltinFunctionType):
            self.update_hash(type(x).__name__, getattr(x, "__module__", ""), x.__name__)
        else:
            self.hash_object(x)

    def visit_all(self, parts: Iterable[Any]) -> None:
        """Visit several objects in order."""
        for part in parts:
            self.visit(part)

    def hash_object(self, x: Any) -> None:
        """Hash an object's class and attributes, without a cell's counters and caches; of an object
        without attributes the repr if it is MindSpore's, otherwise raise `UnknownContent`."""
        self.visit(type(x))
        own = getattr(x, "__dict__", None)
        if isinstance(x, nn.Cell):
            common = cell_attributes()
            own = {
                k: v
                for k, v in x.__dict__.items()
                if k in FINGERPRINTED_ATTRIBUTES or k not in common
            }
        elif own is None:
            words = repr(x)  # a MindSpore type such as mindspore.float32
            if not type(x).__module__.startswith("mindspore") or " at 0x" in words:
                raise UnknownContent(f"{type(x).__module__}.{type(x).__qualname__}")
            self.update_hash(words)
            return
        self.visit({k: v for k, v in own.items() if k not in VOLATILE})

    def hash_function(self, x: types.FunctionType) -> None:
        """Hash a function's code, defaults, closure, and the functions, tuples and plain values of
        its module that it uses; for a library's function, not those of its module."""
        self.update_hash("function", x.__module__, x.__qualname__, file_hash(x))
        self.update_hash(*code_content(x.__code__))
        self.visit_all((x.__defaults__, x.__kwdefaults__))
        closed = zip(x.__code__.co_freevars, x.__closure__ or (), strict=True)
        self.visit_all(c.cell_contents for name, c in closed if name not in VOLATILE)
        if not is_library(x.__module__ or ""):
            used = (x.__globals__.get(name) for name in x.__code__.co_names)
            self.visit_all(u for u in used if type(u) in (*PLAIN, tuple, types.FunctionType))

    def hash_class(self, cls: type) -> None:
        """Hash a class and its bases: names, and their current methods and constants, of special
        methods only ``__call__``; a library's class by its name alone."""
        self.update_hash("class", cls.__module__, cls.__qualname__)
        if is_library(cls.__module__):
            return
        self.update_hash(file_hash(cls))
        self.visit_all(cls.__bases__)
        for name, value in sorted(vars(cls).items()):
            if name != "_abc_impl" and (not name.startswith("__") or name == "__call__"):
                self.update_hash(name)
                self.hash_member(value)

    def hash_member(self, value: Any) -> None:
        """Hash a member of a class, unwrapping methods and properties."""
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(value, functools.cached_property):
            value = value.func
        if not isinstance(value, DESCRIPTORS):
            self.visit(value)


def is_library(module: str) -> bool:
    """Return whether a module belongs to MindSpore or Python, whose versions stand for its code."""
    return module.partition(".")[0] in LIBRARIES


def code_content(code: types.CodeType) -> tuple[Any, ...]:
    """Return the bytecode, names and constants of a function, independent of its position in a
    file."""
    inner = (code_content(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts)
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, tuple(inner)


def file_hash(x: Any) -> str:
    """Return the hash of the source file of a class or function; empty for those of dualml and of
    `LIBRARIES`, which are hashed otherwise. Raise `UnknownContent` if it has no file."""
    module = x.__module__ or ""
    if is_library(module) or module.partition(".")[0] in ("dualml", "dualml_ms"):
        return ""
    try:
        return _hash_of(inspect.getsourcefile(x) or "")
    except (OSError, TypeError) as error:
        raise UnknownContent(f"{module}.{x.__qualname__} has no source") from error


@functools.cache
def _hash_of(path: str) -> str:
    """Return the SHA-256 of the file ``path`` in hex, read once per process."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@functools.cache
def cell_attributes() -> frozenset[str]:
    """Return the names of the attributes that every cell has."""
    return frozenset(vars(nn.Cell()))


def hash_sources() -> str:
    """Return the SHA-256, in hex, of all Python files of dualml and this backend: any constant in
    them may affect a graph."""
    whole = hashlib.sha256()
    for package in (Path(__file__).parents[1], Path(dualml.__file__).parent):
        for path in sorted(package.rglob("*.py")):
            whole.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


#: Computed at import, not later: edits during a run must not store old graphs under new names.
SOURCES = hash_sources()
