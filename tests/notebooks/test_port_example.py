"""The project of examples/port_under_test, tested as its own workflow tests it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conformance.backends import require

PROJECT = Path(__file__).resolve().parents[2] / "examples" / "port_under_test"


@pytest.mark.timeout(450)
def test_the_port_is_under_test(tmp_path: Path) -> None:
    """The example passes as it is, and fails without any one of the settings in its comments."""
    require("torch")
    require("mindspore")
    own = tmp_path / "project"
    shutil.copytree(PROJECT, own)
    words = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_port.py"]

    def tested() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=own, capture_output=True, text=True, timeout=200, check=False
        )

    done = tested()
    assert done.returncode == 0, done.stdout[-3000:]
    assert "1 passed" in done.stdout
    port = own / "net_ms.py"
    text = port.read_text("utf-8")
    assert text.count(", epsilon=1e-5") == 1
    port.write_text(text.replace(", epsilon=1e-5", ""), "utf-8")
    done = tested()
    assert done.returncode == 1, done.stdout[-3000:]
    assert "(layer_norm) is 1e-07 in mindspore, 1e-05 in torch" in done.stdout
