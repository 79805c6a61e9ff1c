"""Blockwise attention over keys and values in PyTorch; see `dualml.parallel.split.ring`.

Shapes: B batch, T positions of the queries and S of a block, G groups of R heads (H in all), K
entries.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from dualml.algorithms.model.decoder import GroupedAttention, rotary_cos_sin
from dualml.backend import Array
from dualml.backend.stage import Block, visible_slices
from dualml_torch.algorithms.model.decoder import apply_rotary

#: The kernels of `scaled_dot_product_attention` on a CPU, which also return log-sum-exps. Given
#: those over all blocks, the backward kernel returns one block's part of the gradients.
FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def forward_fallback(q: Tensor, k: Tensor, v: Tensor, _: float, causal: bool) -> tuple[Tensor, ...]:
    """Compute what `FORWARD` does, by single operations for a device without that kernel: return
    the attention's outputs (B, H, T, K) and log-sum-exps (B, H, T). The fourth argument is
    ignored."""
    scores = masked_scores(q, k, causal)
    lse = scores.logsumexp(-1)
    return (scores - lse[..., None]).exp() @ v, lse


def backward_fallback(
    flow: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, *options: Any
) -> tuple[Tensor, ...]:
    """Compute what `BACKWARD` does, by single operations for a device without that kernel: return
    the gradients of ``q``, ``k`` and ``v`` from that of the outputs, ``flow``. ``y`` and ``lse``
    are of all blocks; ``options`` are the kernel's, a dropout rate, which is ignored, and whether
    the attention is causal."""
    _, causal = options
    weights = (masked_scores(q, k, causal) - lse[..., None]).exp()
    along = (flow * y).sum(-1, keepdim=True)
    d_scores = weights * (flow @ v.transpose(-1, -2) - along) / math.sqrt(q.shape[-1])
    return d_scores @ k, d_scores.transpose(-1, -2) @ q, weights.transpose(-1, -2) @ flow


def masked_scores(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    """Return q·kᵀ/√K of queries and keys, (…, T, S), with −∞ at keys of later positions if
    ``causal``."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if not causal:
        return scores
    before = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    return scores.masked_fill(~before, -math.inf)


class TorchBlockAttention:
    """PyTorch implementation of `dualml.backend.stage.BlockAttention`."""

    def __init__(self, layer: GroupedAttention, positions: Array, device: torch.device) -> None:
        self.layer, cpu = layer, device.type == "cpu"
        self.forward = FORWARD if cpu else forward_fallback
        self.backward = BACKWARD if cpu else backward_fallback
        if layer.base:
            angles = (
                torch.from_numpy(one[positions]).float().to(device) for one in rotary_cos_sin(layer)
            )
            self.cos, self.sin = angles

    @torch.no_grad()
    def split_qkv(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Split ``x`` (B, T, G·(R + 2)·K) into queries (B, H, T, K) and keys and values (2, B, T,
        G, K); queries and keys are rotated if the layer has a rotary base."""
        layer, (b, length, _) = self.layer, x.shape
        parts = x.view(b, length, layer.kv_heads, layer.heads_per_group + 2, layer.width)
        q, k, v = parts[..., : layer.heads_per_group, :], parts[..., -2, :], parts[..., -1, :]
        if layer.base:
            q, k = (apply_rotary(one, self.cos, self.sin) for one in (q, k))
        return q.reshape(b, length, -1, layer.width).transpose(1, 2), torch.stack((k, v))

    @torch.no_grad()
    def attend(
        self, q: Tensor, kv: Tensor, block: Block, state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """Attend to one block; return outputs (B, H, T, K) and log-sum-exps (B, H, T), merged into
        ``state`` in place if there is one. In the block ``own`` a query sees no later key; only
        `visible_slices` take part in others."""
        queries, k, v = self.select_block(kv, block)
        y, lse = self.forward(q[:, :, queries], k, v, 0.0, block == "own")
        if state is None:
            return y, lse
        whole, sums_so_far = state[0][:, :, queries], state[1][:, :, queries]
        after = torch.logaddexp(sums_so_far, lse)
        whole.mul_((sums_so_far - after).exp_()[..., None])
        whole.addcmul_((lse - after).exp_()[..., None], y)
        sums_so_far.copy_(after)
        return state

    def select_block(self, kv: Tensor, block: Block) -> tuple[slice, Tensor, Tensor]:
        """Return the slice of the queries that see the block, and the keys and values that they
        see, repeated for every head, (B, H, S, K) each."""
        queries, keys = visible_slices(block, kv.shape[2])
        k, v = kv[:, :, keys].transpose(2, 3).unbind()
        r = self.layer.heads_per_group
        if r > 1:
            k, v = (one.repeat_interleave(r, 1) for one in (k, v))
        return queries, k, v

    def merge_heads(self, y: Tensor) -> Tensor:
        """Return outputs (B, H, T, K) as a contiguous tensor (B, T, H·K)."""
        return y.transpose(1, 2).flatten(2).contiguous()

    def split_heads(self, y: Tensor) -> Tensor:
        """Return a view (B, H, T, K) of ``y`` (B, T, H·K), the inverse of `merge_heads`."""
        return y.unflatten(2, (-1, self.layer.width)).transpose(1, 2)

    @torch.no_grad()
    def backward_block(
        self, q: Tensor, kv: Tensor, block: Block, flow: Tensor, y: Tensor, lse: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return one block's part of the gradients of queries (B, H, T, K), and of keys and values
        (2, B, T, G, K), summed over the heads of a group; zeros outside of the block."""
        queries, k, v = self.select_block(kv, block)
        own = (one[:, :, queries] for one in (q, flow, y, lse))
        q_own, flow, y, lse = own
        dq, dk, dv = self.backward(flow, q_own, k, v, y, lse, 0.0, block == "own")
        d = (
            torch.stack((dk, dv))
            .unflatten(2, (-1, self.layer.heads_per_group))
            .sum(3)
            .transpose(2, 3)
        )
        if block == "own":
            return dq, d.contiguous()
        keys = visible_slices(block, kv.shape[2])[1]
        all_q, all_kv = torch.zeros_like(q), torch.zeros_like(kv)
        all_q[:, :, queries], all_kv[:, :, keys] = dq, d
        return all_q, all_kv

    @torch.no_grad()
    def merge_qkv_gradients(self, dq: Tensor, dkv: Tensor) -> Tensor:
        """Return the gradient (B, T, G·(R + 2)·K) of `split_qkv`'s input from those of queries (B,
        H, T, K) and of keys and values (2, B, T, G, K)."""
        layer, (_, b, length, _, _) = self.layer, dkv.shape
        dq = dq.transpose(1, 2).unflatten(2, (layer.kv_heads, layer.heads_per_group))
        dk, dv = dkv
        if layer.base:
            dq, dk = (apply_rotary(one, self.cos, -self.sin) for one in (dq, dk))
        parts = torch.cat((dq, dk[..., None, :], dv[..., None, :]), 3)
        return parts.reshape(b, length, -1)
