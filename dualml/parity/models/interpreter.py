"""Python interpreters of other environments, in which one side of a comparison runs."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.common.errors import UserError, escape_unprintable
from dualml.common.machine import run_bounded

#: Oldest Python that can run a worker.
MIN_VERSION = (3, 11)
#: Packages of dualml that a worker imports.
OWN_PACKAGES = ("dualml", "dualml_torch", "dualml_ms")
#: Packages that a worker imports besides NumPy and its framework, and what each of them imports.
LIGHT_PACKAGES = (
    "annotated_types",
    "packaging",
    "platformdirs",
    "psutil",
    "pydantic",
    "pydantic_core",
    "safetensors",
    "typing_extensions",
    "typing_inspection",
)
#: Seconds that an interpreter may take to say what it has.
PROBE_S = 60.0
#: Program that prints its version and, for the packages named as arguments, their versions (empty
#: if unknown, null if they are missing).
PROBE = """
import importlib.metadata, importlib.util, json, sys
sys.path[:] = [place for place in sys.path if place]
def version(name):
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
print(json.dumps([list(sys.version_info[:3]), {name: version(name) for name in sys.argv[1:]}]))
"""


@dataclass(frozen=True)
class Interpreter:
    """The Python interpreter of another environment.

    Attributes:
        path: the program, as an absolute path.
        version: version of its Python.
        framework_version: version of the framework that it imports; empty if unknown.
        missing: packages of `LIGHT_PACKAGES` that it does not have.
    """

    path: str
    version: tuple[int, ...]
    framework_version: str
    missing: tuple[str, ...] = ()

    def make_overlay(self, folder: Path) -> Path:
        """Make a folder of links for this interpreter's ``PYTHONPATH`` and return it: dualml's
        packages, and those light packages that the interpreter lacks, but nothing else of this
        environment."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*OWN_PACKAGES, *self.missing):
            source = find_package(name)
            link = folder / (source.name if source is not None else name)
            if source is not None and not link.exists():
                link.symlink_to(source)
        return folder


def find_package(name: str) -> Path | None:
    """Return the folder, or the file, of a top-level package without importing it; None if it is
    not found."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin).resolve() if spec.origin else None


def probe_interpreter(python: str | Path, option: str, framework: str) -> Interpreter | None:
    """Run another interpreter to find out its version and packages, and return these; None for the
    interpreter that runs this process.

    Args:
        python: path or name of the program.
        option: the option that named it, for error messages: ``--b-python``.
        framework: the framework's package, which it must have besides NumPy.

    Raises:
        UserError: no such program, no Python of `MIN_VERSION`, or a package is missing; the message
            has the command that installs it.
    """
    found = shutil.which(str(Path(python).expanduser()))
    if found is None:
        raise UserError(f"{option}: there is no program {str(python)!r} that can be run")
    path = str(Path(found).absolute())  # not resolved: a link in a venv is another environment
    if path == sys.executable:
        return None
    asked = [framework, "numpy", *LIGHT_PACKAGES]
    # Packages of this environment do not count, see `Interpreter.make_overlay`.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        result = run_bounded([path, "-c", PROBE, *asked], PROBE_S, environ)
        numbers, versions = json.loads(result.out.splitlines()[-1])
        version = tuple(int(number) for number in numbers)
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, TypeError):
        raise UserError(f"{option}: {path} is not a Python interpreter that answers") from None
    if version < MIN_VERSION:
        least = ".".join(map(str, MIN_VERSION))
        raise UserError(
            f"{option}: {path} is Python {'.'.join(map(str, version))}; dualml needs {least} or "
            f"newer: make the environment with python{least}"
        )
    absent = [name for name in (framework, "numpy") if versions.get(name) is None]
    missing = tuple(name for name in LIGHT_PACKAGES if versions.get(name) is None)
    if version[:2] != sys.version_info[:2]:  # compiled packages of this one do not fit
        absent += missing
    if absent:
        names = ", ".join(absent)
        raise UserError(
            f"{option}: {path} has no {names}; install with: {path} -m pip install "
            + " ".join(name.replace("_", "-") for name in absent)
        )
    if framework == "mindspore" and str(versions["numpy"]).startswith("2"):
        raise UserError(
            f"{option}: MindSpore computes wrong numbers with NumPy {versions['numpy']}; "
            f"{path} -m pip install 'numpy<2'"
        )
    return Interpreter(path, version, escape_unprintable(str(versions[framework])), missing)


def user_paths(paths: Iterable[str]) -> list[str]:
    """Return the entries of a module search path that are the user's, in order: without those of
    this interpreter's installation, whose packages another interpreter must not import."""
    named = sysconfig.get_paths()
    installed = {named[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    installed |= {*site.getsitepackages(), site.getusersitepackages()}
    return [path for path in paths if not is_installed_path(path, sorted(installed))]


def is_installed_path(path: str, folders: Sequence[str]) -> bool:
    """Return whether a path is one of the folders, lies in one, or is any ``.zip`` archive, as that
    of the standard library is."""
    place = Path(path).resolve()
    if place.suffix == ".zip":
        return True
    return any(place.is_relative_to(Path(folder).resolve()) for folder in folders)
