"""Closed forms of what a rank saves for a decoder with sequence-sharded positions; and attention
blocks written out for devices without the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conformance.backends import on_ranks

from dualml.algorithms.model.decoder import GroupedAttention
from dualml.backend.reference.ring import NumpyBlockAttention
from dualml_torch.parallel import ring

SAMPLES, LENGTH, WIDTH, HEADS, BLOCKS, RANKS = 6, 12, 8, 4, 2, 2
CASE = {"model": "longer gpt", "optimizer": "sgd", "loss": "cross_entropy", "sizes": [SAMPLES]}
SETTINGS: list[dict[str, Any]] = [
    {"tensor": 2},
    {"tensor": 2, "sequence": True},
    {"tensor": 2, "sequence": True, "regather": True},
    {"context": 2},
]


def expected_bytes(t: int, *, shared: bool, collected: int) -> int:
    """Return the bytes saved per sample: tensors that are whole on every rank, of which a rank
    saves only its own positions if ``shared``; inputs gathered for `Linear`, saved in
    1/``collected``; and tensors that are split."""
    sh, s = LENGTH * WIDTH, LENGTH
    norm, mask = 4 * sh + 8 * s, 4 * sh
    outside = BLOCKS * (2 * norm + 2 * mask) + 5 * s + mask + norm + 4 * sh  # embedding, head
    linear = BLOCKS * 2 * 4 * sh
    inside = BLOCKS * (4 * (3 + 1 + 4 + 4) * sh + 4 * HEADS * s)  # attention, GELU
    return outside // (t if shared else 1) + linear // collected + inside // t


def test_bytes_kept_are_those_of_the_closed_form() -> None:
    wanted = [
        expected_bytes(RANKS, shared=False, collected=1),
        expected_bytes(RANKS, shared=True, collected=1),
        expected_bytes(RANKS, shared=True, collected=RANKS),
        expected_bytes(RANKS, shared=True, collected=RANKS),
    ]
    argument = [{**CASE, "split": one} for one in SETTINGS]
    found = on_ranks("torch", RANKS, "conformance.split:count_kept", argument, timeout=60)
    assert found == [[SAMPLES * each for each in wanted]] * RANKS


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("base", [0.0, 10_000.0])
def test_blocks_are_those_of_the_referee(written: bool, groups: int, base: float) -> None:
    """Attention to a rank's own block and to each further one equals the reference's, with all
    gradients."""
    layer = GroupedAttention(4, groups, 8, 16, base)
    places = np.array([2, 3, 4, 5, 10, 11, 12, 13])
    ours = ring.TorchBlockAttention(layer, places, torch.device("cpu"))
    if written:
        ours.forward, ours.backward = ring.forward_fallback, ring.backward_fallback
    theirs = NumpyBlockAttention(layer, places)
    draw = np.random.default_rng(0)
    features = (4 + 2 * groups) * 8
    x, other = (draw.normal(size=(2, 8, features)).astype(np.float32) for _ in range(2))
    flow = draw.normal(size=(2, 8, 32)).astype(np.float32)
    for block in ("own", "early", "late"):
        results = []
        for attention, array in ((ours, torch.from_numpy), (theirs, np.float64)):
            q, kv = attention.split_qkv(array(x))
            more = attention.split_qkv(array(other))[1]
            y, lse = attention.attend(q, kv, "own", None)
            if block != "own":
                y, lse = attention.attend(q, more, block, (y, lse))
            joined = attention.merge_heads(y)
            heads, back = attention.split_heads(joined), attention.split_heads(array(flow))
            dq, dkv = attention.backward_block(
                q, more if block != "own" else kv, block, back, heads, lse
            )
            results.append((np.asarray(joined), np.asarray(attention.merge_qkv_gradients(dq, dkv))))
        for mine, referee in zip(*results, strict=True):
            np.testing.assert_allclose(mine, referee, rtol=0, atol=3e-6)
