"""A GRU with its reset gate in another place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

Value = torch.Tensor
#: Weights and biases of a layer in one direction: of inputs and of states, (3 H, …) and (3 H,).
GruWeights = tuple[Value, Value, Value | None, Value | None]


def gru_with_early_reset(
    func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Compute a ``gru`` or ``gru_cell`` with n = tanh(W x + U (r ⊙ h) + b), as in the paper.

    PyTorch computes n = tanh(W x + b + r ⊙ (U h + c)): there the reset gate r multiplies the
    product (Cho et al., 2014, and its second version). Layers are stacked without Dropout.

    Raises:
        ValueError: packed sequences, or another function.
    """
    if name == "gru_cell":
        x, h, *weights = args
        return early_reset_cell(x, h, (*weights, None, None)[:4])  # type: ignore[arg-type]
    if name != "gru" or len(args) < 9 or not isinstance(args[2], list | tuple):
        raise ValueError("no such GRU")
    x, state, flat, has_biases, layers, _, _, both, batch_first = args[:9]
    x = x.transpose(0, 1) if batch_first else x
    size, ends = 4 if has_biases else 2, []
    for layer in range(int(layers)):
        outputs = []
        for way in range(2 if both else 1):
            at = layer * (2 if both else 1) + way
            weights = (*flat[at * size : (at + 1) * size], None, None)[:4]
            h, rows = state[at], []
            for one in x.flip(0) if way else x:
                h = early_reset_cell(one, h, weights)
                rows.append(h)
            ends.append(h)
            rows = rows[::-1] if way else rows
            outputs.append(torch.stack(rows))
        x = torch.cat(outputs, -1)
    return (x.transpose(0, 1) if batch_first else x), torch.stack(ends)


def early_reset_cell(x: Value, h: Value, weights: GruWeights) -> Value:
    """Return the next state (B, H) of a GRU from its inputs ``x`` (B, I) and state ``h`` (B, H),
    with the reset gate applied to the state before its product with the weights."""
    w, u, b, c = weights
    of_input = functional.linear(x, w, b).chunk(3, -1)
    of_state = functional.linear(h, u, c).chunk(3, -1)
    r, z = (torch.sigmoid(i + s) for i, s in zip(of_input[:2], of_state[:2], strict=True))
    bias = None if c is None else c.chunk(3)[2]
    n = torch.tanh(of_input[2] + functional.linear(r * h, u.chunk(3)[2], bias))
    return (1 - z) * n + z * h
