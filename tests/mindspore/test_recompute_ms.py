"""MindSpore's compiler duplicates operators where activations are recomputed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mindspore")

SCRIPT = Path(__file__).with_name("recompute_case.py")


def operators(setting: str, folder: Path) -> dict[str, int]:
    """Return the operator counts in the executed graph of two attention blocks and a head."""
    words = [sys.executable, str(SCRIPT), setting, str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (last,) = folder.rglob("hwopt_pm_*_print_value_type_*.ir")
    text = last.read_text("utf-8")
    names = ("Softmax", "BatchMatMul", "LayerNorm", "Gather")
    return {name: len(re.findall(rf"= (?:PrimFunc_)?{name}\(", text)) for name in names}


@pytest.mark.timeout(400)
def test_what_is_computed_again_stands_twice_in_the_graph(tmp_path: Path) -> None:
    kept, selective, full = (
        operators(setting, tmp_path / setting) for setting in ("none", "selective", "full")
    )
    assert (kept["Softmax"], kept["LayerNorm"], kept["Gather"]) == (2, 5, 1)
    # Two blocks: their softmax, and the scores before it.
    assert selective == {**kept, "Softmax": 4, "BatchMatMul": kept["BatchMatMul"] + 2}
    # Besides the embedding, and four of five norms: the last stands behind the blocks.
    assert (full["Softmax"], full["LayerNorm"], full["Gather"]) == (4, 9, 2)
