"""Resolve the names in a port's source: signatures of what it calls, members of what it imports.

They are read in a process of the port's framework: ``python -m dualml.parity.patches.namespace
FOLDER SIDE``.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from dualml.common.errors import UserError
from dualml.common.files import read_json, write_json
from dualml.common.json_types import JsonObject
from dualml.launch.child import Emitter, report_to_owner
from dualml.parity.models.model_ref import find_module_file, import_user_module
from dualml.parity.models.operations import jsonable
from dualml.parity.models.side_processes import run_side
from dualml.parity.models.sides import ResolvedSide
from dualml.parity.models.worker import set_search_path
from dualml.parity.patches.names import dotted_name

PROGRAM = "dualml.parity.patches.namespace"
#: File with the request and file with the answer, in the folder of the comparison.
REQUEST, ANSWER = "namespace.request.json", "namespace.json"
#: Text for a parameter without a default.
REQUIRED = "<required>"


@dataclass(frozen=True)
class Namespace:
    """The names that a file of a port knows.

    Attributes:
        signatures: dotted name of a called function or class → name of a parameter → its default,
            `REQUIRED` without one.
        members: name of an imported module → its public members.
        methods: names of the methods of the framework's tensors.
    """

    signatures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    methods: frozenset[str] = frozenset()


def read_namespaces(
    folder: Path, letter: str, side: ResolvedSide, files: list[Path], timeout: float
) -> dict[Path, Namespace]:
    """Run a process of a side's framework, and return file → what its names mean, without files
    that cannot be read; empty if the process fails.

    Args:
        folder: folder of the comparison.
        letter: letter of the side.
        timeout: seconds for the process.
    """
    write_json(folder / REQUEST, {"files": [str(file) for file in files]})
    try:
        run_side(PROGRAM, folder, letter, side, timeout)
        answer: JsonObject = read_json(folder / ANSWER)
    except UserError:
        return {}
    return {
        Path(file): Namespace(
            row["signatures"],
            {name: tuple(members) for name, members in row["members"].items()},
            frozenset(row["methods"]),
        )
        for file, row in answer.items()
    }


def describe_names(emit: Emitter) -> dict[str, Any]:
    """Import the files that the request in the folder names, and write what their names mean to the
    answer; return an empty dict. The process's arguments are ``FOLDER SIDE``."""
    folder, letter = Path(sys.argv[1]), sys.argv[2]
    job = read_json(folder / "job.json")
    own = job["sides"][letter]
    set_search_path(job, own)
    emit(phase="import", done=0, total=1)
    backend: Any = importlib.import_module(f"{own['package']}.models")
    methods = [n for n in dir(backend.tensor(np.zeros(1, np.float32))) if not n.startswith("__")]
    answer = {}
    for file in read_json(folder / REQUEST)["files"]:
        with contextlib.suppress(Exception):  # a user's module may do anything
            module = import_user_module(module_name(file, own), file)
            tree = ast.parse(Path(file).read_bytes())
            answer[file] = {**describe_module(vars(module), tree), "methods": methods}
    write_json(folder / ANSWER, answer)
    return {}


def module_name(file: str, own: JsonObject) -> str:
    """Return the name under which a file of a side is imported: that of the model's module or an
    imported one, or else the file's name.

    Args:
        own: description of the side, of the job.
    """
    model = own["model"]
    if model["file"] == file or find_module_file(model["module"]) == file:
        return str(model["module"])
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == file and not name.startswith("_dualml_user_"):
            return name
    return Path(file).stem


def describe_module(names: Mapping[str, Any], tree: ast.Module) -> dict[str, Any]:
    """Return ``signatures`` of the functions that a module calls by a name, and ``members`` of the
    modules that it imports, see `Namespace`.

    Args:
        names: the module's globals.
        tree: its syntax tree.
    """
    called = {dotted_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)} - {
        ""
    }
    signatures = {}
    for name in sorted(called):
        root, *rest = name.split(".")
        if root not in names:
            continue
        with contextlib.suppress(Exception):
            signatures[name] = describe_signature(reduce(getattr, rest, names[root]))
    members = {
        name: [one for one in dir(value) if not one.startswith("_")]
        for name, value in names.items()
        if inspect.ismodule(value) and not name.startswith("_")
    }
    return {"signatures": signatures, "members": members}


def describe_signature(function: Any) -> dict[str, Any]:
    """Return name of a parameter → default, for a function or class, without ``*args`` and
    ``**kwargs``; `REQUIRED` stands for no default. Raise `ValueError` or `TypeError` if there is no
    signature."""
    parameters = inspect.signature(function).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return {p.name: REQUIRED if p.default is p.empty else jsonable(p.default) for p in named}


if __name__ == "__main__":
    with report_to_owner() as emit:
        emit.result = describe_names(emit)
