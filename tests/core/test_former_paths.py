"""Public modules answer to their former import paths, as the very same modules."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dualml.common.former_paths import BACKEND, CORE

#: Everywhere else a former name is an error.
pytestmark = pytest.mark.filterwarnings("default:.* is now :DeprecationWarning")
VERSION_0_1: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("public_0_1.toml").read_text("utf-8")
)
#: Framework that a backend's modules import.
FRAMEWORKS = {"dualml_torch": "torch", "dualml_ms": "mindspore"}


@pytest.mark.parametrize("former", VERSION_0_1)
def test_a_former_path_is_the_same_module(former: str) -> None:
    package, _, rest = former.partition(".")
    if package in FRAMEWORKS:
        pytest.importorskip(FRAMEWORKS[package], reason=f"{FRAMEWORKS[package]} is not installed")
    module = importlib.import_module(former)
    first, moved = rest.partition(".")[0], CORE if package == "dualml" else BACKEND
    if first in moved:
        present = former.replace(f"{package}.{first}", f"{package}.{moved[first]}", 1)
        assert module is importlib.import_module(present)
        assert module.__name__ == present
        assert module.__spec__ is not None
        assert module.__spec__.name == present
    assert [name for name in VERSION_0_1[former] if not hasattr(module, name)] == []


def test_every_former_path_leads_somewhere() -> None:
    for first, present in CORE.items():
        assert importlib.import_module(f"dualml.{first}").__name__ == f"dualml.{present}"
    assert set(BACKEND) <= set(CORE)


def test_a_module_below_a_former_path_is_loaded_once() -> None:
    code = (
        "import dualml.optim.adam as former, dualml.algorithms.optim.adam as present, "
        "dualml.optim\n"
        "assert former is present and former.Adam is dualml.optim.Adam\n"
        "assert dualml.optim is dualml.algorithms.optim\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"dualml\.nothing"):
        importlib.import_module("dualml.nothing")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("dualml.optim.nothing")
