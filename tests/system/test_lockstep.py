"""Comparisons block by block of models in both frameworks."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from dualml.common.errors import UserError
from dualml.parity import ModelComparison, compare
from dualml.parity.models.lockstep.weights import draw_weight

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("torch", "mindspore"))),
        reason="both frameworks are needed",
    ),
]
HERE = Path(__file__).parent
TORCH, MS = HERE / "blocks_torch.py", HERE / "blocks_ms.py"
TOKENS = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])


def compare_blocks(a: str, b: str, **options: Any) -> ModelComparison:
    """Compare two models of the two files block by block."""
    return compare(a, b, TOKENS, lockstep=True, margin=10.0, **options)


def test_an_equal_pair_is_equal_in_every_block() -> None:
    found = compare_blocks(f"{TORCH}:Net", f"{MS}:Net")
    assert found.verdict == "equal", found.paragraph()
    assert [row["block"] for row in found.blocks] == ["emb", "layers.0", "layers.1", "head"]
    assert all(row["forward"] < 5 and row["gradient"] < 5 for row in found.blocks)
    assert found.blocks[-1]["drift"] < 10 * found.blocks[-1]["rounding"]
    assert {"forward", "loss", "gradient"} == set(found.phases)


def test_a_difference_is_found_in_its_block_and_module() -> None:
    found = compare_blocks(f"{TORCH}:Net", f"{MS}:Epsilon", loss="none")
    assert found.verdict == "different"
    assert found.first is not None
    assert (found.first.layer, found.first.type) == ("layers.1.norm", "LayerNorm")
    assert [row["forward"] > 10 for row in found.blocks] == [False, False, True, False]


def test_what_happens_between_blocks_is_seen() -> None:
    found = compare_blocks(f"{TORCH}:Net", f"{TORCH}:Scaled", loss="none")
    assert found.verdict == "different"
    assert found.first is not None
    assert found.first.tensor == "layers.0, input 0"


def test_two_mindspore_models_and_their_gradients() -> None:
    found = compare_blocks(f"{MS}:Net", f"{MS}:Detached")
    assert (found.verdict, found.sides) == ("different", ("mindspore A", "mindspore B"))
    assert found.first is not None
    assert found.first.phase == "gradient"


def test_tied_weights_stay_in_memory() -> None:
    found = compare_blocks(f"{TORCH}:Tied", f"{MS}:Tied")
    assert found.verdict == "equal", found.paragraph()
    assert [row["block"] for row in found.blocks] == ["layers.0", "layers.1"]
    assert found.phases["gradient"]["arrays"] > 8


ADAM = {"name": "adam", "lr": 1e-3}


@pytest.mark.parametrize("nets", ["Net", "Tied"])
def test_an_update_of_each_block(nets: str) -> None:
    found = compare_blocks(f"{TORCH}:{nets}", f"{MS}:{nets}", optimizer=ADAM)
    assert found.verdict == "equal", found.paragraph()
    assert found.phases["update"]["arrays"] == {"Net": 11, "Tied": 9}[nets]
    assert found.phases["state"]["arrays"] == 2 * found.phases["update"]["arrays"]
    assert all(row["update"] < 5 for row in found.blocks)
    assert "by their global norm" in found.paragraph()


def test_an_optimizer_with_other_settings_differs_in_its_state() -> None:
    pair = f"{TORCH}:make_adam", f"{MS}:make_slower_adam"
    found = compare_blocks(f"{TORCH}:Net", f"{MS}:Net", optimizer=pair)
    assert found.verdict == "different"
    assert found.first is not None
    assert (found.first.phase, found.first.tensor.partition("/")[0]) == ("state", "exp_avg")


def test_states_of_one_side_are_named() -> None:
    found = compare_blocks(
        f"{TORCH}:Net", f"{MS}:Net", optimizer=(f"{TORCH}:make_adam", f"{MS}:make_sgd")
    )
    assert found.verdict == "different"
    assert "only torch names were not compared: exp_avg, exp_avg_sq" in found.paragraph()


def test_an_error_ends_both_sides() -> None:
    found = compare_blocks(f"{TORCH}:Net", f"{MS}:Raising")
    assert (found.verdict, found.reason) == ("different", "raised")
    assert found.first is not None
    assert found.first.layer == "layers.1"
    assert "no such rotation" in found.paragraph()


def test_dropout_draws_the_same_numbers_on_both_sides() -> None:
    found = compare_blocks(f"{TORCH}:Dropping", f"{MS}:Dropping")
    assert found.verdict == "equal", found.paragraph()


def test_a_bias_that_one_side_has_alone() -> None:
    found = compare_blocks(f"{TORCH}:Unbiased", f"{MS}:Net")
    assert found.verdict == "different"
    assert found.first is not None
    assert (found.first.kind, found.first.tensor) == ("alone", "head.bias")


def test_weights_of_a_file_and_named_blocks(tmp_path: Path) -> None:
    shapes = {"emb.weight": (10, 8), "head.weight": (10, 8), "head.bias": (10,)}
    for i in range(2):
        shapes |= {f"layers.{i}.{n}.{w}": (8,) for n in ("fc", "norm") for w in ("weight", "bias")}
        shapes[f"layers.{i}.fc.weight"] = (8, 8)
    save_file({n: draw_weight(7, n, s) for n, s in shapes.items()}, tmp_path / "w.safetensors")
    argv = ["--blocks", "layers", "--weights", str(tmp_path), "--loss", "none", "--json"]
    np.savez(tmp_path / "x.npz", x=TOKENS)
    program = [sys.executable, "-m", "dualml", "compare", f"{TORCH}:Net", f"{MS}:Net"]
    done = subprocess.run(
        [*program, "--inputs", str(tmp_path / "x.npz"), "--lockstep", *argv],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert [row["block"] for row in said["blocks"]] == ["layers.0", "layers.1"]


def test_a_block_whose_weights_are_used_elsewhere_is_refused() -> None:
    with pytest.raises(UserError, match="used outside of the call of this block"):
        compare_blocks(f"{TORCH}:Borrowing", f"{MS}:Net", loss="none")
