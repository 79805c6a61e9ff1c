"""Find whose weights a file has: names and shapes of both sides, and what helps where they do not
fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from weight_files import draw_arrays, side_model

from dualml.common.errors import UserError
from dualml.parity.models.partners import Tensor
from dualml.parity.models.weights.fitting import SideModel, changed_prefix, find_side
from dualml.parity.models.weights.opening import open_weights
from dualml.parity.models.weights.stored import WeightFiles

TORCH = {"net.fc.weight": (3, 4), "net.norm.weight": (3,), "net.norm.bias": (3,)}
MS = {"layers.dense.weight": (3, 4), "layers.norm.gamma": (3,), "layers.norm.beta": (3,)}
SIDES = side_model("torch", TORCH), side_model("mindspore", MS)


def files_of(folder: Path, shapes: dict[str, tuple[int, ...]]) -> WeightFiles:
    save_file(draw_arrays(shapes), folder / "w.safetensors")
    return open_weights(folder / "w.safetensors")


def test_the_side_that_they_fit_is_found(tmp_path: Path) -> None:
    assert find_side(files_of(tmp_path, TORCH), SIDES)[0] == "a"
    letter, fit = find_side(files_of(tmp_path, {**MS, "global_step": (1,)}), SIDES)
    assert (letter, list(fit.unexpected)) == ("b", ["global_step"])


def test_buffers_may_be_missing_and_other_names_of_tied_tensors_count(tmp_path: Path) -> None:
    tensors = [Tensor("emb.weight", (5, 2)), Tensor("mask", (2, 2), trained=False)]
    side = SideModel("torch", tensors, {"emb.weight": ["emb.weight", "head.weight"], "mask": []})
    letter, fit = find_side(files_of(tmp_path, {"head.weight": (5, 2)}), (side, SIDES[1]))
    assert (letter, fit.found, fit.buffers) == ("a", {"emb.weight": "head.weight"}, ["mask"])


def test_weights_that_fit_neither_side_name_the_closest(tmp_path: Path) -> None:
    shapes = {**TORCH, "net.fc.weight": (3, 5), "net.extra": (2,)}
    del shapes["net.norm.bias"]
    with pytest.raises(UserError) as error:
        find_side(files_of(tmp_path, shapes), SIDES)
    assert str(error.value).partition("fits ")[2] == (
        "neither side; the closest is torch: 1 of 3 parameters of torch fit; missing in the file: "
        "net.norm.bias (3,); other shapes: net.fc.weight (3, 5) in the file, (3, 4) in the model; "
        "only in the file: net.extra"
    )


@pytest.mark.parametrize("cut", ["net.", "=model.", "net.=encoder."])
def test_a_prefix_that_would_help_is_named(tmp_path: Path, cut: str) -> None:
    old, _, new = cut.partition("=")
    files = files_of(tmp_path, TORCH)
    shapes = {new + name.removeprefix(old): shape for name, shape in TORCH.items()}
    sides = side_model("torch", shapes), SIDES[1]
    with pytest.raises(UserError, match=r"with --weights-prefix .* 3 of 3 tensors of torch") as e:
        find_side(files, sides)
    assert f"--weights-prefix {cut} 3" in str(e.value)
    assert find_side(files.rename(cut), sides)[0] == "a"


def test_weights_that_fit_both_sides(tmp_path: Path) -> None:
    files = files_of(tmp_path, TORCH)
    assert find_side(files, (SIDES[0], SIDES[0]))[0] == "a"
    wider = SideModel("torch B", [*SIDES[0].tensors, Tensor("t", (), trained=False)], {"t": []})
    assert find_side(files, (SIDES[0], wider))[0] == "a"
    more = side_model("torch B", {name: TORCH[name] for name in list(TORCH)[:2]})
    assert find_side(files, (SIDES[0], more))[0] == "a"  # it leaves nothing over
    assert find_side(files, (SIDES[0], more), "b")[0] == "b"
    ambiguous = SideModel("torch B", SIDES[0].tensors[:2], {"net.norm.weight": list(TORCH)[1:]})
    with pytest.raises(UserError, match="fits both sides, torch and torch B"):
        find_side(files, (SIDES[0], ambiguous))


def test_quantized_weights_are_refused(tmp_path: Path) -> None:
    arrays = draw_arrays(TORCH)
    arrays["net.fc.weight"] = np.ones((3, 4), np.int8)
    save_file(arrays, tmp_path / "w.safetensors")
    with pytest.raises(
        UserError, match=r"1 of 3 parameters are no real numbers: net.fc.weight \(I8"
    ):
        find_side(open_weights(tmp_path / "w.safetensors"), SIDES)


def test_the_beginning_that_differs() -> None:
    assert changed_prefix("a.b.c", "c") == "a.b."
    assert changed_prefix("c", "a.c") == "=a."
