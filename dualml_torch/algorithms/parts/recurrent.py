"""Decompositions of recurrent cells and their sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

Tensor = torch.Tensor


def gru_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """Return a GRU's next state (…, H) from inputs (…, I) and state ``hx`` (…, H); the rows of the
    weights are reset gate, update gate, new state."""
    here = functional.linear(input, w_ih, b_ih).chunk(3, -1)
    before = functional.linear(hx, w_hh, b_hh).chunk(3, -1)
    reset, update = (torch.sigmoid(x + h) for x, h in zip(here[:2], before[:2], strict=True))
    new = torch.tanh(here[2] + reset * before[2])
    return (1 - update) * new + update * hx


def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return an LSTM's next hidden and cell state, (…, H) each, from inputs (…, I) and the pair
    ``hx``; the rows of the weights are input, forget, cell and output gate."""
    hidden, cell = hx
    gates = functional.linear(input, w_ih, b_ih) + functional.linear(hidden, w_hh, b_hh)
    enter, forget, new, leave = gates.chunk(4, -1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(leave) * torch.tanh(cell), cell


def rnn_tanh_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """Return the next state tanh(W_ih·x + b_ih + W_hh·h + b_hh), (…, H), of a simple RNN."""
    return torch.tanh(functional.linear(input, w_ih, b_ih) + functional.linear(hx, w_hh, b_hh))


class RecurrentOptions(NamedTuple):
    """The last arguments of torch's recurrent functions, in their order."""

    has_biases: bool
    layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool = False


def run_recurrent(
    cell: Callable[..., Any],
    input: Tensor,
    hx: Any,
    weights: Sequence[Tensor],
    *options: Any,
) -> tuple[Tensor, ...]:
    """Run ``cell`` over all steps of all layers; return the outputs, then the final states (layers
    · directions, B, H), one tensor for each in ``hx``.

    Args:
        hx: initial state, or a sequence of them.
        weights: four for each layer and direction, in the order in which ``cell`` takes them.
        options: see `RecurrentOptions`.

    Raises:
        NotImplementedError: packed sequences, no biases, or Dropout while training.
    """
    has_biases, layers, dropout, train, bidirectional, batch_first = RecurrentOptions(*options)
    if not isinstance(has_biases, bool) or (dropout and train) or not has_biases:
        raise NotImplementedError
    states = list(hx) if isinstance(hx, list | tuple) else [hx]
    steps = list((input.transpose(0, 1) if batch_first else input).unbind(0))
    directions, last = 1 + bidirectional, []
    for layer in range(layers):
        sides = []
        for direction in range(directions):
            at = layer * directions + direction
            state = [one[at] for one in states]
            outputs = []
            for x in steps[::-1] if direction else steps:
                given = state if len(state) > 1 else state[0]
                made = cell(x, given, *weights[4 * at : 4 * at + 4])
                state = list(made) if isinstance(made, tuple) else [made]
                outputs.append(state[0])
            sides.append(outputs[::-1] if direction else outputs)
            last.append(state)
        steps = [
            torch.cat(one, -1) if directions > 1 else one[0] for one in zip(*sides, strict=True)
        ]
    output = torch.stack(steps, 1 if batch_first else 0)
    return output, *(torch.stack([state[i] for state in last]) for i in range(len(states)))


def lstm(*given: Any) -> tuple[Tensor, ...]:
    """Run `lstm_cell` by `run_recurrent`; return outputs, final hidden states and final cell
    states. ``given`` are the arguments of torch's function: input, initial state, weights, then
    `RecurrentOptions`."""
    return run_recurrent(lstm_cell, *given)


def gru(*given: Any) -> tuple[Tensor, ...]:
    """Run `gru_cell` by `run_recurrent`; return outputs and final states. ``given`` are the
    arguments of torch's function: input, initial state, weights, then `RecurrentOptions`."""
    return run_recurrent(gru_cell, *given)


def rnn_tanh(*given: Any) -> tuple[Tensor, ...]:
    """Run `rnn_tanh_cell` by `run_recurrent`; return outputs and final states. ``given`` are the
    arguments of torch's function: input, initial state, weights, then `RecurrentOptions`."""
    return run_recurrent(rnn_tanh_cell, *given)
