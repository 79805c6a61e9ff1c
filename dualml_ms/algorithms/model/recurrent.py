"""Recurrent layers: the cells of `mindspore.nn`, returning the outputs alone.

Shapes: B batch, T positions, S vectors of a state, H entries of each.
"""

from __future__ import annotations

from mindspore import nn, ops

from dualml.algorithms.model import recurrent as spec
from dualml_ms.algorithms.model.modules import LowPrecisionCast


def make_layer(layer: spec.RecurrentLayer, lower: LowPrecisionCast | None = None) -> nn.Cell:
    """Make the cell for a recurrent layer.

    Args:
        lower: cast of a low-precision layer, whose input is of that type and whose weights are cast
            where they are used; None for float32.

    Raises:
        NotImplementedError: any other layer; no similar cell is taken.
    """
    match layer:
        case spec.LSTM():
            cell = LSTM(layer.inputs, layer.hidden, batch_first=True)
        case spec.GRU():
            cell = GRU(layer.inputs, layer.hidden, batch_first=True)
        case spec.RNN(nonlinearity=name):
            cell = RNN(layer.inputs, layer.hidden, nonlinearity=name, batch_first=True)
        case _:
            raise NotImplementedError(f"dualml_ms has no layer {type(layer).__name__}")
    if lower is not None:
        cell.rnn = LowPrecisionRecurrence(cell.rnn, lower)
    return cell


class LSTM(nn.LSTM):
    """LSTM, (B, T, inputs) → (B, T, hidden); given an initial state (B, 2, hidden), h and c, it
    also returns the final one."""

    def construct(self, x, state=None):
        """Return the outputs (B, T, H) of ``x`` (B, T, inputs); with an initial ``state`` (B, 2,
        H), h and c, also the final state of that shape."""
        if state is None:
            y, _ = super().construct(x)
            return y
        parts = state.swapaxes(0, 1)
        y, (h, c) = super().construct(x, (parts[0:1], parts[1:2]))
        return y, ops.cat((h, c), 0).swapaxes(0, 1)


class GRU(nn.GRU):
    """GRU, (B, T, inputs) → (B, T, hidden), with states (B, 1, hidden) as in `LSTM`."""

    def construct(self, x, state=None):
        """Return the outputs (B, T, H) of ``x`` (B, T, inputs); with an initial ``state`` (B, 1, H)
        also the final state."""
        if state is None:
            y, _ = super().construct(x)
            return y
        y, h = super().construct(x, state.swapaxes(0, 1))
        return y, h.swapaxes(0, 1)


class RNN(nn.RNN):
    """Simple RNN, (B, T, inputs) → (B, T, hidden), with states (B, 1, hidden) as in `LSTM`."""

    def construct(self, x, state=None):
        """Return the outputs (B, T, H) of ``x`` (B, T, inputs); with an initial ``state`` (B, 1, H)
        also the final state."""
        if state is None:
            y, _ = super().construct(x)
            return y
        y, h = super().construct(x, state.swapaxes(0, 1))
        return y, h.swapaxes(0, 1)


class RecurrentOutputs(nn.Cell):
    """A wrapper of a recurrent cell that takes inputs and an initial state, and returns the outputs
    alone."""

    def __init__(self, cell: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.cell = cell

    def construct(self, x, state):
        """Return the outputs (B, T, H) of ``x`` from the initial ``state`` (B, S, H), without the
        final state."""
        y, _ = self.cell(x, state)
        return y


class LowPrecisionRecurrence(nn.Cell):
    """A wrapper of ``rnn``, the loop over positions inside a recurrent cell, that casts the weights
    to low precision by ``lower``."""

    def __init__(self, rnn: nn.Cell, lower: LowPrecisionCast) -> None:
        super().__init__()
        self.rnn, self.lower = rnn, lower

    def construct(self, x, state, length, w_ih, w_hh, b_ih, b_hh):
        """Run the loop over positions with weight matrices and biases in low precision; return its
        outputs and final state."""
        matrices = (self.lower(w_ih), self.lower(w_hh))
        return self.rnn(x, state, length, *matrices, self.lower(b_ih), self.lower(b_hh))
