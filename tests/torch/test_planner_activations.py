"""Saved activations of a layer by the planner's formula, against what PyTorch's autograd saves."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.memory import PRECISIONS, layer_activations
from dualml.planning.planner.shape import Shape

GPT = Shape("gpt", 1, 64, 4, 4, 256, 1, 48)
LLAMA = Shape(
    "llama",
    1,
    64,
    8,
    8,
    224,
    1,
    48,
    gated=True,
    biased=False,
    learned_positions=False,
    dropout=False,
)
MICRO = 2


def dropout(x: torch.Tensor) -> torch.Tensor:
    """Apply dropout with a byte mask, as on accelerators; `F.dropout` on a CPU saves a float
    mask."""
    return torch.native_dropout(x, 0.1, True)[0]


def attention(x: torch.Tensor, shape: Shape, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """Compute attention with the scores as a separate tensor, as in the formula."""
    q, k, v = (
        F.linear(x, weights[key]).view(MICRO, -1, shape.heads, shape.width).transpose(1, 2)
        for key in "qkv"
    )
    scores = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(shape.width), -1)
    if shape.dropout:
        scores = dropout(scores)
    together = (scores @ v).transpose(1, 2).reshape(MICRO, -1, shape.queries)
    return F.linear(together, weights["out"])


def layer(x: torch.Tensor, shape: Shape, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    def dropped(y: torch.Tensor) -> torch.Tensor:
        return dropout(y) if shape.dropout else y

    h = (shape.hidden,)
    x = x + dropped(attention(F.layer_norm(x, h, weights["norm"]), shape, weights))
    y = F.layer_norm(x, h, weights["norm"])
    if shape.gated:
        inner = gated(F.linear(y, weights["up"]), F.linear(y, weights["gate"]))
    else:
        inner = F.gelu(F.linear(y, weights["up"]))
    return x + dropped(F.linear(inner, weights["down"]))


def gated(up: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Compute SwiGLU as fused kernels do: save its inputs and recompute the rest."""
    return checkpoint(lambda a, b: a * F.silu(b), up, gate, use_reentrant=False)


def saved_bytes(shape: Shape) -> int:
    """Return the bytes saved for the backward pass, without weights; each storage is counted
    once."""
    torch.manual_seed(0)
    h, f = shape.hidden, shape.ffn
    sizes = {
        **dict.fromkeys(("q", "k", "v", "out"), (h, h)),
        "norm": (h,),
        "up": (f, h),
        "gate": (f, h),
        "down": (h, f),
    }
    weights = {key: torch.randn(size).requires_grad_() for key, size in sizes.items()}
    own = {w.untyped_storage().data_ptr() for w in weights.values()}
    storages: dict[int, int] = {}
    alive: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.numel() > MICRO * shape.sequence:
            storages[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    x = torch.randn(MICRO, shape.sequence, h, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(x, shape, weights).sum()
    return sum(storages.values())


def test_a_layer_of_gpt_keeps_what_the_formula_says() -> None:
    """Saved bytes equal sbh(34 + 5as/h), with four bytes per element and one per mask entry,
    exactly."""
    formula, _ = layer_activations(GPT, Layouts.from_axes(MICRO, micro=MICRO), PRECISIONS["fp32"])
    assert saved_bytes(GPT) == formula[0]


def test_a_layer_of_llama_keeps_what_the_formula_says() -> None:
    formula, _ = layer_activations(LLAMA, Layouts.from_axes(MICRO, micro=MICRO), PRECISIONS["fp32"])
    assert saved_bytes(LLAMA) == pytest.approx(formula[0], rel=0.02)
