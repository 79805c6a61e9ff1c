"""The layering rule, by reading the imports and by importing everything with frameworks blocked."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = {"torch", "torchvision", "mindspore"}
BACKENDS = {"dualml_torch", "dualml_ms"}
#: package → modules it may not import.
FORBIDDEN = {
    "dualml": FRAMEWORKS | BACKENDS,
    "dualml_torch": {"mindspore", "dualml_ms"},
    "dualml_ms": {"torch", "torchvision", "dualml_torch"},
}
#: Rooms only one backend has, and why.
ONLY_TORCH = {
    "optim/compiled.py": "torch.compile is a choice; MindSpore's graph mode always compiles",
    "gloo.py": "MindSpore's receiving threads wait for their locks",
    "rpc.py": "MindSpore has no remote procedure calls",
    "rpc_agent.py": "MindSpore has no remote procedure calls",
    "rpc_served.py": "MindSpore has no remote procedure calls",
    "overlap.py": "MindSpore's executor on a CPU does not send while it computes",
    "optim/foreach.py": "torch's multi-tensor kernels; MindSpore fuses inside the graph",
}
ONLY_MS = {
    "optim/rates.py": "nn.Optimizer rounds a fixed rate among changing ones; param_groups do not",
    "isa.py": "the slow convolution is a trap of the oneDNN that MindSpore bundles",
    "isa_probe.py": "MindSpore compiles only what stands in a file",
    "split_cells.py": "every pass of a part is a compiled cell; torch's autograd needs none",
}
#: What the first answer of the command line must not wait for.
HEAVY = ("numpy", "scipy", "pydantic", "sklearn", "pooch", "markupsafe", "requests")


def imports(source: str) -> set[str]:
    """Top-level names of every import, also inside functions and ``importlib.import_module``."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Call) and node.args:
            called = node.func
            name = getattr(called, "attr", getattr(called, "id", ""))
            first = node.args[0]
            if name in ("import_module", "__import__") and isinstance(first, ast.Constant):
                found.add(str(first.value).partition(".")[0])
    return found


def files(package: str) -> dict[str, str]:
    """Path inside the package → source."""
    folder = ROOT / package
    paths = sorted(folder.rglob("*.py"))
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in paths}


def test_imports_finds_every_kind() -> None:
    code = (
        "import a.b\n"
        "from c.d import e\n"
        "from . import near\n"
        "def f():\n"
        "    import g\n"
        "    importlib.import_module('h.i')\n"
        "    __import__('j')\n"
        "if TYPE_CHECKING:\n"
        "    from k import l\n"
    )
    assert imports(code) == {"a", "c", "g", "h", "j", "k"}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_file_imports_what_its_layer_must_not(package: str) -> None:
    sources = files(package)
    assert sources
    wrong = {name: imports(text) & FORBIDDEN[package] for name, text in sources.items()}
    assert {name: bad for name, bad in wrong.items() if bad} == {}


def test_the_backends_have_the_same_rooms() -> None:
    torch, ms = set(files("dualml_torch")), set(files("dualml_ms"))
    assert torch - ms == set(ONLY_TORCH)
    assert ms - torch == set(ONLY_MS)


#: Refuses the frameworks, then imports every module of the core and the two backends' light rooms.
BLOCKED = """
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError("refused: " + name)

sys.meta_path.insert(0, Refuse())
import dualml
names = ["dualml"] + [m.name for m in pkgutil.walk_packages(dualml.__path__, "dualml.")]
names = [n for n in names if n != "dualml.__main__"]
for name in names + {light!r}:
    importlib.import_module(name)
loaded = {{n.partition(".")[0] for n in sys.modules}} & set({blocked!r})
assert not loaded, loaded
print(len(names))
"""


def python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_core_imports_with_both_frameworks_and_backends_refused() -> None:
    done = python(BLOCKED.format(blocked=sorted(FRAMEWORKS | BACKENDS), light=[]))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_what_the_parent_process_asks_of_a_backend_needs_no_framework() -> None:
    light = [
        *("dualml_torch", "dualml_torch.environ", "dualml_torch.doctor"),
        *("dualml_ms", "dualml_ms.environ", "dualml_ms.isa", "dualml_ms.doctor"),
    ]
    done = python(BLOCKED.format(blocked=sorted(FRAMEWORKS), light=light))
    assert done.returncode == 0, done.stderr


def test_the_refusal_refuses() -> None:
    done = python(BLOCKED.format(blocked=["json"], light=["json.tool"]))
    assert done.returncode != 0
    assert "refused: json" in done.stderr


@pytest.mark.parametrize("module", ["dualml.cli", "dualml.cli.app"])
def test_the_command_line_starts_without_anything_heavy(module: str) -> None:
    done = python(f"import {module}", "-X", "importtime")
    assert done.returncode == 0, done.stderr
    loaded = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "dualml" in loaded
    assert loaded & {*HEAVY, *FRAMEWORKS, *BACKENDS} == set()
