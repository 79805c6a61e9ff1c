"""Recurrent layers: the modules of `torch.nn`, returning the outputs alone.

Shapes: B batch, T positions, S vectors of a state, H entries of each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dualml.algorithms.model import recurrent as spec


def make_layer(layer: spec.RecurrentLayer) -> nn.Module:
    """Make the module for a recurrent layer.

    Raises:
        NotImplementedError: any other layer; no similar module is taken.
    """
    match layer:
        case spec.LSTM():
            return LSTM(layer.inputs, layer.hidden, batch_first=True)
        case spec.GRU():
            return GRU(layer.inputs, layer.hidden, batch_first=True)
        case spec.RNN(nonlinearity=name):
            return RNN(layer.inputs, layer.hidden, nonlinearity=name, batch_first=True)
    raise NotImplementedError(f"dualml_torch has no layer {type(layer).__name__}")


def split_state(state: Tensor) -> tuple[Tensor, ...]:
    """Split a state (B, S, H) into vectors as PyTorch takes them, each (1, B, H)."""
    return tuple(part.unsqueeze(0).contiguous() for part in state.unbind(1))


class LSTM(nn.LSTM):
    """LSTM, (B, T, inputs) → (B, T, hidden); given an initial state (B, 2, hidden), h and c, it
    also returns the final one, detached."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> Any:  # type: ignore[override]
        """Run the LSTM from a zero state and return all outputs (B, T, hidden); from a ``state``
        (B, 2, hidden), h and c, return also the final one, detached."""
        if state is None:
            return super().forward(x)[0]
        h, c = split_state(state)
        y, (h, c) = super().forward(x, (h, c))
        return y, torch.stack([h[0], c[0]], 1).detach()


class GRU(nn.GRU):
    """GRU, (B, T, inputs) → (B, T, hidden), with states (B, 1, hidden) as in `LSTM`."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> Any:  # type: ignore[override]
        """Run the GRU from a zero state and return all outputs (B, T, hidden); from a ``state`` (B,
        1, hidden), return also the final one, detached."""
        if state is None:
            return super().forward(x)[0]
        y, h = super().forward(x, *split_state(state))
        return y, h.transpose(0, 1).detach()


class RNN(nn.RNN):
    """Simple RNN, (B, T, inputs) → (B, T, hidden), with states (B, 1, hidden) as in `LSTM`."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> Any:  # type: ignore[override]
        """Run the RNN from a zero state and return all outputs (B, T, hidden); from a ``state`` (B,
        1, hidden), return also the final one, detached."""
        if state is None:
            return super().forward(x)[0]
        y, h = super().forward(x, *split_state(state))
        return y, h.transpose(0, 1).detach()
