"""Read dumps of msprobe (MindStudio's `PrecisionDebugger`), of modules and of API calls.

    DUMP/step0/rank0/dump.json             entries of the step, with statistics
    DUMP/step0/rank0/construct.json        the enclosing module of each entry
    DUMP/step0/rank0/dump_tensor_data/     the tensors: .npy of MindSpore, .pt of PyTorch

Entries are called ``Module.conv1.Conv2d.forward.0`` for a module (``Cell.`` in MindSpore),
``Module.conv1.Conv2d.parameters_grad.0`` for the gradients of its parameters, and
``Functional.relu.0.forward`` for a call. A ``.pt`` file is a pickle and is not opened. Such a dump
is compared by its statistics, unless `dualml_torch.parity.dumped` has written ``.npy`` files beside
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError
from dualml.common.files import MAX_TEXT_BYTES, convert_read_errors, read_bytes
from dualml.common.parse import from_json
from dualml.common.strict_model import clip_text
from dualml.parity.models.imported.dump import (
    BACKWARD,
    Dump,
    DumpedStep,
    DumpedTensor,
    backward_type,
    summarize,
)

TOOL = "msprobe"
HEAD, CONSTRUCT, DATA = "dump.json", "construct.json", "dump_tensor_data"
FRAMEWORKS = {"pytorch": "torch", "mindspore": "mindspore"}
LEVELS, TASKS = ("L0", "L1", "mix"), ("tensor", "statistics")
MODULE = re.compile(
    r"(?:Module|Cell)\.(?:(?P<name>.+)\.)?(?P<type>\w+)\.(?P<way>forward|backward)"
    r"\.(?P<call>\d+)"
)
GRADIENTS = re.compile(
    r"(?:Module|Cell)\.(?:(?P<name>.+)\.)?(?P<type>\w+)\.parameters_grad(?:\.\d+)?"
)
CALL = re.compile(r"(?P<name>\w+\.(?P<type>\w+)\.\d+)\.(?P<way>forward|backward)")


def find_dump_files(folder: Path) -> list[Path]:
    """Return the ``dump.json`` files of all steps and ranks below a folder, sorted by step and
    rank; empty if none."""
    found = [path for deep in ("", "*/", "step*/*/") for path in folder.glob(deep + HEAD)]
    return sorted(found, key=lambda path: ([*map(_number, path.parts[-3:-1])], path))


def _number(name: str) -> int:
    """Return the number at the end of a name; −1 if there is none."""
    digits = re.search(r"\d+$", name)
    return int(digits[0]) if digits else -1


def read(folder: Path) -> Dump:
    """Read a dump of msprobe from its root folder, the folder of a step, or that of one rank;
    `find_dump_files` has to find a file there.

    Raises:
        UserError: a step has several ranks, steps are of both frameworks, or a file is damaged or
            of another version.
    """
    files = find_dump_files(folder)
    by_step: dict[Path, list[Path]] = {}
    for path in files:
        by_step.setdefault(path.parent.parent, []).append(path)
    for paths in by_step.values():
        if len(paths) > 1:
            names = ", ".join(str(path.parent.relative_to(folder)) for path in paths)
            raise UserError(f"{folder}: of {len(paths)} ranks, {names}; name the folder of one")
    recorded = [_read_step(path) for path in files]
    kinds = {one.framework for one in recorded}
    if len(kinds) > 1:
        raise UserError(f"{folder}: of {' and '.join(sorted(kinds))}")
    modules = {name: word for one in recorded for name, word in one.modules.items()}
    steps = [one.step for one in recorded]
    return Dump(TOOL, kinds.pop(), modules, steps, any(one.pickled for one in recorded))


@dataclass(frozen=True)
class _RecordedStep:
    """One step as read from its ``dump.json``."""

    framework: str
    modules: dict[str, str]
    step: DumpedStep
    pickled: bool


def _read_step(path: Path) -> _RecordedStep:
    """Read one ``dump.json`` and check its framework, level and task; raise `UserError` for others,
    or if it is empty or damaged."""
    with convert_read_errors(f"{path}: not a dump of msprobe"):
        head = from_json(read_bytes(path, MAX_TEXT_BYTES), finite=False)
        for key, known in (("framework", FRAMEWORKS), ("level", LEVELS), ("task", TASKS)):
            if head[key] not in known:
                word = clip_text(repr(head[key]))
                raise UserError(f"{path}: {key} {word}; this version reads {', '.join(known)}")
        if not head["data"]:
            raise UserError(f"{path}: nothing was recorded")
        return _parse_step(path.parent, head)


def _parse_step(folder: Path, head: Mapping[str, Any]) -> _RecordedStep:
    """Sort the entries of one step into inputs, outputs, parameters and gradients.

    Args:
        folder: folder of the step's ``dump.json``.
        head: its content.

    Raises:
        ValueError: an entry has another form, or none has an output.
    """
    step, modules, later = DumpedStep(), dict[str, str](), dict[str, DumpedTensor]()
    data: Mapping[str, Mapping[str, Any]] = head["data"]
    for entry in _execution_order(data, _read_parents(folder)):
        content = data[entry]
        if match := GRADIENTS.fullmatch(entry):
            for name, saved in _parameters(folder, match["name"], content):
                step.gradients[name] = saved
            continue
        match = MODULE.fullmatch(entry) or CALL.fullmatch(entry)
        if match is None:
            raise ValueError(f"{clip_text(entry)!r}: an entry of another version")
        name = match["name"] or match["type"]
        call = int(match.groupdict().get("call") or 0)
        number = f"#{call + 1}" if call else ""
        if match["way"] == "forward":
            modules.setdefault(name, match["type"])
            if not step.outputs:
                given = [content.get("input_args"), content.get("input_kwargs")]
                step.inputs += [saved for _, saved in _leaves(folder, given)]
            for tail, saved in _outputs(folder, content.get("output")):
                step.outputs[f"{name}{number}{tail}"] = saved
            if "parameters" in content:
                step.parameters |= dict(_parameters(folder, match["name"], content["parameters"]))
        else:
            modules.setdefault(f"{BACKWARD}{name}", backward_type(match["type"]))
            for tail, saved in _outputs(folder, content.get("input")):
                later[f"{BACKWARD}{name}{number}{tail}"] = saved
    if not step.outputs:
        raise ValueError("no output of any module or call")
    step.outputs |= later
    pickled = any(folder.glob(f"{DATA}/*.pt"))
    return _RecordedStep(FRAMEWORKS[head["framework"]], modules, step, pickled)


def _read_parents(folder: Path) -> Mapping[str, Any]:
    """Return entry → the enclosing entry, as far as ``construct.json`` has it; empty without that
    file."""
    path = folder / CONSTRUCT
    content = from_json(read_bytes(path, MAX_TEXT_BYTES)) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def _execution_order(data: Mapping[str, Any], parents: Mapping[str, Any]) -> list[str]:
    """Return the entries in the order in which they ended: inner calls before the module itself.

    Gradients with respect to outputs stay in listed order.
    """
    ends, depths = dict[str, int](), dict[str, int]()
    for place, entry in enumerate(data):
        above = [] if ".backward" in entry else list(_enclosing_modules(entry, parents))
        depths[entry] = len(above)
        ends |= dict.fromkeys((entry, *above), place)
    return sorted(data, key=lambda entry: (ends[entry], -depths[entry]))


def _enclosing_modules(entry: str, parents: Mapping[str, Any]) -> Iterator[str]:
    """Yield the modules that enclose an entry, from the innermost outwards."""
    seen = {entry}
    while isinstance(parent := parents.get(entry), str) and parent not in seen:
        seen.add(parent)
        yield parent
        entry = parent


def _parameters(
    folder: Path, module: str | None, content: Mapping[str, Any]
) -> Iterator[tuple[str, DumpedTensor]]:
    """Yield (full parameter name, tensor) of a module's parameters or their gradients."""
    for name, one in content.items():
        for _, saved in _leaves(folder, one):
            yield f"{module}.{name}" if module else name, saved


def _outputs(folder: Path, content: Any) -> list[tuple[str, DumpedTensor]]:
    """Return the output tensors with name suffixes; a single tensor has none."""
    leaves = list(_leaves(folder, content))
    return [("", leaves[0][1])] if len(leaves) == 1 else leaves


def _leaves(folder: Path, value: Any, place: str = "") -> Iterator[tuple[str, DumpedTensor]]:
    """Yield the tensors inside an argument or result, with their places such as ``[1][key]``."""
    if isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leaves(folder, inner, f"{place}[{number}]")
    elif isinstance(value, dict) and "shape" in value:
        name = Path(str(value.get("data_name"))).name
        file = folder / DATA / re.sub(r"\.pt$", ".npy", name)
        shape = tuple(int(n) for n in value["shape"])
        known = summarize(value["Max"], value["Min"], value["Mean"], value["Norm"], shape)
        trained = bool(value.get("requires_grad", True))
        yield place, DumpedTensor(shape, known, file if file.is_file() else None, trained)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(folder, inner, f"{place}[{name}]")
