"""Users' own models in both frameworks: correct ports, wrong ports, recorded scripts."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.parity import ModelComparison, compare, compare_traces
from dualml.parity.testing import assert_parity

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("torch", "mindspore"))),
        reason="both frameworks are needed",
    ),
]
HERE = Path(__file__).parent
TORCH, MS = HERE / "ports_torch.py", HERE / "ports_ms.py"


def draw(*shape: int) -> Any:
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


def mixed_batch() -> tuple[list[Any], Any]:
    rng = np.random.default_rng(0)
    return [draw(6, 1, 4, 4), rng.integers(0, 10, (6, 7))], rng.integers(0, 3, 6)


def judged(port: str, **options: Any) -> ModelComparison:
    inputs, targets = mixed_batch()
    return compare(
        f"{TORCH}:Mixed", f"{MS}:{port}", inputs, targets=targets, loss="cross_entropy", **options
    )


def dualml(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "dualml", *map(str, words)],
        text=True,
        capture_output=True,
        timeout=120,
        cwd=tempfile.gettempdir(),
        check=False,
    )


def test_a_correct_port_is_equal_over_three_steps() -> None:
    found = judged("Mixed", optimizer={"name": "adam", "lr": 1e-3}, steps=3)
    assert found.verdict == "equal", found.paragraph()
    assert found.steps == 3
    assert 0 < found.worst < 5
    assert found.tolerance == "measured"
    assert set(found.phases) == {"forward", "loss", "gradient", "update", "state"}
    assert {m["how"] for m in found.mapping} == {"name", "word", "role"}
    told = {m["a"]: m["b"] for m in found.mapping}
    assert told["features.1.running_var"] == "conv.1.moving_variance"
    assert json.loads(json.dumps(found.describe()))["worst_ratio"] == found.worst
    assert "相等" in found.paragraph("zh")


def test_a_default_epsilon_is_found_in_its_layer() -> None:
    found = judged("Eps")
    assert found.verdict == "different"
    assert found.first is not None
    assert (found.first.step, found.first.phase, found.first.layer) == (1, "forward", "norm")
    assert found.first.elements
    assert "`eps` of `norm` (layer_norm) is 1e-07 in mindspore, 1e-05 in torch" in found.paragraph()
    assert found.explanation is not None
    assert found.explanation["equal"]
    (cause,) = found.explanation["causes"]
    names = [
        (one["name"], Path(one["place"]["file"]).name) for one in (cause["place"], cause["other"])
    ]
    assert names == [("layer_norm", TORCH.name), ("LayerNorm", MS.name)]
    assert "self.norm(" in cause["other"]["place"]["code"]


def test_a_default_formula_is_found_from_the_command_line(tmp_path: Path) -> None:
    inputs, targets = mixed_batch()
    np.savez(tmp_path / "in.npz", image=inputs[0], tokens=inputs[1], y=targets)
    done = dualml(
        "compare",
        f"{TORCH}:Mixed",
        f"{MS}:Tanh",
        "--inputs",
        tmp_path / "in.npz",
        "--loss",
        "cross_entropy",
        "--optimizer",
        "adam",
        "--json",
    )
    assert done.returncode == 3, done.stderr
    first = json.loads(done.stdout)["first"]
    assert (first["step"], first["phase"], first["layer"]) == (1, "forward", "act")
    assert first["type"] == "GELU"


def test_another_shape_is_found_though_the_port_raises_later() -> None:
    found = judged("Stride")
    assert found.verdict == "different"
    assert found.first is not None
    assert (found.first.layer, found.first.kind) == ("features.3", "shape")
    assert "(6, 4, 2, 2)" in found.paragraph()
    assert "mindspore raised" in found.paragraph()


@pytest.mark.parametrize(
    ("port", "said", "entry"),
    [
        ("NoBias", "(conv2d) has no bias in mindspore", "conv-bias"),
        ("PoolStride", "`stride` of `avg_pool2d` is 1 in mindspore", "avgpool-functional"),
    ],
)
def test_what_a_port_leaves_to_defaults_is_found_with_its_entry(
    port: str, said: str, entry: str
) -> None:
    found = compare(f"{TORCH}:Image", f"{MS}:{port}", draw(4, 1, 6, 6))
    assert found.explanation is not None
    assert found.explanation["equal"], found.paragraph()
    assert said in found.paragraph()
    assert f"More: `dualml diffs {entry}`" in found.paragraph()


def test_an_error_is_told_first_with_its_line_and_its_entry() -> None:
    assert compare(f"{TORCH}:Image", f"{MS}:Image", draw(4, 1, 6, 6)).equal
    found = compare(f"{TORCH}:Image", f"{MS}:Factor", draw(4, 1, 6, 6))
    assert (found.verdict, found.reason, found.steps) == ("different", "raised", 0)
    assert found.explanation is None  # all before it is equal: no cause to look for
    said = found.paragraph()
    assert said.startswith("different: mindspore raised ValueError: For 'interpolate'")
    assert "(ports_ms.py:" in said
    assert "self.up(self.conv(x))" in said
    assert "Known of it: `dualml diffs upsample-scale`." in said
    assert "layer up (Upsample)" in said


def test_dropout_draws_the_same_numbers_on_both_sides() -> None:
    words = {"optimizer": {"name": "adam", "lr": 1e-3}, "steps": 2}
    found = compare(f"{TORCH}:dropping", f"{MS}:dropping", draw(5, 4), **words)
    assert found.verdict == "equal", found.paragraph()
    other = compare(f"{TORCH}:dropping", f"{MS}:dropping_more", draw(5, 4), **words)
    assert other.verdict == "different"
    assert other.first is not None
    assert (other.first.layer, other.first.phase) == ("drop", "forward")


def test_one_matrix_for_three_and_dropout_in_a_fused_kernel_are_compared() -> None:
    words = {"optimizer": {"name": "adam", "lr": 1e-3}, "steps": 2}
    found = compare(f"{TORCH}:Attentive", f"{MS}:Attentive", draw(3, 6, 16), **words)
    assert found.verdict == "equal", found.paragraph()
    pairs = {m["a"]: m["b"] for m in found.mapping}
    assert pairs["attn.in_proj_weight[1]"] == "k.weight"
    assert pairs["attn.in_proj_bias[2]"] == "v.bias"


def test_of_two_matrices_of_one_shape_both_ways_are_tried() -> None:
    words = {"optimizer": {"name": "adam", "lr": 1e-3}, "steps": 2}
    found = compare(f"{TORCH}:Gated", f"{MS}:Gated", draw(6, 16), **words)
    assert found.verdict == "equal", found.paragraph()
    assert {m["a"]: m["b"] for m in found.mapping}["gate.weight"] == "w3.weight"
    for lang in ("en", "zh"):
        assert "gate.weight = w3.weight" in found.paragraph(lang)


def test_other_random_numbers_are_named() -> None:
    found = compare(f"{TORCH}:Noisy", f"{MS}:Noisy", draw(5, 4))
    assert (found.verdict, found.reason) == ("not comparable", "random")
    assert [(n.values["side"], n.values["name"]) for n in found.notes] == [
        ("torch", "(output)"),
        ("mindspore", "(output)"),
    ]


def test_nan_on_one_side_is_named() -> None:
    one = compare(f"{TORCH}:Small", f"{MS}:Root", draw(5, 4))
    assert one.verdict == "different"
    assert one.first is not None
    assert (one.first.layer, one.first.kind, one.first.side) == ("b", "nan", "mindspore")


def test_the_users_own_losses_and_optimizers() -> None:
    with pytest.raises(AssertionError, match=r"different: first at step 1, update, layer"):
        assert_parity(
            f"{TORCH}:Small",
            f"{MS}:Small",
            draw(5, 4),
            targets=draw(5, 2),
            loss=(f"{TORCH}:squares", f"{MS}:squares"),
            optimizer=(f"{TORCH}:adam", f"{MS}:adam"),
        )


def test_any_function_of_the_gradients_is_an_optimizer() -> None:
    found = compare(
        f"{TORCH}:Small",
        f"{MS}:Small",
        draw(5, 4),
        steps=2,
        optimizer=(f"{TORCH}:descent", f"{MS}:descent"),
    )
    assert found.verdict == "equal", found.paragraph()


@pytest.mark.parametrize(
    ("port", "options", "said"),
    [
        ("broken", {}, r"torch: broken\(\) cannot be built: .*\(ports_torch.py, line \d+\)"),
        ("slow", {"timeout": 5}, "time limit of 5 s; give it more with timeout="),
        ("Dying", {}, "torch ended with exit code 3"),
        ("Mixed", {}, r"without a partner: 13 of 13 in torch.*4 of 4 in mindspore.*two models"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_line(
    port: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said) as caught:
        compare(f"{TORCH}:{port}", f"{MS}:Small", draw(5, 4), **options)
    assert "\n" not in str(caught.value)


def test_control_flow_on_values_and_a_gradient_of_ones_own_are_compared() -> None:
    words = {"optimizer": {"name": "sgd", "lr": 0.1}, "steps": 2}
    found = compare(f"{TORCH}:Branching", f"{MS}:Branching", draw(5, 4) / 8, **words)
    assert found.verdict == "equal", found.paragraph()


def test_a_side_without_memory_says_so() -> None:
    found = compare(f"{TORCH}:Huge", f"{MS}:Small", draw(5, 4))
    assert (found.verdict, found.reason) == ("different", "raised")
    assert "can't allocate memory" in found.paragraph()


def test_a_zoo_that_is_not_installed_is_named() -> None:
    with pytest.raises(UserError, match=r"torch: nozoo.models cannot be imported.*No module"):
        compare("nozoo.models:Net", f"{MS}:Small", draw(5, 4))


TORCH_SCRIPT = """
import sys
import numpy as np, torch
sys.path.insert(0, {here!r})
from ports_torch import Small
from dualml_torch.record import Recorder

