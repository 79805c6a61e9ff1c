"""Comparisons block by block, without a framework: weights, blocks, inputs, verdicts, refusals."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from dualml.common.errors import TrialError, UserError
from dualml.common.words import Messages
from dualml.parity import compare
from dualml.parity.models.lockstep.exchange import RecordFolder
from dualml.parity.models.lockstep.inputs import match_inputs
from dualml.parity.models.lockstep.judge import judge_blocks
from dualml.parity.models.lockstep.memory import check_memory, estimate_bytes
from dualml.parity.models.lockstep.pairs import ParameterPairs
from dualml.parity.models.lockstep.plan import ModelOutline, find_blocks, name_blocks, pair_blocks
from dualml.parity.models.lockstep.rows import RowWriter
from dualml.parity.models.lockstep.structure import flatten
from dualml.parity.models.lockstep.weights import (
    draw_weight,
    draw_weights,
    neutral_weight,
    open_weights,
)
from dualml.parity.models.partners import Tensor
from dualml.parity.models.weights.options import WeightOptions
from dualml.report.comparison_page import block_table, comparison_page
from dualml.report.page.markdown import render_markdown

SIDES = ("torch", "mindspore")
MODULES = {
    "emb": "Embedding",
    "layers": "ModuleList",
    "layers.0": "Block",
    "layers.0.fc": "Linear",
    "layers.1": "Block",
    "layers.1.fc": "Linear",
    "act": "ReLU",
    "head": "Linear",
}
TENSORS = [
    Tensor("emb.weight", (8, 4)),
    Tensor("layers.0.fc.weight", (6, 4)),
    Tensor("layers.1.fc.weight", (6, 4)),
    Tensor("head.weight", (8, 6)),
]
OUTLINE = ModelOutline(MODULES, TENSORS)
ADAM = {"name": "adam", "lr": 1e-3}
BLOCKS = ["emb", "layers.0", "layers.1", "head"]


# Weights.
def test_a_weight_follows_from_seed_and_name_alone() -> None:
    first = draw_weight(0, "a.weight", (300, 500))
    assert first.dtype == np.float32
    assert np.array_equal(first, draw_weights(0, [Tensor("a.weight", (300, 500))])["a.weight"])
    for other in (draw_weight(1, "a.weight", (300, 500)), draw_weight(0, "b.weight", (300, 500))):
        assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 0.02
    assert abs(first.mean()) < 1e-3
    assert first.var() == pytest.approx(1 / 500, rel=0.02)


def test_blocks_of_a_long_weight_are_not_alike() -> None:
    values = draw_weight(0, "w", (1 << 17, 2)).reshape(-1)
    assert len(np.unique(values[: 1 << 16])) > 30_000
    assert not np.array_equal(values[: 1 << 16], values[1 << 16 : 1 << 17])


@pytest.mark.parametrize(
    ("name", "centre"), [("n.weight", 1), ("n.bias", 0), ("n.gamma", 1), ("n.beta", 0)]
)
def test_vectors_are_scales_or_biases(name: str, centre: float) -> None:
    drawn = draw_weight(0, name, (5000,))
    assert np.abs(drawn - centre).max() <= 0.1
    assert drawn.mean() == pytest.approx(centre, abs=0.01)
    assert (neutral_weight(name, (3,)) == centre).all()


def write_shards(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Write two files with an index; return their tensors."""
    rng = np.random.default_rng(0)
    tensors = {one.name: rng.standard_normal(one.shape, np.float32) for one in TENSORS}
    names = list(tensors)
    parts = {"model-1.safetensors": names[:2], "model-2.safetensors": names[2:]}
    for file, some in parts.items():
        save_file({name: tensors[name] for name in some}, folder / file)
    places = {name: file for file, some in parts.items() for name in some}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return tensors


@pytest.mark.parametrize("name", [".", "model.safetensors.index.json"])
def test_weights_are_read_from_several_files(tmp_path: Path, name: str) -> None:
    tensors = write_shards(tmp_path)
    arrays = open_weights(tmp_path / name, TENSORS)
    assert set(arrays) == set(tensors)
    for key, value in tensors.items():
        assert np.array_equal(arrays[key], value)
        assert arrays[key].flags.writeable


