"""Operations: what a model computed, call by call, with the source line of each call.

A backend intercepts its framework's dispatch (`dualml_torch.parity.operations`,
`dualml_ms.parity.operations`) and reports every call to a `Tape`. The tape numbers the calls, knows
where each input came from, and keeps copies of the outputs. Modules do not matter here: two ports
that divide the same computation differently share most of these values.
"""

from __future__ import annotations

import hashlib
import linecache
import math
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field
from types import CodeType, FrameType
from typing import Any

import numpy as np

from dualml.common.array_types import Array
from dualml.common.json_types import JsonObject
from dualml.parity.models.partners import FROM_JSON

#: Memory limit for the arrays of one side: enough for a ResNet on small images.
LIMIT_BYTES = 1 << 30
#: Limit for the calls of one step; more come from a loop that no reader follows.
LIMIT_CALLS = 20_000
#: Largest number of elements of a kept table (an array that no call computed, such as a mask).
LIMIT_TABLE = 1 << 16
#: Prefix of the names of such tables.
TABLE = "table:"
#: An attribute with more elements than this is data, not a setting.
LIMIT_ITEMS = 16


@dataclass(frozen=True)
class SourceLocation:
    """A line of the user's source, with the text of the call on it."""

    __pydantic_config__ = FROM_JSON
    file: str
    line: int
    code: str = ""


@dataclass(frozen=True)
class Operation:
    """One call of a framework's function.

    Attributes:
        number: position among the calls of the step, from 0.
        name: the framework's name: ``conv2d``, ``Conv2D``.
        inputs: where each tensor came from: ``op:12``, ``op:12[1]``, ``parameter:fc.weight``,
            ``input:0``, ``table:7``, or ``?`` if it was not computed while recording.
        attributes: all other arguments, by name if the framework names them.
        outputs: shape of each output.
        place: the user's line that made the call; None if unknown.
        module: dotted name of the innermost module that was running; empty for the model itself.
    """

    __pydantic_config__ = FROM_JSON
    number: int
    name: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    outputs: tuple[tuple[int, ...], ...]
    place: SourceLocation | None = None
    module: str = ""

    def output_names(self) -> list[str]:
        """Return the names of the call's outputs among the arrays of a trace."""
        return [value_name(self.number, i) for i in range(len(self.outputs))]

    def describe(self) -> JsonObject:
        """Return the operation as a JSON object of its attributes."""
        return asdict(self)


def value_name(number: int, output: int = 0) -> str:
    """Return the name of a call's output, such as ``op:12`` for the first and ``op:12[1]`` for the
    second."""
    return f"op:{number}" + (f"[{output}]" if output else "")


def call_number(name: str) -> int | None:
    """Return the number of the call whose output has this name; None for other values."""
    return int(name[3:].partition("[")[0]) if name.startswith("op:") else None


