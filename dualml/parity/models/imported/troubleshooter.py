"""Read dumps of TroubleShooter, `troubleshooter.migrator.api_dump_init`: calls of a framework's
API.

    DUMP/rank0/FRAMEWORK_api_dump/NN_Conv2d_0_forward_output.0.npy
    DUMP/rank0/FRAMEWORK_api_dump_info.csv     a JSON list in each line; .pkl in earlier versions

A line is ``[name, step, [], dtype, shape, [max, min, mean]]``, since 1.0.18 with a checksum and the
norm. A call is named by its kind, its function and its number; a ``backward_input`` is the gradient
with respect to the output of the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import MAX_TEXT_BYTES, convert_read_errors, read_bytes
from dualml.common.parse import from_json
from dualml.parity.models.imported.dump import (
    BACKWARD,
    Dump,
    DumpedStep,
    DumpedTensor,
    backward_type,
    summarize,
)

TOOL = "troubleshooter"
INFO = re.compile(r"(\w+)_api_dump_info\.(csv|pkl)")
COLUMNS = (6, 8)
FRAMEWORKS = ("torch", "mindspore")
NAME = re.compile(
    r"(?P<call>(?P<kind>[A-Za-z]+)_(?P<api>\w+)_\d+)_(?P<way>forward|backward)_"
    r"(?P<io>input|output)(?P<place>(\.\d+)*)"
)


def info_files(folder: Path) -> list[Path]:
    """Return the list files (``…_api_dump_info.csv`` or ``.pkl``) of all ranks in a dump, sorted;
    empty if the folder is no dump of TroubleShooter."""
    paths = [*folder.glob("*_info.*"), *folder.glob("rank*/*_info.*")]
    return sorted(path for path in paths if INFO.fullmatch(path.name))


def read(folder: Path) -> Dump:
    """Read a dump of TroubleShooter with one rank, or the folder of one rank; `info_files` has to
    find a list there. It has one step, and no parameters.

    Raises:
        UserError: there are several ranks, it is of another framework, or the list is damaged, of
            another version or without any output.
    """
    files = info_files(folder)
    if len(files) > 1:
        names = ", ".join(str(file.parent.relative_to(folder)) for file in files)
        raise UserError(f"{folder}: {len(files)} lists of calls in {names}; name the folder of one")
    path = files[0]
    framework = path.name.partition("_")[0]
    if framework not in FRAMEWORKS:
        raise UserError(f"{path}: of {framework!r}; dumps of {' and '.join(FRAMEWORKS)} are read")
    step, modules, later = DumpedStep(), dict[str, str](), dict[str, DumpedTensor]()
    first = ""
    with convert_read_errors(f"{path}: not a list of TroubleShooter"):
        for name, shape, known in read_rows(path):
            match = NAME.fullmatch(name)
            if match is None:
                continue  # LAYER_…: marks the beginning of a layer
            call, places = match["call"], match["place"].split(".")[1:]
            tensor = path.parent / f"{framework}_api_dump" / f"{name}.npy"
            saved = DumpedTensor(shape, known, tensor if tensor.is_file() else None)
            tail = "".join(f"[{place}]" for place in places)
            first = first or call
            if match["way"] == "backward":
                modules.setdefault(f"{BACKWARD}{call}", backward_type(match["api"]))
                later[f"{BACKWARD}{call}{tail}"] = saved
            elif match["io"] == "output":
                modules.setdefault(call, match["api"])
                step.outputs[f"{call}{tail}"] = saved
            elif call == first:
                step.inputs.append(saved)
    if not step.outputs:
        raise UserError(f"{path}: no output of any call")
    step.outputs |= later
    return Dump(TOOL, framework, modules, [step])


def read_rows(path: Path) -> Iterator[tuple[str, tuple[int, ...], tuple[float, ...]]]:
    """Yield name, shape and statistics of each line of a list file, also of the lines ``LAYER_…``,
    which mark the beginning of a layer; raise `ValueError` for a line of another form."""
    for number, line in enumerate(read_bytes(path, MAX_TEXT_BYTES).splitlines(), 1):
        row = from_json(line, finite=False)  # NaN replaces missing statistics
        if not (isinstance(row, list) and len(row) in COLUMNS):
            raise ValueError(f"line {number} is no list of 6 or 8; another version wrote it")
        name, _, _, _, shape, numbers = row[:6]
        right = isinstance(name, str) and isinstance(numbers, list) and len(numbers) == 3
        right = right and isinstance(shape, list)
        if not right or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"line {number}: no name, shape and statistics")
        norm = row[7] if len(row) == 8 else None
        largest, smallest, mean = numbers
        yield name, tuple(shape), summarize(largest, smallest, mean, norm, shape)
