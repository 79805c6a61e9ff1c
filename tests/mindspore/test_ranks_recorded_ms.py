"""Two data-parallel ranks of MindSpore are compared with one process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dualml.common.errors import UserError
from dualml.parity import compare_traces

if "mindspore" in os.environ.get("DUALML_REQUIRE", "").split(","):
    import mindspore as ms
else:
    ms = pytest.importorskip("mindspore")
from dualml_ms.algorithms import rendezvous
from dualml_ms.record import Recorder

SCRIPT = Path(__file__).with_name("rank_cases_ms.py")
#: Seconds for one recording.
LIMIT_S = 120


def record(folder: Path, kind: str) -> Path:
    """Record one kind of training into a folder."""
    command = [str(SCRIPT), str(folder / kind), kind]
    if kind == "one":
        command = [sys.executable, *command]
    else:
        launcher = shutil.which("msrun", path=str(Path(sys.executable).parent))
        if launcher is None:
            pytest.skip("msrun is not installed")
        port = rendezvous.free_port("127.0.0.1")
        command = [
            launcher,
            "--worker_num=2",
            "--local_worker_num=2",
            "--master_addr=127.0.0.1",
            f"--master_port={port}",
            "--join=True",
            f"--log_dir={folder / kind}-logs",
            *command,
        ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / kind


@pytest.mark.system
def test_data_parallel_ranks_are_compared_with_one_process(tmp_path: Path) -> None:
    one = record(tmp_path, "one")
    found = compare_traces(one, record(tmp_path, "right"))
    assert found.equal, found.paragraph()
    assert found.phases["gradient"]["arrays"] == 4
    assert found.phases["forward"]["arrays"] >= 2
    wrong = compare_traces(one, record(tmp_path, "sum"))
    assert wrong.verdict == "different"
    assert "ranks_summed_over_ranks" in [note.key for note in wrong.notes]


def test_a_group_without_communication_is_refused(tmp_path: Path) -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    cell = ms.nn.Dense(2, 1)
    with pytest.raises(UserError, match="name of a communication group"):
        Recorder(cell, tmp_path, group=3)
    with pytest.raises(UserError, match=r"communication\.init\(\)"):
        Recorder(cell, tmp_path, group=True)