model = Small()
np.savez("start.npz", **{{n: p.detach().numpy() for n, p in model.named_parameters()}})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
recorder = Recorder(model, "torch-trace", optimizer, steps=2)
def update(x, y):
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()
data = np.load("data.npz")
for x, y in zip(data["x"], data["y"]):
    recorder.run(update, torch.from_numpy(x), torch.from_numpy(y))
"""

MS_SCRIPT = """
import sys
import numpy as np, mindspore as ms
from mindspore import nn
sys.path.insert(0, {here!r})
from ports_ms import Small
from dualml_ms.record import Recorder

ms.set_context(mode=ms.PYNATIVE_MODE)
cell = Small()
cell.set_train()
start = np.load("start.npz")
for name, p in cell.parameters_and_names():
    p.set_data(ms.Tensor(start[name]))
optimizer = nn.SGD(cell.trainable_params(), 0.1, momentum=0.9)
gradient = ms.value_and_grad(lambda x, y: ((cell(x) - y) ** 2).mean(), None, optimizer.parameters)
recorder = Recorder(cell, "ms-trace", optimizer, steps=2)
data = np.load("data.npz")
for x, y in zip(data["x"], data["y"]):
    x, y = ms.Tensor(x), ms.Tensor(y)
    with recorder.step(x, y):
        loss, gradients = gradient(x, y)
        recorder.saw(loss=loss, gradients=gradients)
        optimizer(gradients)
"""


def test_recorded_scripts_are_compared(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=draw(3, 5, 4), y=draw(3, 5, 2))
    for text in (TORCH_SCRIPT, MS_SCRIPT):
        done = subprocess.run(
            [sys.executable, "-c", text.format(here=str(HERE))],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    # MindSpore first: the names are PyTorch's all the same.
    found = compare_traces(tmp_path / "ms-trace", tmp_path / "torch-trace")
    assert found.verdict == "equal", found.paragraph()
    assert (found.sides, found.steps) == (("torch", "mindspore"), 2)
    assert found.tolerance == "measured"  # on the side of PyTorch
    assert found.phases["state"]["tensor"].startswith("momentum_buffer/")
