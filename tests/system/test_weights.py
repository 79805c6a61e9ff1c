"""Real weights: loaded into the side that they fit, carried to the other, written and loaded
back."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dualml.common.errors import UserError
from dualml.parity import compare
from dualml.parity.models.layouts import apply_words
from dualml.parity.models.weights.map_file import read_map_file
from dualml.parity.models.weights.map_only import pair_models
from dualml.parity.models.weights.mindspore_file import index_checkpoint
from dualml.parity.models.weights.options import WeightOptions

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("torch", "mindspore"))),
        reason="both frameworks are needed",
    ),
]
HERE = Path(__file__).parent
TORCH, MS = f"{HERE / 'weights_torch.py'}:Net", HERE / "weights_ms.py"
X = np.arange(10).reshape(2, 5)
SHAPES = {
    "embedding.weight": (20, 32),
    "block.norm.weight": (32,),
    "block.norm.bias": (32,),
    "block.qkv.weight": (96, 32),
    "block.qkv.bias": (96,),
    "block.out.weight": (32, 32),
    "block.out.bias": (32,),
}


def write_weights(path: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    values = {n: 0.3 * rng.normal(size=s).astype(np.float32) for n, s in SHAPES.items()}
    save_file(values, path)
    return values


def test_weights_go_to_the_port_and_back(tmp_path: Path) -> None:
    values = write_weights(tmp_path / "model.safetensors")
    there = WeightOptions(
        tmp_path, write_map=tmp_path / "map.toml", write_weights=tmp_path / "port.ckpt"
    )
    found = compare(TORCH, f"{MS}:Net", X, weights=there)
    assert found.verdict == "equal", found.paragraph()
    assert "7 tensors, which fit torch" in found.paragraph()
    assert "loaded back by mindspore, they are the same bit for bit" in found.paragraph()
    port = {
        name: tensor.read() for name, tensor in index_checkpoint(tmp_path / "port.ckpt").items()
    }
    assert port["tokens.embedding_table"].tobytes() == values["embedding.weight"].tobytes()
    assert port["layer.wk.weight"].tobytes() == values["block.qkv.weight"][32:64].tobytes()

    back = WeightOptions(tmp_path / "port.ckpt", write_weights=tmp_path / "back.safetensors")
    paired = pair_models(TORCH, f"{MS}:Net", map=read_map_file(tmp_path / "map.toml"), weights=back)
    assert paired.is_complete, paired.paragraph()
    assert {row["how"] for row in paired.described["pairs"]} == {"asked"}
    returned = load_file(tmp_path / "back.safetensors")
    assert returned.keys() == {*values, "head.weight"}
    assert all(returned[name].tobytes() == value.tobytes() for name, value in values.items())

    with pytest.raises(UserError, match=r"map\.toml exists; --force overwrites it"):
        compare(TORCH, f"{MS}:Net", X, weights=replace(there, weights=None))


def test_rotary_embeddings_of_the_other_kind_are_found(tmp_path: Path) -> None:
    values = write_weights(tmp_path / "model.safetensors")
    options = WeightOptions(
        tmp_path / "model.safetensors",
        write_map=tmp_path / "map.json",
        write_weights=tmp_path / "port.safetensors",
    )
    found = compare(TORCH, f"{MS}:Pairs", X, weights=options)
    assert found.verdict == "equal", found.paragraph()
    assert "interleave:4" in found.paragraph()
    assert "旋转" in found.paragraph("zh")
    described = json.loads((tmp_path / "map.json").read_text())
    (row,) = [r for r in described["pairs"] if r["a"] == "block.qkv.weight[0]"]
    assert (row["b"], row["a_to_b"], row["b_to_a"]) == (
        "layer.wq.weight",
        ["interleave:4"],
        ["deinterleave:4"],
    )
    port = load_file(tmp_path / "port.safetensors")
    expected = apply_words(values["block.qkv.weight"][:32], ["interleave:4"], (32, 32))
    assert port["layer.wq.weight"].tobytes() == expected.tobytes()


def test_a_map_that_lacks_a_partner_is_incomplete() -> None:
    found = pair_models(f"{HERE / 'sides_torch.py'}:Net", f"{HERE / 'sides_ms.py'}:Plain")
    assert not found.is_complete
    assert "has no partner" in found.paragraph()
    assert "没有对应" in found.paragraph("zh")
    assert found.describe()["schema"] == "dualml.map/1"