@dataclass
class Tape:
    """The recorded calls of one step.

    Attributes:
        array: copies a tensor to a NumPy array on the host.
        skip: folders of packages whose lines are not the user's.
        modules: ``id`` of a module → its name.
        calls: the calls recorded so far.
        arrays: name of a value → its copy.
        parameters: name of a parameter or input → the key of its contents; empty if not read yet.
        unread: number of elements → names and tensors of the parameters whose contents were not
            read yet.
        size: bytes of the copied outputs.
        address: function that returns where the numbers of a tensor are in memory, None if that is
            unknown; None: tensors are told apart by identity and contents alone.
        addresses: of large fixed parameters → name and shape.
    """

    array: Callable[[Any], Array]
    skip: tuple[str, ...]
    modules: Mapping[int, str] = field(default_factory=dict)
    calls: list[Operation] = field(default_factory=list)
    arrays: MutableMapping[str, Array] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    unread: dict[int, list[tuple[str, Any]]] = field(default_factory=dict)
    size: int = 0
    # id of a tensor → its name, and the tensor itself, which keeps the id from being reused.
    sources: dict[int, tuple[str, Any]] = field(default_factory=dict)
    contents: dict[str, list[str]] = field(default_factory=dict)
    address: Callable[[Any], int | None] | None = None
    addresses: dict[int | None, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    def register(self, tensor: Any, name: str, *, is_fixed: bool = False) -> None:
        """Register a parameter or an input under ``name`` before the first call, so that calls that
        take it can be traced to it.

        Args:
            name: ``parameter:NAME`` or ``input:NUMBER``.
            is_fixed: whether nothing changes the tensor while calls are recorded. The contents of a
                large one are then only read if a call takes a tensor of its size and of unknown
                origin.
        """
        self.sources[id(tensor)] = (name, tensor)
        size = math.prod(tensor.shape)
        if is_fixed and size > LIMIT_TABLE:
            self.unread.setdefault(size, []).append((name, tensor))
            self.parameters[name] = ""
            if self.address is not None and (place := self.address(tensor)) is not None:
                self.addresses[place] = name, tuple(tensor.shape)
            return
        value = self.array(tensor)
        self.parameters[name] = key = content_key(value)
        self.contents.setdefault(key, []).append(name)
        if name.startswith("input:"):
            self.arrays[name] = value

    def read_parameters(self, size: int) -> None:
        """Read the contents of the registered parameters with ``size`` elements that were not read
        yet."""
        for name, tensor in self.unread.pop(size, ()):
            self.parameters[name] = key = content_key(self.array(tensor))
            names = self.contents.setdefault(key, [])
            names.append(name)
            # As if they had been read when they were registered: before all outputs of calls.
            order = {known: i for i, known in enumerate(self.parameters)}
            names.sort(key=lambda known: order.get(known, len(order)))

    def find_source(self, tensor: Any) -> str:
        """Return the name of the value a tensor came from: by identity, by the memory of a large
        fixed parameter, or else by equal contents (a view, a slice); the tensor is remembered under
        this name.

        A single number that nothing computed, or a common one such as 0 or 1, is
        ``constant:NUMBER``; another array that nothing computed is kept as ``table:…``, or is ``?``
        if it is too large.
        """
        if (known := self.sources.get(id(tensor))) is not None:
            return known[0]
        if (fixed := self.find_fixed(tensor)) is not None:
            self.sources[id(tensor)] = (fixed, tensor)
            return fixed
        value = self.array(tensor)
        self.read_parameters(value.size)
        names = self.contents.get(content_key(value))
        name = names[-1] if names else "?"
        if value.size <= 1 and (not names or is_common(value)):
            name = f"constant:{value.reshape(-1)[0]:.9g}" if value.size else "?"
        if name == "?" and 1 < value.size <= LIMIT_TABLE:
            name = f"{TABLE}{len(self.arrays)}"
            self.contents.setdefault(content_key(value), []).append(name)
            self.arrays[name] = value
        self.sources[id(tensor)] = (name, tensor)
        return name

    def find_fixed(self, tensor: Any) -> str | None:
        """Return the name of the large fixed parameter that has the memory address and the shape of
        a tensor; None if there is none. It is needed because a framework may wrap a parameter anew
        for every call."""
        if self.address is None or not self.addresses:
            return None
        name, shape = self.addresses.get(self.address(tensor), ("", ()))
        return name if name and shape == tuple(tensor.shape) else None

    def record_call(
        self,
        name: str,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        outputs: Sequence[Any],
        frame: FrameType | None,
        sources: Sequence[str] | None = None,
    ) -> None:
        """Append one call to `calls` and copy its outputs to `arrays`; ignored without outputs, or
        after `LIMIT_CALLS` calls. Outputs are not copied where all copies would exceed
        `LIMIT_BYTES`.

        Args:
            name: the framework's name of the function.
            inputs: the tensors among its arguments.
            attributes: all other arguments, by name.
            outputs: the tensors that it returned.
            frame: the frame that made the call, to find the user's line.
            sources: names of the inputs, if the call overwrote one of them; None: they are looked
                up.
        """
        if len(self.calls) >= LIMIT_CALLS or not outputs:
            return
        place, module = self.locate(frame)
        number = len(self.calls)
        arrays = [self.array(one) for one in outputs]
        if sources is None:
            sources = [self.find_source(one) for one in inputs]
        else:
            sources = [self.own_parameter(one, module) for one in sources]
        shapes = tuple(tuple(int(n) for n in one.shape) for one in arrays)
        settings = {key: jsonable(value) for key, value in attributes.items()}
        self.calls.append(Operation(number, name, tuple(sources), settings, shapes, place, module))
        for i, (tensor, value) in enumerate(zip(outputs, arrays, strict=True)):
            key = value_name(number, i)
            self.sources[id(tensor)] = (key, tensor)
            self.contents.setdefault(content_key(value), []).append(key)
            if self.size + value.nbytes <= LIMIT_BYTES:
                self.size += value.nbytes
                self.arrays[key] = value

    def own_parameter(self, source: str, module: str) -> str:
        """Return the name of a parameter of ``module`` that has the same numbers as the parameter
        named ``source``, such as scales that are all one; ``source`` itself if there is none."""
        prefix = f"parameter:{module}."
        if not (module and source.startswith("parameter:")) or source.startswith(prefix):
            return source
        for size, rows in list(self.unread.items()):
            if any(name == source for name, _ in rows):
                self.read_parameters(size)
        value = self.parameters.get(source)
        for name in self.contents.get(value or "", ()):
            if name.startswith(prefix):
                return name
        return source

    def locate(self, frame: FrameType | None) -> tuple[SourceLocation | None, str]:
        """Return the user's line that is running in a frame or its callers (None if unknown), and
        the name of the innermost module (empty for the model itself or none)."""
        place, module = None, None
        while frame is not None and (place is None or module is None):
            code = frame.f_code
            if module is None and code.co_argcount and code.co_varnames[0] in ("self", "s"):
                owner = frame.f_locals.get(code.co_varnames[0])
                module = self.modules.get(id(owner))
            if place is None and not code.co_filename.startswith((*self.skip, "<")):
                place = SourceLocation(
                    code.co_filename, frame.f_lineno, expression_text(code, frame.f_lasti)
                )
            frame = frame.f_back
        return place, module or ""


def expression_text(code: CodeType, instruction: int) -> str:
    """Return the source text of the expression that a code object is running, in one line of at
    most 160 characters; empty if unknown.

    Args:
        instruction: offset of the instruction in bytes, a frame's ``f_lasti``.
    """
    positions = list(code.co_positions())
    line, last, start, end = positions[instruction // 2]
    if line is None or last is None:
        return ""
    lines = [linecache.getline(code.co_filename, n).rstrip("\n") for n in range(line, last + 1)]
    if start is not None and end is not None and lines:
        # Columns count bytes of UTF-8.
        encoded = [one.encode() for one in lines]
        encoded[-1] = encoded[-1][:end]
        encoded[0] = encoded[0][start:]
        lines = [one.decode(errors="replace") for one in encoded]
    text = " ".join(one.strip() for one in lines)
    return text if len(text) <= 160 else text[:157] + "..."


def is_unknown(name: str) -> bool:
    """Return whether a value's name shows that it was not computed while recording: ``?`` or a
    table (an array that no call computed)."""
    return name == "?" or name.startswith(TABLE)


def content_key(array: Array) -> str:
    """Return a hash of an array's kind of dtype, size and contents, regardless of its shape."""
    # Twice as fast as others; no key is kept or shown.
    digest = hashlib.sha1(f"{array.dtype.kind}{array.size}:".encode(), usedforsecurity=False)
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def is_common(value: Array) -> bool:
    """Return whether a single number is so common (0, ±1, 2, 0.5) that its origin cannot be told by
    its value; True for an empty array. Only the first element is looked at."""
    return float(value.reshape(-1)[0]) in (0.0, 1.0, -1.0, 2.0, 0.5) if value.size else True


def jsonable(value: Any) -> Any:
    """Return a value as JSON: strings are cut to 200 characters and lists to `LIMIT_ITEMS` entries;
    slices, floats that are not finite and anything else become text."""
    if value is None or isinstance(value, bool | int | str):
        return value if not isinstance(value, str) or len(value) < 200 else value[:200]
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [jsonable(one) for one in value[:LIMIT_ITEMS]]
    if isinstance(value, slice):
        return ":".join(
            "" if one is None else str(one) for one in (value.start, value.stop, value.step)
        )
    return str(value)[:80]


def caller_frame(depth: int = 1) -> FrameType:
    """Return the frame that called the function which calls `caller_frame`; with a larger ``depth``
    than 1, a frame that many calls further out, less one."""
    return sys._getframe(depth + 1)
