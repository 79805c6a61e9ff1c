"""Traces: what one framework computed in a few steps, as two files that any machine can read.

``trace.safetensors`` holds the arrays under ``PHASE/STEP/NAME``, with the names of the framework
that ran; a large trace has more such files, see `dualml.parity.models.trace_files`. ``trace.json``
holds the framework, its parameters and modules, the order in which the modules ran, and digests of
the inputs and initial weights.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from dualml.common.arrays import Arrays as Arrays
from dualml.common.errors import UserError
from dualml.common.files import (
    MAX_TEXT_BYTES,
    convert_read_errors,
    read_bytes,
    write_json,
)
from dualml.common.parse import from_json
from dualml.common.strict_model import clip_text, describe_validation_error
from dualml.common.tensor_files import LazyArrays, array_shape
from dualml.common.tensor_shards import open_arrays
from dualml.experiment.store.jsonfile import Count, Number, Record
from dualml.parity.models import trace_files
from dualml.parity.models.operations import Operation, SourceLocation
from dualml.parity.models.optimizer_facts import OptimizerStart, ParameterGroup
from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace_files import ARRAYS as ARRAYS
from dualml.parity.models.trace_files import write_arrays
from dualml.parity.places import FLOOR

FORMAT = 1
KIND = "dualml-trace"
HEAD = "trace.json"
#: Name of the model's own output among those of its modules.
OUTPUT = "(output)"
#: Number of a call in the name of an output.
CALL = re.compile(r"#(\d+)")
#: Dtype of a model that was cast to low precision → its unit in the last place, relative.
LOW_PRECISION_UNITS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def array_key(phase: str, step: int, name: str) -> str:
    """Return the key of an array in a trace, such as ``gradient/00000001/fc.weight``."""
    return f"{phase}/{step:08d}/{name}"


def hash_array(array: NDArray[Any]) -> str:
    """Return the SHA-256 of an array's shape and values, as hexadecimal text. Floats are hashed as
    float32 and other values as int64, so that the framework's dtype does not matter."""
    kind = np.float32 if array.dtype.kind == "f" else np.int64
    digest = hashlib.sha256(repr(array.shape).encode())
    digest.update(np.ascontiguousarray(array, kind).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def join_hashes(hashes: Mapping[str, str]) -> str:
    """Return one SHA-256 of named digests, in the order of the sorted names."""
    text = "".join(f"{name}={hashes[name]};" for name in sorted(hashes))
    return hashlib.sha256(text.encode()).hexdigest()


def hash_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return one SHA-256 of named arrays, in the order of the sorted names."""
    return join_hashes({name: hash_array(arrays[name]) for name in arrays})


@dataclass
class Trace:
    """The recorded steps of one side.

    Attributes:
        framework: ``torch`` or ``mindspore``.
        environment: versions, device and threads.
        tensors, modules: as the framework lists them; modules by name with their type.
        steps: number of completed steps.
        inputs: for each step the digests of its inputs, in order.
        order: for each step the names of module outputs, in the order in which they were computed.
        envelope: ``PHASE/STEP/NAME`` → rounding envelope: largest relative distance of a draw (a
            repetition with weights moved by units in the last place); None if it was not measured.
        draws: number of draws.
        random: the array that differed between two runs of the first step,
            ``{"phase", "name", "type"}``; None if the step is reproducible.
        repeated: whether the first step was run twice to check that.
        raised: the error that ended the last step; None if none did.
        operations: the calls of framework functions in the first step; empty if operations were not
            recorded.
        built: name of a framework layer → the user's line that built it.
        roles: of the second side: the other's name → its own, of tensors with the same role in the
            computation.
        guesses: of the second side: the other's name → its own, of tensors used in the same order.
        listed: of the second side: the other's name → its own, of tensors listed in the same order.
        cuts: of the second side, if the user's map names pieces of fused tensors: for both sides
            the name of each → number of groups, axis and lengths of its pieces.
        longest_axis: longest axis except the batch's, for dumps without parameters; it bounds the
            length of sums.
        moved_modules: modules whose calls a mutation moves; their outputs in the original place do
            not count.
        groups: the optimizer's groups of parameters, as before the first step; empty if there is
            none, or if its settings are unknown.
        start: the optimizer's state before the first step; None if it was not recorded.
        weights_digest: SHA-256 of the initial parameters; empty until it is needed.
        arrays: ``PHASE/STEP/NAME`` → array, read from a file when it is looked up if the trace is
            large, see `dualml.parity.models.trace_files`.
    """

    framework: str
    environment: dict[str, str]
    tensors: list[Tensor]
    modules: dict[str, str]
    steps: int = 0
    inputs: list[list[str]] = field(default_factory=list)
    order: list[list[str]] = field(default_factory=list)
    envelope: dict[str, float] | None = None
    draws: int = 0
    random: dict[str, str] | None = None
    repeated: bool = False
    raised: str | None = None
    operations: list[Operation] = field(default_factory=list)
    built: dict[str, SourceLocation] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    guesses: dict[str, str] = field(default_factory=dict)
    listed: dict[str, str] = field(default_factory=dict)
    cuts: list[dict[str, list[int]]] = field(default_factory=list)
    longest_axis: int = 1
    moved_modules: frozenset[str] = frozenset()
    groups: list[ParameterGroup] = field(default_factory=list)
    start: OptimizerStart | None = None
    weights_digest: str = ""
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def names(self, phase: str, step: int) -> list[str]:
        """Return the array names of a phase in a step, from 1, without phase and step; for
        ``forward`` in execution order. Initial parameters (``parameters``) have step 0."""
        if phase == "forward":
            return list(self.order[step - 1]) if step <= len(self.order) else []
        start = f"{phase}/{step:08d}/"
        return [name.removeprefix(start) for name in self.arrays if name.startswith(start)]

    def find_array(self, phase: str, step: int, name: str) -> NDArray[Any] | None:
        """Return an array; None if it was not recorded."""
        return self.arrays.get(array_key(phase, step, name))

    def envelope_width(self, phase: str, step: int, name: str) -> float:
        """Return the relative envelope width of an array; 0 if it has none, or if no envelope was
        measured."""
        return (self.envelope or {}).get(array_key(phase, step, name), 0.0)

    def initial_parameters(self) -> LazyArrays:
        """Return the initial parameters and buffers by name, each read when it is looked up."""
        start = LazyArrays()
        for name in self.names("parameters", 0):
            key = array_key("parameters", 0, name)
            start.add(name, array_shape(self.arrays, key), partial(self.arrays.__getitem__, key))
        return start

    def write(self, folder: Path) -> None:
        """Write both files into the folder, which is made if needed, each of them atomically.

        Raises:
            UserError: there is no space left for the arrays.
            OSError: there is none for ``trace.json``; the error names the file.
        """
        folder.mkdir(parents=True, exist_ok=True)
        write_arrays(folder, self.arrays)
        self.write_header(folder)

    def write_header(self, folder: Path) -> None:
        """Write ``trace.json`` alone into an existing folder; set `weights_digest` if it is
        empty."""
        self.weights_digest = self.weights_digest or hash_arrays(self.initial_parameters())
        draws = None if self.envelope is None else {"draws": self.draws, "width": self.envelope}
        derived = {
            "plan": {"weights": self.weights_digest, "inputs": self.inputs},
            "parameters": [one.describe() for one in self.tensors],
            "names": list(self.arrays),
            "envelope": draws,
            "operations": [one.describe() for one in self.operations],
            "built": {name: asdict(place) for name, place in self.built.items()},
            "groups": [one.model_dump() for one in self.groups],
            "start": None if self.start is None else self.start.model_dump(),
        }
        head = {
            name: derived[name] if name in derived else getattr(self, name)
            for name in TraceHeader.model_fields
        }
        write_json(folder / HEAD, {"kind": KIND, "format": FORMAT, **head})


def split_number(name: str) -> tuple[str, int]:
    """Return the name of an output without the number of its call, and that number, from 1.

    >>> split_number("fc#2[0]"), split_number("fc")
    (('fc[0]', 2), ('fc', 1))
    """
    found = CALL.search(name)
    return (name, 1) if found is None else (name.replace(found[0], "", 1), int(found[1]))


def count_calls(trace: Trace, step: int = 1) -> int:
    """Return how often the model itself was called in a step; 0 if its output was not recorded."""
    own = [name for name in trace.names("forward", step) if name.startswith(OUTPUT)]
    return max((split_number(name)[1] for name in own), default=0)


class TracePlan(Record):
    """Digests of the plan in ``trace.json``: of the weights, and of each step's inputs."""

    weights: str
    inputs: list[list[str]]


class DrawsRecord(Record):
    """The envelope in ``trace.json``: number of draws, and relative width by ``PHASE/STEP/NAME``.

    A width of None is infinite.
    """

    draws: Count
    width: dict[str, Annotated[Number, Field(ge=0)] | None]


class TraceHeader(Record):
    """The schema of ``trace.json``, see `Trace`."""

    framework: str
    environment: dict[str, str]
    steps: Count
    plan: TracePlan
    parameters: list[Tensor]
    modules: dict[str, str]
    order: list[list[str]]
    names: list[str]
    envelope: DrawsRecord | None
    repeated: bool
    random: dict[str, str] | None
    raised: str | None
    operations: list[Operation] = Field(default_factory=list)  # absent if not recorded
    built: dict[str, SourceLocation] = Field(default_factory=dict)
    roles: dict[str, str] = Field(default_factory=dict)
    guesses: dict[str, str] = Field(default_factory=dict)
    listed: dict[str, str] = Field(default_factory=dict)
    cuts: list[dict[str, list[int]]] = Field(default_factory=list)
    groups: list[ParameterGroup] = Field(default_factory=list)  # absent in older traces
    start: OptimizerStart | None = None


def validate_header(value: Any) -> TraceHeader:
    """Validate the content of a ``trace.json``; raise `ValueError` if it is invalid."""
    try:
        return TraceHeader.model_validate(value)
    except ValidationError as error:  # the reader adds the file's name
        raise ValueError(describe_validation_error(error, TraceHeader)) from None


def read_trace(folder: Path) -> Trace:
    """Read a trace that `Trace.write` wrote.

    Raises:
        UserError: there is no trace, or it is of another format, truncated or changed.
    """
    folder = Path(folder)
    if not (folder / HEAD).is_file():
        raise UserError(f"{folder}: no trace here ({HEAD} is missing); a Recorder writes one")
    with convert_read_errors(f"{folder}: not a readable trace"):
        value = from_json(read_bytes(folder / HEAD, MAX_TEXT_BYTES))
        if value.get("kind") != KIND:
            raise UserError(f"{folder / HEAD}: not a trace of dualml")
        if value["format"] != FORMAT:
            version = clip_text(str(value["format"]))
            raise UserError(f"{folder}: a trace of format {version}; this version reads {FORMAT}")
        head = validate_header(value)
        what = "not a readable trace"
        return restore_trace(
            head, open_arrays(folder / ARRAYS, head.names, trace_files.SMALL_BYTES, what)
        )


def restore_trace(head: TraceHeader, arrays: Mapping[str, NDArray[Any]]) -> Trace:
    """Return the trace of a header and its arrays; raise `ValueError` if they contradict each
    other."""
    own = {field.name for field in fields(Trace)} - {"envelope"}
    trace = Trace(
        **{name: getattr(head, name) for name in TraceHeader.model_fields.keys() & own},
        tensors=head.parameters,
        inputs=head.plan.inputs,
        arrays=arrays,
    )
    if head.envelope is not None:  # JSON has no infinity: null is a draw that was not finite
        widths = head.envelope.width.items()
        trace.envelope = {name: math.inf if w is None else float(w) for name, w in widths}
        trace.draws = head.envelope.draws
    if len(trace.inputs) < trace.steps or len(trace.order) < trace.steps:
        raise ValueError(f"{trace.steps} steps, but {len(trace.inputs)} inputs")
    for step, names in enumerate(trace.order, 1):
        for name in names:
            if array_key("forward", step, name) not in arrays:
                raise ValueError(f"the output of {name} in step {step} is missing")
    shapes = {one.name: one.shape for one in trace.tensors}
    start = trace.initial_parameters()
    for name in start:
        if shapes.get(name) != start.shape(name):
            raise ValueError(f"{name} has shape {start.shape(name)}, listed as {shapes.get(name)}")
    return trace


def rounding_unit(*traces: Trace) -> float:
    """Return one unit in the last place, relative, of the lowest precision in which a side
    computed: 2⁻²³ for float32."""
    dtypes = [trace.environment.get("dtype", "") for trace in traces]
    return max((LOW_PRECISION_UNITS.get(dtype, FLOOR) for dtype in dtypes), default=FLOOR)


def iter_tensors(value: Any, is_tensor: Any, name: str = "") -> Iterable[tuple[str, Any]]:
    """Yield the tensors inside a module's output, with names such as ``[1][0]`` or ``[key]`` behind
    ``name``; other values are left out."""
    if is_tensor(value):
        yield name, value
    elif isinstance(value, Mapping | tuple | list):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from iter_tensors(inner, is_tensor, f"{name}[{key}]")
