"""The example of a third backend is discovered, equals the reference, and passes the suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conformance.backends import require

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "examples" / "third_backend"
ENTRY = "[dualml.backends]\njax = dualml_jax:info\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a process in which `pip install -e` was run."""
    require("jax")
    assert ENTRY.splitlines()[1].replace("dualml_jax:info", '"dualml_jax:info"') in (
        SOURCE / "pyproject.toml"
    ).read_text("utf-8")
    site = tmp_path_factory.mktemp("site")
    meta = site / "dualml_jax-0.1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: dualml-jax\nVersion: 0.1.0\n")
    (meta / "entry_points.txt").write_text(ENTRY)
    paths = [str(site), str(SOURCE), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "DUALML_CONFORMANCE": "jax"}


def python(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", *words],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_lab1_is_equal_to_the_referee(installed: dict[str, str], tmp_path: Path) -> None:
    done = python(
        installed,
        "dualml",
        "run",
        "lab1",
        "--quick",
        "--backend",
        "jax,numpy",
        "--arm",
        "adam",
        "--set",
        "arms.adam.epochs=1",
        "--out",
        str(tmp_path / "run"),
        "--no-report",
        "--no-find",
        "--json",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout)
    assert [trial["status"] for trial in summary["trials"]] == ["ok", "ok"]
    assert [each["verdict"] for each in summary["parity"]] == ["equal"]


@pytest.mark.timeout(700)
def test_rules_layers_and_updates_conform(installed: dict[str, str]) -> None:
    """The suite passes; two of its models are the MLP with other widths."""
    words = "-q", "-p", "no:cacheprovider", "--timeout=600", "-k", "not wide_mlp and not deep_mlp"
    files = [f"tests/conformance/test_{name}.py" for name in ("optim", "training")]
    done = python(installed, "pytest", *words, *files)
    assert done.returncode == 0, done.stdout[-3000:]


def test_several_ranks_are_unsupported_for_a_reason(
    installed: dict[str, str], tmp_path: Path
) -> None:
    done = python(
        installed,
        "dualml",
        "run",
        "lab3",
        "--quick",
        "--backend",
        "jax",
        "--arm",
        "nodes-n2",
        "--out",
        str(tmp_path / "run"),
        "--no-report",
        "--no-find",
        "--json",
    )
    assert done.stdout, done.stderr[-3000:]
    (trial,) = json.loads(done.stdout)["trials"]
    assert trial["status"] == "unsupported"
    assert "no process groups" in trial["reason"]


NET_TORCH = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.head = nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(nn.functional.gelu(self.norm(self.fc(x))))
"""
NET_JAX = """
import jax
import numpy as np


class Net:
    def __init__(self):
        self.parameters = {
            "fc": {"weight": np.zeros((6, 8), "f4"), "bias": np.zeros(6, "f4")},
            "norm": {"weight": np.ones(6, "f4"), "bias": np.zeros(6, "f4")},
            "head": {"weight": np.zeros((3, 6), "f4"), "bias": np.zeros(3, "f4")},
        }

    def __call__(self, parameters, x):
        fc, norm, head = (parameters[name] for name in ("fc", "norm", "head"))
        y = x @ fc["weight"].T + fc["bias"]
        y = y - y.mean(-1, keepdims=True)
        y = y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)
        y = jax.nn.gelu(y * norm["weight"] + norm["bias"], approximate=APPROXIMATE)
        return y @ head["weight"].T + head["bias"]
"""


@pytest.mark.parametrize(("approximate", "verdict"), [(False, "equal"), (True, "different")])
def test_a_model_in_jax_is_compared_with_its_original(
    installed: dict[str, str], tmp_path: Path, approximate: bool, verdict: str
) -> None:
    (tmp_path / "net_torch.py").write_text(NET_TORCH)
    (tmp_path / "net_jax.py").write_text(NET_JAX.replace("APPROXIMATE", str(approximate)))
    models = f"{tmp_path / 'net_torch.py'}:Net", f"{tmp_path / 'net_jax.py'}:Net"
    options = "--shape", "4,8", "--optimizer", "adam", "--lr", "0.001", "--steps", "2", "--json"
    done = python(installed, "dualml", "compare", *models, *options)
    assert done.returncode == (0 if verdict == "equal" else 3), done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert (found["verdict"], found["sides"]) == (verdict, ["torch", "jax"])
    assert set(found["phases"]) == {"forward", "loss", "gradient", "update", "state"}
    assert found["explanation"] is None
    if verdict == "different":
        assert (found["first"]["phase"], found["first"]["tensor"]) == ("forward", "(output)")


def test_what_is_no_jax_model_is_said(installed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "net_torch.py").write_text(NET_TORCH)
    (tmp_path / "net_jax.py").write_text("import jax\n\n\ndef net():\n    return jax.nn.relu\n")
    models = f"{tmp_path / 'net_torch.py'}:Net", f"{tmp_path / 'net_jax.py'}:net"
    done = python(installed, "dualml", "compare", *models, "--shape", "4,8")
    assert done.returncode == 2
    assert "no model of this framework" in done.stderr
    # A slow machine also says every few seconds what it is doing.
    lines = [line for line in done.stderr.strip().splitlines() if not line.startswith("… ")]
    assert len(lines) == 1
