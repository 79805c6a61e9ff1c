"""Options about weight files and maps are checked; a map is written and read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from weight_files import draw_arrays, side_model, write_ckpt

from dualml.common.errors import UserError
from dualml.interface.schemas import schema_text
from dualml.parity.models.cuts import plan_cuts
from dualml.parity.models.mapping import match_tensors
from dualml.parity.models.pairing import MatchedTensors
from dualml.parity.models.partners import Tensor
from dualml.parity.models.pieces import cut_tensors
from dualml.parity.models.weights.fitting import SideModel
from dualml.parity.models.weights.loading import TiedValues
from dualml.parity.models.weights.map_file import describe_map, read_map_file, write_map
from dualml.parity.models.weights.map_only import ModelMap
from dualml.parity.models.weights.options import WeightOptions
from dualml.parity.models.weights.writing import encode_values

A = {"qkv.weight": (8, 4), "q.weight": (4, 6), "fc.weight": (2, 3), "emb.weight": (7, 4)}
B = {"a.weight": (2, 4), "b.weight": (6, 4), "wq.weight": (6, 4), "fc.weight": (3, 2)}
ASKED = {
    "qkv.weight": ["a.weight", "b.weight", "groups:2"],
    "q.weight": ["wq.weight", "interleave:2", "transpose"],
}


def make_map(b: dict[str, tuple[int, ...]], asked: Any = ASKED) -> tuple[Any, MatchedTensors]:
    stored = {name: [name] for name in A} | {"emb.weight": ["emb.weight", "head.weight"]}
    models = SideModel("torch", side_model("", A).tensors, stored), side_model("mindspore", b)
    a, other = list(models[0].tensors), list(models[1].tensors)
    cuts = plan_cuts(a, other, asked)
    first, second = cut_tensors(a, cuts[0]), cut_tensors(other, cuts[1])
    pairing = match_tensors(first, second, asked, complete=False)
    return models, MatchedTensors(pairing, first, second, cuts)


@pytest.mark.parametrize("suffix", ["json", "toml"])
def test_a_written_map_is_read_again(tmp_path: Path, suffix: str) -> None:
    b = {**B, "e.table": (7, 4), "head.weight": (7, 4)}
    models, matched = make_map(b, {**ASKED, "emb.weight": "e.table"})
    described = describe_map(models, matched)
    Draft202012Validator(json.loads(schema_text("map"))).validate(described)
    assert described["complete"]  # the head is the embedding on the first side
    assert described["a"]["tied"] == {"head.weight": "emb.weight"}
    write_map(tmp_path / f"map.{suffix}", described)
    asked = read_map_file(tmp_path / f"map.{suffix}")
    assert asked["q.weight"] == ["wq.weight", "interleave:2", "transpose"]
    assert asked["fc.weight"] == ["fc.weight", "transpose"]
    _, again = make_map(b, asked)
    assert again.cuts == matched.cuts
    assert getattr(again.cuts[0]["qkv.weight"], "groups", 1) == 2
    changes = [{(p.a, p.b, p.change) for p in m.pairing.pairs} for m in (matched, again)]
    assert changes[0] == changes[1]


def test_what_has_no_partner_is_named_with_the_reason() -> None:
    models, matched = make_map({**B, "extra.weight": (7, 5)})
    described = describe_map(models, matched)
    assert not described["complete"]
    (row,) = described["a"]["unpaired"]
    assert row["name"] == "emb.weight"
    assert row["why"].endswith("the nearest is extra.weight (7, 5)")
    text = ModelMap(described).paragraph()
    assert "torch: the parameter emb.weight (7, 4) has no partner" in text
    assert "1 interleave:2 + transpose" in text


def test_values_of_shared_tensors() -> None:
    tied = TiedValues({"emb.weight": ["emb.weight", "lm_head.weight"], "x": ["x"]})
    value = np.ones((3, 2))
    assert tied(Tensor("model.lm_head.weight", (3, 2)), {"emb.weight": value}) is value
    assert tied(Tensor("lm_head.weight", (3, 2)), {}) is None
    assert tied(Tensor("lm_head.weight", (3, 3)), {"emb.weight": value}) is None
    assert tied(Tensor("x", (3, 2)), {"emb.weight": value}) is None


def test_values_as_they_are_stored() -> None:
    values = np.array([1.0, 1.0 + 2**-9, -3.0], np.float64)
    assert encode_values(values, "BF16")[1].tolist() == [0x3F80, 0x3F80, 0xC040]
    kind, half = encode_values(values, "F16")
    assert (kind, half.dtype) == ("F16", np.float16)
    assert encode_values(np.array([3]), "F32")[0] == "I64"
    with pytest.raises(UserError, match="cannot be written"):
        encode_values(np.array(["a"]), "F32")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"side": "c"}, "is a or b; received 'c'"),
        ({"side": "a"}, "need --weights"),
        ({"weights": "none.ckpt"}, "there is no file or folder"),
        ({"weights": "w.ckpt", "prefix": "q."}, r"no name in .* begins with 'q\.'"),
        ({"write_map": "map.yaml"}, r"must end in \.json or \.toml"),
        ({"write_map": "no/map.json"}, "there is no folder"),
        ({"write_weights": "w.pt"}, r"must end in \.safetensors or \.ckpt"),
        ({"write_weights": "w.ckpt"}, "w.ckpt exists; --force overwrites it"),
        (
            {"weights": "w.ckpt", "write_weights": "w.ckpt", "overwrite": True},
            "is the file that the weights are read from",
        ),
        ({"write_weights": "folder.ckpt", "overwrite": True}, "is a folder, not a file"),
    ],
)
def test_options_that_cannot_be_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_ckpt(Path("w.ckpt"), draw_arrays({"fc.weight": (2,)}))
    Path("folder.ckpt").mkdir()
    with pytest.raises(UserError, match=said):
        WeightOptions(**options).check()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "a map is a table of names; this is a list"),
        ('{"a": 3}', "must be a name or"),
        ('{"pairs": [{"a": "x"}]}', "not a map that --write-map wrote"),
        ("{", "map.json"),
    ],
)
def test_maps_that_are_none(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "map.json").write_text(text)
    with pytest.raises(UserError, match=said):
        read_map_file(tmp_path / "map.json")
