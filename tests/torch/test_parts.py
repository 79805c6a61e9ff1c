"""Fused functions, written out, compute what PyTorch's kernels do, call by call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from dualml.parity.models.operations import Tape
from dualml_torch.algorithms.parts import FUSED
from dualml_torch.parity.operations import OperationTracer


def watch_calls(function: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return a function's result when its parts are recorded, and the names of the recorded
    calls."""
    tape = Tape(lambda one: one.detach().numpy().copy(), ())
    with OperationTracer(tape, FUSED):
        result = function()
    return result, [one.name for one in tape.calls]


torch.manual_seed(0)
X, Y = torch.randn(4, 6), torch.randn(4, 6)
LABELS, IGNORED = torch.tensor([1, 2, 0, 5]), torch.tensor([1, -100, 0, 5])
SHARES, WEIGHT = torch.rand(6), torch.rand(6)
IMAGES, CLASSES = torch.randn(2, 8, 4, 6), torch.randint(8, (2, 4, 6))
GRID = 2.4 * torch.rand(2, 5, 7, 2) - 1.2
WORDS, TABLE = torch.tensor([[1, 2, 0], [3, 4, 5]]), torch.randn(7, 5)
Q, K = torch.randn(2, 3, 4, 5), torch.randn(2, 6, 4, 5)
NORMED, SEQUENCE = nn.BatchNorm2d(8).eval(), torch.randn(3, 2, 6)
LSTM, GRU = nn.LSTM(6, 5, 2, bidirectional=True), nn.GRU(6, 5, batch_first=True)
RNN, LSTM_CELL, GRU_CELL = nn.RNN(6, 5), nn.LSTMCell(6, 5), nn.GRUCell(6, 5)
STATE = torch.randn(4, 5)


@pytest.mark.parametrize(
    ("function", "inside"),
    [
        (lambda: F.mse_loss(X, Y), "square"),
        (lambda: F.l1_loss(X, Y, reduction="sum"), "abs"),
        (lambda: F.smooth_l1_loss(X, Y, beta=0.3), "where"),
        (lambda: F.binary_cross_entropy(X.sigmoid(), Y.sigmoid()), "log"),
        (lambda: F.binary_cross_entropy_with_logits(X, Y.sigmoid(), pos_weight=SHARES), "sigmoid"),
        (lambda: F.cross_entropy(X, LABELS), "gather"),
        (lambda: F.cross_entropy(X, IGNORED), "masked_fill"),
        (lambda: F.cross_entropy(X, LABELS, weight=WEIGHT), "mul"),
        (lambda: F.cross_entropy(X, LABELS, label_smoothing=0.1), "mean"),
        (lambda: F.cross_entropy(X, Y.softmax(-1)), "sum"),
        (lambda: F.cross_entropy(X, Y.softmax(-1), label_smoothing=0.1), "sum"),
        (lambda: F.cross_entropy(IMAGES, CLASSES), "gather"),
        (lambda: F.kl_div(X.log_softmax(-1), Y.softmax(-1), reduction="batchmean"), "sub"),
        (lambda: F.normalize(X, dim=-1), "clamp_min"),
        (lambda: F.cosine_similarity(X, Y), "sqrt"),
        (lambda: F.layer_norm(X, (6,), WEIGHT, SHARES), "mean"),
        (lambda: F.group_norm(IMAGES, 2, eps=1e-3), "reshape"),
        (lambda: NORMED(IMAGES), "sub"),
        (lambda: F.embedding_bag(WORDS, TABLE, mode="mean", padding_idx=0), "embedding"),
        (lambda: torch.einsum("bihd,bjhd->bhij", Q, K), "mul"),
        (lambda: torch.einsum("nk,nk->n", X, Y), "sum"),
        (lambda: F.linear(X, Y, X[:, 0]), "add"),
        (lambda: F.silu(X), "sigmoid"),
        (lambda: F.gelu(X), "erf"),
        (lambda: F.gelu(X, approximate="tanh"), "tanh"),
        (lambda: F.glu(X), "chunk"),
        (lambda: F.softplus(X), "log1p"),
        (lambda: F.logsigmoid(X), "log"),
        (lambda: X.softmax(-1), "exp"),
        (lambda: F.log_softmax(X, 1), "logsumexp"),
        (lambda: F.adaptive_avg_pool2d(IMAGES, 1), "mean"),
        (lambda: F.pixel_shuffle(IMAGES, 2), "permute"),
        (lambda: F.pixel_unshuffle(IMAGES, 2), "permute"),
        (lambda: F.grid_sample(IMAGES, GRID, align_corners=True), "floor"),
        (lambda: F.grid_sample(IMAGES, GRID, padding_mode="border", align_corners=False), "clamp"),
        (lambda: LSTM(SEQUENCE), "chunk"),
        (lambda: GRU(SEQUENCE), "stack"),
        (lambda: RNN(SEQUENCE), "tanh"),
        (lambda: LSTM_CELL(X, (STATE, STATE)), "sigmoid"),
        (lambda: GRU_CELL(X, STATE), "sigmoid"),
    ],
)
def test_the_parts_compute_what_the_whole_does(function: Callable[[], Any], inside: str) -> None:
    found, calls = watch_calls(function)
    assert inside in calls
    for own, wanted in zip(tree_leaves(found), tree_leaves(function()), strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-5, atol=1e-6)


def test_a_norm_of_batches_remembers_as_the_kernel_does() -> None:
    ours, theirs = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
    watch_calls(lambda: ours(IMAGES))
    theirs(IMAGES)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    assert ours.num_batches_tracked == 1


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda: torch.einsum("ii->", X[:, :4]), "einsum"),
        (lambda: F.normalize(X, p=1.0), "normalize"),
        (lambda: F.embedding_bag(WORDS, TABLE, mode="max"), "embedding_bag"),
        (lambda: F.grid_sample(IMAGES, GRID, mode="nearest", align_corners=True), "grid_sample"),
        (lambda: F.adaptive_avg_pool2d(IMAGES, 2), "adaptive_avg_pool2d"),
    ],
)
def test_what_is_not_written_out_stays_whole(function: Callable[[], Any], name: str) -> None:
    found, calls = watch_calls(function)
    assert name in calls
    assert torch.equal(found, function())
