"""Sequence-sharded attention in PyTorch; attention.py starts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from ourattention import Case, race
from torch.nn import functional

from dualml.interface.bench.timing import Times
from dualml_torch.parallel.ring import TorchBlockAttention


def other_variants(comm: Any, case: Case) -> dict[str, Callable[[], Any]]:
    """Return the baselines: attention with gathered keys and values, and on whole sequences."""
    layer, places = case.layer, torch.from_numpy(case.places)
    groups, r, width = layer.kv_heads, layer.heads_per_group, layer.width
    x, flow = torch.from_numpy(case.x), torch.from_numpy(case.flow)
    gathered = [torch.from_numpy(comm.numpy(p)) for p in comm.all_gather(comm.tensor(case.places))]
    order = torch.cat(gathered).argsort()
    chunks = [
        (slice(at, at + n), int(places[at]) + n)  # own positions, the first that none sees
        for n in (len(places) // 2,)
        for at in (0, n)
    ]
    masks = [places[own, None] >= torch.arange(end) for own, end in chunks]

    def attended(q: Any, k: Any, v: Any, **how: Any) -> Any:
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, enable_gqa=r > 1, **how)
        return y.transpose(1, 2).flatten(2)

    def collected() -> Any:
        leaf = x.view(*x.shape[:2], groups, r + 2, width)
        q = leaf[..., :r, :].flatten(2, 3).requires_grad_()
        own = torch.stack((leaf[..., r, :], leaf[..., r + 1, :]))
        every = torch.cat(comm.all_gather(own), 2).index_select(2, order).requires_grad_()
        k, v = every
        y = torch.cat(
            [
                attended(q[:, own], k[:, :end], v[:, :end], attn_mask=mask)
                for (own, end), mask in zip(chunks, masks, strict=True)
            ],
            1,
        )
        dq, d = torch.autograd.grad(y, (q, every), flow)
        back = torch.empty_like(d).index_copy_(2, order, d)
        runs = torch.stack(back.chunk(comm.size, 2)).flatten()
        dkv = comm.reduce_scatter(runs).view_as(own)
        dq = dq.unflatten(2, (groups, r))
        return torch.cat((dq, dkv[0][..., None, :], dkv[1][..., None, :]), 3).flatten(2)

    half = max(1, x.shape[0] // comm.size)
    whole = torch.cat([x] * comm.size, 1)[:half]

    def whole_sequences() -> Any:
        leaf = whole.view(half, layer.length, groups, r + 2, width)
        q = leaf[..., :r, :].flatten(2, 3).requires_grad_()
        k, v = (leaf[..., at, :].contiguous().requires_grad_() for at in (r, r + 1))
        y = attended(q, k, v, is_causal=True)
        return torch.autograd.grad(y, (q, k, v), torch.cat([flow] * comm.size, 1)[:half])

    return {"collected": collected} | (
        {"alone": whole_sequences} if x.shape[0] >= comm.size else {}
    )


def attend(comm: Any, argument: dict[str, Any]) -> dict[str, Times]:
    """Return the milliseconds of both passes, by shape and variant."""

    def blocks(layer: Any, places: Any) -> TorchBlockAttention:
        return TorchBlockAttention(layer, places, torch.device("cpu"))

    return race(comm, argument["shapes"], argument["rounds"], blocks, other_variants)
