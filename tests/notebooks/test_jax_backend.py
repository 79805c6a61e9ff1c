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
