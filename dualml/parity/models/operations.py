"""Operations: what a model computed, call by call, with the line of the source that asked for it.

A backend watches its framework's dispatch (`dualml_torch.operations`, `dualml_ms.operations`) and
tells a `Tape` every call; the tape numbers the calls, knows where each input came from, and keeps
copies of the outputs. Modules do not matter here: two ports that cut the same computation
differently share most of these values.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import CodeType, FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: What the arrays of one side may take: enough for a ResNet on small images.
LIMIT_BYTES = 1 << 30
#: Calls of one step; more are a loop that no reader follows.
LIMIT_CALLS = 20_000
#: Numbers of a table that no call has made (positions, indices, masks) and that is kept.
LIMIT_TABLE = 1 << 16
#: Name of such a table.
TABLE = "table:"
#: An attribute with more numbers than this is data, not a setting.
LIMIT_ITEMS = 16


@dataclass(frozen=True)
class Place:
    """A line of a user's source, and the text of the call on it."""

    file: str
    line: int
    code: str = ""


@dataclass(frozen=True)
class Operation:
    """One call of a framework's function.

    Attributes:
        number: position among the calls of the step, from 0.
        name: as the framework calls it: ``conv2d``, ``Conv2D``.
        inputs: where each tensor came from: ``op:12``, ``op:12[1]``, ``parameter:fc.weight``,
            ``input:0``, ``table:7`` or ``?`` for what was not computed under watch.
        attributes: everything else that was passed, by name where the framework has names.
        outputs: shape of each output.
        module: dotted name of the innermost module that was running; empty for the model itself.
    """

    number: int
    name: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    outputs: tuple[tuple[int, ...], ...]
    place: Place | None = None
    module: str = ""

    def names(self) -> list[str]:
        """Names of its outputs among the arrays of a trace."""
        return [name_of(self.number, i) for i in range(len(self.outputs))]

    def describe(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def restore(cls, row: Mapping[str, Any]) -> Operation:
        """Raises: KeyError, TypeError or ValueError for anything but what `describe` gives."""
        place = row["place"]
        return cls(
            int(row["number"]),
            str(row["name"]),
            tuple(map(str, row["inputs"])),
            dict(row["attributes"]),
            tuple(tuple(map(int, shape)) for shape in row["outputs"]),
            None
            if place is None
            else Place(str(place["file"]), int(place["line"]), str(place["code"])),
            str(row["module"]),
        )


def name_of(number: int, output: int = 0) -> str:
    """``op:12``, ``op:12[1]``."""
    return f"op:{number}" + (f"[{output}]" if output else "")


def number_of(name: str) -> int | None:
    """The call that a name of `name_of` belongs to."""
    return int(name[3:].partition("[")[0]) if name.startswith("op:") else None


@dataclass
class Tape:
    """The calls of one step.

    Attributes:
        array: a copy of a tensor on the host.
        skip: folders of packages whose lines are not the user's.
        modules: ``id`` of a module → its name.
    """

    array: Callable[[Any], Array]
    skip: tuple[str, ...]
    modules: Mapping[int, str] = field(default_factory=dict)
    calls: list[Operation] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    size: int = 0
    # id of a tensor → its name, and the tensor: an id is free again when its tensor is gone.
    sources: dict[int, tuple[str, Any]] = field(default_factory=dict)
    contents: dict[str, list[str]] = field(default_factory=dict)

    def known(self, tensor: Any, name: str) -> None:
        """A parameter or an input, before the first call."""
        value = self.array(tensor)
        self.sources[id(tensor)] = (name, tensor)
        self.contents.setdefault(content(value), []).append(name)
        self.parameters[name] = content(value)
        if name.startswith("input:"):
            self.arrays[name] = value

    def source(self, tensor: Any) -> str:
        """Where a tensor came from: by identity, else by its bytes (a view, a slice)."""
        if (known := self.sources.get(id(tensor))) is not None:
            return known[0]
        value = self.array(tensor)
        names = self.contents.get(content(value))
        name = names[-1] if names else "?"
        if value.size <= 1 and (not names or common(value)):
            name = f"constant:{value.reshape(-1)[0]:.9g}" if value.size else "?"
        if name == "?" and 1 < value.size <= LIMIT_TABLE:
            name = f"{TABLE}{len(self.arrays)}"
            self.contents.setdefault(content(value), []).append(name)
            self.arrays[name] = value
        self.sources[id(tensor)] = (name, tensor)
        return name

    def note(
        self,
        name: str,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        outputs: Sequence[Any],
        frame: FrameType | None,
        sources: Sequence[str] | None = None,
    ) -> None:
        """One call; ``sources`` where an input was overwritten by it."""
        if len(self.calls) >= LIMIT_CALLS or not outputs:
            return
        place, module = self.where(frame)
        sources = sources if sources is None else [self.nearest(one, module) for one in sources]
        number = len(self.calls)
        arrays = [self.array(one) for one in outputs]
        if sources is None:
            sources = [self.source(one) for one in inputs]
        shapes = tuple(tuple(int(n) for n in one.shape) for one in arrays)
        self.calls.append(
            Operation(number, name, tuple(sources), settings(attributes), shapes, place, module)
        )
        for i, (tensor, value) in enumerate(zip(outputs, arrays, strict=True)):
            key = name_of(number, i)
            self.sources[id(tensor)] = (key, tensor)
            self.contents.setdefault(content(value), []).append(key)
            if self.size + value.nbytes <= LIMIT_BYTES:
                self.size += value.nbytes
                self.arrays[key] = value

    def nearest(self, source: str, module: str) -> str:
        """Of several parameters with the same numbers (scales of one), the module's own."""
        if not source.startswith("parameter:") or source.startswith(f"parameter:{module}."):
            return source
        value = self.parameters.get(source)
        for name in self.contents.get(value or "", ()):
            if name.startswith(f"parameter:{module}."):
                return name
        return source

    def where(self, frame: FrameType | None) -> tuple[Place | None, str]:
        """The user's line that is being run, and the innermost module."""
        place, module = None, None
        while frame is not None and (place is None or module is None):
            code = frame.f_code
            if module is None and code.co_argcount and code.co_varnames[0] in ("self", "s"):
                owner = frame.f_locals.get(code.co_varnames[0])
                module = self.modules.get(id(owner))
            if place is None and not code.co_filename.startswith((*self.skip, "<")):
                place = Place(code.co_filename, frame.f_lineno, snippet(code, frame.f_lasti))
            frame = frame.f_back
        return place, module or ""


def snippet(code: CodeType, instruction: int) -> str:
    """The text of the expression that is being run, in one line."""
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


def unknown(name: str) -> bool:
    """Whether a value was not computed under watch."""
    return name == "?" or name.startswith(TABLE)


def content(array: Array) -> str:
    """A name for shape-free contents: a reshaped tensor is the same numbers."""
    kind = f"{array.dtype.kind}{array.size}:".encode()
    return hashlib.blake2b(kind + np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()


def common(value: Array) -> bool:
    """A lone number that is nobody's: it may have come from anywhere."""
    return float(value.reshape(-1)[0]) in (0.0, 1.0, -1.0, 2.0, 0.5) if value.size else True


def settings(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as JSON holds them."""
    return {name: plain(value) for name, value in attributes.items()}


def plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value if not isinstance(value, str) or len(value) < 200 else value[:200]
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value[:LIMIT_ITEMS]]
    if isinstance(value, slice):
        return ":".join(
            "" if one is None else str(one) for one in (value.start, value.stop, value.step)
        )
    return str(value)[:80]


def caller(depth: int = 1) -> FrameType:
    """The frame that called."""
    return sys._getframe(depth + 1)
