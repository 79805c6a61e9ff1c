"""The memory that PyTorch saves with recomputation: to the byte, and really freed."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import torch
from conformance.recompute import BATCH, CHUNK, SIZES, recipe, spec_of

from dualml.algorithms.model.recompute import recompute_groups
from dualml.backend import MemoryReport, backends
from dualml_torch.algorithms.model import LOSSES, Network
from dualml_torch.algorithms.model.saved_activations import saved_activation_bytes
from dualml_torch.algorithms.recorded_gradient import RecordedGradient, record_gradient

CASES: list[tuple[str, list[Any]]] = [
    ("softmax", ["none"]),
    ("mlp", ["none", ["fc2", "tanh2"], ["tanh1"], ["flatten", "fc1"]]),
    ("lenet", ["none", ["relu1", "pool1"], ["conv2", "relu2", "pool2", "flatten"]]),
    (
        "vit",
        [
            "none",
            "selective",
            "full",
            ["rows", "embed"],
            ["relu", "down", "merge2", "ln3"],
            ["qkv", "attention", "proj", "merge1", "branch2", "ln2"],
        ],
    ),
    ("text_classifier", ["none", "selective", "full", ["pool"], ["embedding"], ["up1", "gelu1"]]),
    *((name, ["none", "selective", "full", ["up1"]]) for name in SIZES),
    ("rnn_lm_dropout", [["lstm"], ["dropout1", "lstm", "dropout2"]]),
]


def make_training(name: str, setting: Any, **options: Any) -> Any:
    return backends()["torch"].create("cpu", 1).training(recipe(name, setting, **options))


@pytest.mark.parametrize(
    ("name", "setting"), [(name, s) for name, settings in CASES for s in settings], ids=str
)
def test_autograd_keeps_the_closed_form_to_the_byte(name: str, setting: Any) -> None:
    spec = spec_of(name)
    counted = (
        make_training(name, setting)
        .require_capability(MemoryReport)
        .measure_memory(BATCH)
        .activations
    )
    assert counted == saved_activation_bytes(spec, CHUNK, recompute_groups(spec, setting))


def test_what_a_kernel_of_onednn_keeps_is_not_known() -> None:
    assert saved_activation_bytes(spec_of("rnn_lm_dropout"), CHUNK) is None


def recorded(name: str, setting: Any, times: int = 1) -> tuple[Any, Any, Any]:
    own = recipe(name, setting)
    network = Network(own.spec, recompute=own.recompute).train()
    network.load(own.weights)
    index = np.tile(np.arange(CHUNK), times)
    given = torch.from_numpy(own.x[index]), torch.from_numpy(own.y[index])
    return network, LOSSES[own.loss], given


def live(graph: Any) -> int:
    """Return the most bytes of results alive at once, if each is freed after its last reader."""
    nodes = list(graph.graph.nodes)
    last = {used: n for n, node in enumerate(nodes) for used in node.all_input_nodes}
    sizes: dict[Any, int] = {}
    most = 0
    for n, node in enumerate(nodes):
        value = node.meta.get("val")
        fresh = node.op == "call_function" and node.target is not operator.getitem
        if fresh and isinstance(value, torch.Tensor):
            sizes[node] = value.nbytes
        elif fresh and isinstance(value, tuple | list):
            sizes[node] = sum(v.nbytes for v in value if isinstance(v, torch.Tensor))
        most = max(most, sum(sizes.values()))
        for used in [used for used in sizes if last.get(used, n) <= n]:
            del sizes[used]
    return most


def test_the_recorded_calls_are_made_again() -> None:
    """Recorded calls are repeated: those inside every block run twice, and what is between is
    freed; with many samples, because gradients take memory, too."""
    found = {}
    for setting in ("none", "full"):
        network, loss, (x, y) = recorded("text_classifier", setting, times=16)
        graph = record_gradient(network, loss, torch.ones(()), y, (x,))
        assert not [node for node in graph.graph.nodes if node.op == "get_attr"]
        targets = [str(node.target) for node in graph.graph.nodes]
        found[setting] = sum("gelu.default" in t for t in targets), live(graph)
    (once, kept), (twice, free) = found.values()
    assert (once, twice) == (2, 4)
    assert free < 0.7 * kept


def test_a_recorded_gradient_has_the_bits_of_autograd() -> None:
    network, loss, (x, y) = recorded("text_classifier", "full")
    _, *gradients = RecordedGradient(network, loss).gradient((x,), y)
    loss(network(x), y).backward()
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        assert torch.equal(parameter.grad, gradient)


def test_parameters_of_the_day_are_used_in_both_passes() -> None:
    """Recorded calls after an update equal those of a network that was never recorded."""
    network, loss, (x, y) = recorded("text_classifier", "full")
    call = RecordedGradient(network, loss)
    call.gradient((x,), y)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)
    _, *gradients = call.gradient((x,), y)
    loss(network(x), y).backward()
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        assert torch.equal(parameter.grad, gradient)


def test_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUALML_TORCH_COMPILE", "always")
    again = make_training("vit", "full", batch=CHUNK)
    assert not again.choice.compiled


def test_an_update_overlapped_with_messages_has_every_gradient_once() -> None:
    """Parameter hooks run once, although their layers are computed twice."""
    again = make_training("text_classifier", "full")
    again.use_contiguous_format()
    again.recorded = None
    seen: list[str] = []
    for name, parameter in again.parameters.items():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name))
    again.zero_grad()
    again.backward(np.arange(CHUNK), 1.0)
    assert sorted(seen) == sorted(again.parameters)