def test_bfloat16_is_read_as_float32(tmp_path: Path) -> None:
    header = {"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    numbers = np.array([0x3F80, 0xC000], np.uint16).tobytes()  # 1 and -2
    file = tmp_path / "w.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text + numbers)
    assert open_weights(file, [Tensor("w", (2,))])["w"].tolist() == [1.0, -2.0]


def test_missing_files_and_tensors_are_named(tmp_path: Path) -> None:
    write_shards(tmp_path)
    more = [*TENSORS, Tensor("norm.weight", (4,))]
    with pytest.raises(UserError, match=r"1 of 5 tensors .* norm\.weight"):
        open_weights(tmp_path, more)
    with pytest.raises(UserError, match=r"emb\.weight has shape \(8, 4\); the model has \(9, 4\)"):
        open_weights(tmp_path, [Tensor("emb.weight", (9, 4))])
    (tmp_path / "model-2.safetensors").unlink()
    with pytest.raises(UserError, match=r"1 of 2 files are missing: model-2\.safetensors"):
        open_weights(tmp_path, TENSORS)
    with pytest.raises(UserError, match="no such file or folder"):
        open_weights(tmp_path / "nothing", TENSORS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no \*\.safetensors"):
        open_weights(tmp_path / "empty", TENSORS)
    (tmp_path / "w.bin").write_bytes(b"")
    with pytest.raises(UserError, match="alone"):
        open_weights(tmp_path / "w.bin", TENSORS)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    save_file({"w": np.ones(4, np.float32)}, file)
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(UserError, match="not a readable safetensors file"):
        open_weights(file, [Tensor("w", (4,))])
    file.write_bytes(b"\xff" * 16)
    with pytest.raises(UserError, match="not a readable safetensors file"):
        open_weights(file, [Tensor("w", (4,))])


# Blocks.
def test_blocks_are_the_members_of_lists_and_what_lies_beside_them() -> None:
    assert find_blocks(OUTLINE) == BLOCKS


def test_a_model_without_a_list_is_cut_into_its_modules() -> None:
    modules = {"stem": "Conv", "body": "Part", "body.fc": "Linear"}
    tensors = [Tensor("stem.weight", (2, 2)), Tensor("body.fc.weight", (2, 2))]
    assert find_blocks(ModelOutline(modules, tensors)) == ["stem", "body"]


def test_a_list_of_one_module_is_cut_too() -> None:
    modules = {"h": "CellList", "h.0": "Block", "head": "Dense"}
    tensors = [Tensor("h.0.weight", (2, 2)), Tensor("head.weight", (2, 2))]
    assert find_blocks(ModelOutline(modules, tensors)) == ["h.0", "head"]


def test_lists_inside_of_blocks_are_not_cut() -> None:
    modules = {"h": "ModuleList"}
    tensors = []
    for i in range(2):
        modules |= {f"h.{i}": "Block", f"h.{i}.e": "ModuleList"}
        for j in range(2):
            modules[f"h.{i}.e.{j}"] = "Linear"
            tensors.append(Tensor(f"h.{i}.e.{j}.weight", (2, 2)))
    assert find_blocks(ModelOutline(modules, tensors)) == ["h.0", "h.1"]


def test_modules_with_shared_parameters_are_no_blocks() -> None:
    shared = ModelOutline(MODULES, TENSORS, ("emb.weight",))
    assert find_blocks(shared) == BLOCKS[1:]
    with pytest.raises(UserError, match="belongs to another module"):
        name_blocks(["emb"], shared)


def test_a_named_list_stands_for_its_members() -> None:
    assert name_blocks(["layers"], OUTLINE) == BLOCKS[1:3]
    assert name_blocks(["head", "layers.1"], OUTLINE) == ["head", "layers.1"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["layer"], "no module 'layer'; did you mean 'layers'"),
        (["act"], "act has no trained parameters"),
        (["layers.0", "layers.0.fc"], "layers.0.fc lies in layers.0"),
    ],
)
def test_names_of_blocks_that_cannot_be(names: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        name_blocks(names, OUTLINE)


def rename(old: str, new: str, modules: dict[str, str] = MODULES) -> ModelOutline:
    """Return the outline with another name for a module."""

    def change(name: str) -> str:
        return new + name[len(old) :] if name.split(".")[0] == old else name

    return ModelOutline(
        {change(name): kind for name, kind in modules.items()},
        [Tensor(change(one.name), one.shape) for one in TENSORS],
    )


def pair(other: ModelOutline, blocks: list[str], *, strict: bool = False) -> dict[str, str]:
    """Pair the blocks of the outline with those of another one."""
    pairs = ParameterPairs(TENSORS, other.tensors, None, SIDES)
    return pair_blocks(blocks, (OUTLINE, other), pairs.pairing, {}, SIDES, strict=strict)


def test_partners_are_the_modules_with_the_same_parameters() -> None:
    found = pair(rename("layers", "decoder"), BLOCKS)
    assert found == {
        "emb": "emb",
        "layers.0": "decoder.0",
        "layers.1": "decoder.1",
        "head": "head",
    }


def test_blocks_without_a_partner_stay_in_memory_or_are_refused() -> None:
    modules = {name: kind for name, kind in MODULES.items() if name != "emb"}
    tensors = [Tensor("table", (8, 4)), *TENSORS[1:]]
    other = ModelOutline(modules, tensors)
    assert list(pair(other, BLOCKS)) == BLOCKS[1:]
    with pytest.raises(
        UserError, match=r"1 of 4 blocks of torch have no partner in mindspore.*emb"
    ):
        pair(other, BLOCKS, strict=True)


def test_the_largest_block_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert estimate_bytes(["layers.0"], TENSORS) == (96, 4 * (32 + 24 + 48))
    check_memory(BLOCKS, TENSORS)
    huge = [Tensor("emb.weight", (10**7, 10**5))]
    with pytest.raises(UserError, match=r"the largest block has 4000\.0 GB of weights"):
        check_memory(["emb"], huge)


# Weights of the second side.
def test_weights_are_converted_to_the_layout_of_the_second_side() -> None:
    a = [Tensor("fc.weight", (6, 4)), Tensor("fc.bias", (6,)), Tensor("qkv.weight", (12, 5))]
    b = [
        Tensor("fc.weight", (4, 6)),
        Tensor("q.weight", (4, 5)),
        Tensor("k.weight", (4, 5)),
        Tensor("v.weight", (4, 5)),
        Tensor("fc.beta", (6,)),
        Tensor("norm.bias", (7,)),
    ]
    source = draw_weights(0, a)
    found = ParameterPairs(a, b, None, SIDES).convert_weights(source)
    assert np.array_equal(found["fc.weight"], source["fc.weight"].T)
    assert np.array_equal(found["k.weight"], source["qkv.weight"][4:8])
    assert np.array_equal(found["fc.beta"], source["fc.bias"])
    assert not found["norm.bias"].any()


# Inputs.
def test_inputs_are_matched_by_their_numbers() -> None:
    rng = np.random.default_rng(0)
    x, cos, sin = (rng.standard_normal((4, 4)).astype(np.float32) for _ in range(3))
    given = {"input/0": x, "input/1": cos, "input/3": sin}
    near = x * np.float32(1 + 1e-7)
    assert match_inputs({0: near, 1: sin, 2: cos}, given, [0, 1, 3]) == ({0: 0, 1: 3, 2: 1}, None)
    # A table with other numbers stays this side's own.
    assert match_inputs({0: near, 1: cos + 1}, given, [0, 1, 3]) == ({0: 0}, None)
    # An activation with other numbers is a difference, and replaced.
    assert match_inputs({0: x * 2, 2: cos}, given, [0, 1, 3]) == ({2: 1, 0: 0}, (0, 0))
    assert match_inputs({0: x[:2]}, given, [0]) == ({}, (0, 0))


def test_tensors_are_taken_out_of_nested_values() -> None:
    class Named(dict):  # type: ignore[type-arg]
        """A mapping of a type of its own."""

    value = ((1.0, "a", [2.0]), {"k": 3.0, "n": None}, Named(x=4.0))
    found, rebuild = flatten(value, lambda one: type(one) is float)
    assert found == [1.0, 2.0, 3.0, 4.0]
    made = rebuild([5.0, 6.0, 7.0, 8.0])
    assert made == ((5.0, "a", [6.0]), {"k": 7.0, "n": None}, {"x": 8.0})
    assert type(made[2]) is Named
    assert value[2] == {"x": 4.0}


def test_tensors_are_not_kept_until_garbage_is_collected() -> None:
    """Tensors of an output refer to their graph, and that to the weights of a block."""

    class Array(np.ndarray[Any, Any]):
        """An array that can be referred to weakly."""

    gc.disable()
    try:
        array = np.ones(3).view(Array)
        reference = weakref.ref(array)
        for value in (array, (array,), [array], {"x": (array, 1)}):
            tensors, rebuild = flatten(value, lambda part: isinstance(part, np.ndarray))
        del array, value, tensors
        assert reference() is None
        assert rebuild([2.0]) == {"x": (2.0, 1)}
    finally:
        gc.enable()


def test_records_are_waited_for(tmp_path: Path) -> None:
    records = RecordFolder(tmp_path / "records", 0.1)
    records.write("h.0.1", {"input/0": np.ones(2, np.float32)}, {"floats": [True]})
    found = records.wait("h.0.1")
    assert found is not None
    assert found.facts["floats"] == [True]
    assert found.arrays["input/0"].tolist() == [1, 1]
    with pytest.raises(TrialError, match=r"h\.1\.1 did not come in time"):
        records.wait("h.1.1")
    records.write("end", {}, {})
    assert records.wait("h.1.1", "end") is None
    records.delete("h.0.1")
    assert not records.has_record("h.0.1")


# Verdicts.
def judge(
    change: float = 0.0,
    *,
    role: str = "output",
    drift: float = 1e-6,
    raised: Any = None,
    random: Any = None,
    lone: str = "",
    updates: list[str] | None = None,
) -> Any:
    """Judge two blocks, of which the second lies apart by ``change``."""
    rng = np.random.default_rng(0)
    rows = RowWriter(SIDES)
    if lone:
        rows.add_parameter("h.0", "h.0.fc.bias", "h.0.fc.bias", lone, 1)
    for block in ("h.0", "h.1"):
        x = rng.standard_normal((8, 8)).astype(np.float32)
        y = x * np.float32(1 + (change if block == "h.1" else 0.0))
        inner = (f"{block}.1", f"{block}.fc", 1e-7)
        rows.add("inner", block, inner, f"{block}.fc", x, y)
        name = {
            "parameter gradient": "parameter/h.1.fc.weight",
            "update": "update/h.1.fc.weight",
            "state": "state/exp_avg/h.1.fc.weight",
        }.get(role, "output/0")
        rows.add(role, block, (f"{block}.1", name, 1e-7), "o", x, y)
    a = {
        "widths": {"h.0.1/output/0": 1e-7},
        "random": random,
        "drift": {"h.0": 1e-6, "h.1": 1e-6},
        "blocks": ["h.0", "h.1"],
        "left": [],
        "updates": updates,
        "modules": {"h.0": "Block", "h.1": "Block", "h.0.fc": "Linear", "h.1.fc": "Linear"},
        "environment": {},
    }
    b = {
        "widths": {},
        "random": None,
        "drift": {"h.0": 1e-6, "h.1": drift},
        "rows": json.loads(json.dumps(rows.describe())),
        "raised": raised,
        "mapping": [],
        "alone": [[], []],
        "lone_states": [["exp_avg"], []],
        "environment": {},
    }
    return judge_blocks(a, b, SIDES, 10.0, ["float32", "float32"])


def test_equal_blocks_are_equal_and_their_drift_is_said() -> None:
    found = judge()
    assert (found.verdict, found.first) == ("equal", None)
    assert [row["block"] for row in found.blocks] == ["h.0", "h.1"]
    assert found.describe()["blocks"][1]["drift"] == 1e-6
    assert "2 blocks" in found.paragraph()
    assert "逐块比较" in found.paragraph("zh")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_table_of_blocks_has_a_row_for_each(lang: str) -> None:
    table = block_table(judge(), Messages(lang))
    assert [str(row[0]) for row in table.rows] == ["h.0", "h.1"]
    page = render_markdown(comparison_page(judge(), Messages(lang), drawn=False))
    assert "h.1" in page
    assert "1.0e-06" in page


def test_the_place_is_the_first_module_inside_of_the_block() -> None:
    found = judge(1e-4)
    assert found.verdict == "different"
    assert (found.first.layer, found.first.type) == ("h.1.fc", "Linear")
    assert found.first.outside["tensor"] == "h.1, output 0"
    assert found.first.elements


def test_a_gradient_decides_too() -> None:
    found = judge(1e-4, role="parameter gradient")
    assert found.verdict == "different"
    assert (found.first.phase, found.first.tensor) == ("gradient", "h.1.fc.weight")
    assert found.first.layer == "h.1.fc"


@pytest.mark.parametrize(
    ("role", "tensor"), [("update", "h.1.fc.weight"), ("state", "exp_avg/h.1.fc.weight")]
)
def test_an_update_decides_too(role: str, tensor: str) -> None:
    found = judge(1e-3, role=role, updates=["h.0"])
    assert (found.verdict, found.first.phase, found.first.tensor) == ("different", role, tensor)
    assert (found.first.layer, found.first.type) == ("h.1.fc", "Linear")
    assert [row.get("update") is not None for row in found.blocks] == [role == "update"] * 2
    assert "1 blocks are called several times" in found.paragraph()
    assert "only torch names were not compared: exp_avg" in found.paragraph()
    page = render_markdown(comparison_page(found, Messages("en"), drawn=False))
    assert (" update |" in page.split("drift by")[0].rpartition("block")[2]) == (role == "update")


def test_outputs_inside_of_a_block_do_not_decide_alone() -> None:
    assert judge(1e-4, role="inner").verdict == "equal"


def test_drift_decides_where_no_block_does() -> None:
    found = judge(drift=1e-4)
    assert (found.verdict, found.reason, found.first) == ("different", "drift", None)
    assert "no block alone" in found.paragraph()


def test_an_error_of_one_side_is_a_difference_in_its_block() -> None:
    found = judge(raised={"text": "ValueError: no", "block": "h.1"})
    assert (found.verdict, found.reason) == ("different", "raised")
    assert found.first.layer == "h.1"
    assert "mindspore raised ValueError: no" in found.paragraph()


def test_a_missing_operator_is_not_comparable() -> None:
    found = judge(raised={"text": "RuntimeError: Unsupported op [Add]", "block": "h.1"})
    assert (found.verdict, found.reason) == ("not comparable", "lacks_operator")


def test_a_model_that_does_not_repeat_itself_cannot_be_compared() -> None:
    found = judge(1e-4, random={"phase": "forward", "name": "h.0", "type": "Block"})
    assert (found.verdict, found.reason) == ("not comparable", "random")
    assert "two runs of the same step differ, first in h.0" in found.paragraph()


@pytest.mark.parametrize("kind", ["alone", "trained"])
def test_a_parameter_of_one_side_is_a_difference(kind: str) -> None:
    found = judge(lone=kind)
    assert (found.verdict, found.first.kind) == ("different", kind)
    assert (found.first.layer, found.first.side) == ("h.0.fc", "mindspore")
    assert "mindspore" in found.paragraph()


# Refusals.
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocks": ["h"]}, "for a comparison with lockstep"),
        ({"lockstep": True, "weights": WeightOptions(write_map="m.toml")}, "use --weights alone"),
        ({"lockstep": True, "blocks": []}, "name at least one"),
        ({"lockstep": True, "optimizer": ADAM, "loss": "none"}, "leave the optimizer out"),
        ({"lockstep": True, "optimizer": ADAM, "steps": 2}, "received steps=2"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        compare("a.py:Net", "b.py:Net", np.ones((1, 2), np.float32), **options)
