"""Forward and backward passes of recurrent layers in float64 NumPy; see `layers`.

Shapes: B batch, T positions, I inputs, H hidden, S vectors of a state. The initial state of a
sequence is passed along with the parameters as `STATE`, (B, S, H); without it it is zero. No
gradient flows into it. The cache ends with the state after the last position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualml.algorithms.model.recurrent import GRU, LSTM, RNN, RecurrentLayer
from dualml.backend.reference.types import STATE, Array, Params, as_matrix

Activation = Callable[[Array], Array]


def initial_state(layer: RecurrentLayer, batch: int, params: Params) -> Array:
    """Return the state before the first position, (S, B, H): the one given with the parameters as
    `STATE`, (B, S, H), otherwise zeros."""
    if STATE in params:
        return np.ascontiguousarray(params[STATE].swapaxes(0, 1))
    return np.zeros((layer.states, batch, layer.hidden))


def recurrent_gradients(x: Array, h_before: Array, d_in: Array, d_hidden: Array) -> Params:
    """Return the gradients of both weights and both biases, from the gradients ``d_in`` of W_ih·x +
    b_ih and ``d_hidden`` of W_hh·h + b_hh, (B, T, gates·H) each; ``h_before`` is the hidden state
    before each position."""
    flat, over = as_matrix(d_in), as_matrix(d_hidden)
    return {
        "weight_ih_l0": flat.T @ as_matrix(x),
        "weight_hh_l0": over.T @ as_matrix(h_before),
        "bias_ih_l0": flat.sum(axis=0),
        "bias_hh_l0": over.sum(axis=0),
    }


def lstm_forward(
    layer: LSTM, x_BTI: Array, params: Params, tanh: Activation = np.tanh
) -> tuple[Array, Any]:
    """Return the hidden states of all positions, (B, T, I) → (B, T, H), and the cache of
    `lstm_backward`. ``tanh`` may be replaced by an approximation."""
    b, length, _ = x_BTI.shape
    fed = x_BTI @ params["weight_ih_l0"].T + params["bias_ih_l0"] + params["bias_hh_l0"]
    h, c = initial_state(layer, b, params)
    tape = []
    for t in range(length):
        gates = fed[:, t] + h @ params["weight_hh_l0"].T
        i, f, g, o = np.split(gates, 4, axis=1)
        i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
        before = h, c
        c = f * c + i * g
        tanh_c = tanh(c)
        h = o * tanh_c
        tape.append((*before, i, f, g, o, tanh_c, h))
    y = np.stack([step[-1] for step in tape], axis=1)
    return y, (x_BTI, tape, (h, c) if layer.stateful else ())


def lstm_backward(layer: LSTM, dy_BTH: Array, cache: Any, params: Params) -> tuple[Array, Params]:
    """Return the LSTM's gradients of the input (B, T, I) and of the parameters, by backpropagation
    through time.

    Source: Werbos 1990, "Backpropagation through time: what it does and how to do it".
    """
    x, tape, _ = cache
    b, length, _ = dy_BTH.shape
    d_gates = np.zeros((b, length, 4 * layer.hidden))
    h_before = np.stack([step[0] for step in tape], axis=1)
    dh, dc = np.zeros((2, b, layer.hidden))
    for t in reversed(range(length)):
        _, c_before, i, f, g, o, tanh_c, _ = tape[t]
        dh = dh + dy_BTH[:, t]
        dc = dc + dh * o * (1 - tanh_c**2)
        d_gates[:, t] = np.concatenate(
            [
                dc * g * i * (1 - i),
                dc * c_before * f * (1 - f),
                dc * i * (1 - g**2),
                dh * tanh_c * o * (1 - o),
            ],
            axis=1,
        )
        dh = d_gates[:, t] @ params["weight_hh_l0"]
        dc = dc * f
    return d_gates @ params["weight_ih_l0"], recurrent_gradients(x, h_before, d_gates, d_gates)


def gru_forward(
    layer: GRU, x_BTI: Array, params: Params, tanh: Activation = np.tanh
) -> tuple[Array, Any]:
    """Return the hidden states of all positions, (B, T, I) → (B, T, H), and the cache of
    `gru_backward`. The reset gate multiplies W_hn·h + b_hn, as in PyTorch. ``tanh`` may be replaced
    by an approximation."""
    b, length, _ = x_BTI.shape
    fed = x_BTI @ params["weight_ih_l0"].T + params["bias_ih_l0"]
    (h,) = initial_state(layer, b, params)
    tape = []
    for t in range(length):
        over = h @ params["weight_hh_l0"].T + params["bias_hh_l0"]
        (r, z, n), (hr, hz, hn) = np.split(fed[:, t], 3, axis=1), np.split(over, 3, axis=1)
        r, z, hn = sigmoid(r + hr), sigmoid(z + hz), hn.copy()
        n = tanh(n + r * hn)
        before, h = h, (1 - z) * n + z * h
        tape.append((before, r, z, n, hn, h))
    y = np.stack([step[-1] for step in tape], axis=1)
    return y, (x_BTI, tape, (h,) if layer.stateful else ())


def gru_backward(layer: GRU, dy_BTH: Array, cache: Any, params: Params) -> tuple[Array, Params]:
    """Return the GRU's gradients of the input (B, T, I) and of the parameters, by backpropagation
    through time."""
    x, tape, _ = cache
    b, length, _ = dy_BTH.shape
    d_in, d_hidden = np.zeros((2, b, length, 3 * layer.hidden))
    h_before = np.stack([step[0] for step in tape], axis=1)
    dh = np.zeros((b, layer.hidden))
    for t in reversed(range(length)):
        before, r, z, n, hn, _ = tape[t]
        dh = dh + dy_BTH[:, t]
        dn = dh * (1 - z) * (1 - n**2)
        dz = dh * (before - n) * z * (1 - z)
        dr = dn * hn * r * (1 - r)
        d_in[:, t] = np.concatenate([dr, dz, dn], axis=1)
        d_hidden[:, t] = np.concatenate([dr, dz, dn * r], axis=1)
        dh = dh * z + d_hidden[:, t] @ params["weight_hh_l0"]
    return d_in @ params["weight_ih_l0"], recurrent_gradients(x, h_before, d_in, d_hidden)


def rnn_forward(
    layer: RNN, x_BTI: Array, params: Params, tanh: Activation = np.tanh
) -> tuple[Array, Any]:
    """Return the hidden states of all positions, (B, T, I) → (B, T, H), with the layer's
    nonlinearity (tanh or ReLU), and the cache of `rnn_backward`. ``tanh`` may be replaced by an
    approximation."""
    b, length, _ = x_BTI.shape
    fed = x_BTI @ params["weight_ih_l0"].T + params["bias_ih_l0"] + params["bias_hh_l0"]
    (h,) = initial_state(layer, b, params)
    tape = [h]
    for t in range(length):
        into = fed[:, t] + h @ params["weight_hh_l0"].T
        h = tanh(into) if layer.nonlinearity == "tanh" else np.maximum(into, 0)
        tape.append(h)
    return np.stack(tape[1:], axis=1), (x_BTI, tape, (h,) if layer.stateful else ())


def rnn_backward(layer: RNN, dy_BTH: Array, cache: Any, params: Params) -> tuple[Array, Params]:
    """Return the RNN's gradients of the input (B, T, I) and of the parameters, by backpropagation
    through time."""
    x, tape, _ = cache
    b, length, _ = dy_BTH.shape
    d_sum = np.zeros((b, length, layer.hidden))
    dh = np.zeros((b, layer.hidden))
    for t in reversed(range(length)):
        h = tape[t + 1]
        slope = 1 - h**2 if layer.nonlinearity == "tanh" else h > 0
        d_sum[:, t] = (dh + dy_BTH[:, t]) * slope
        dh = d_sum[:, t] @ params["weight_hh_l0"]
    before = np.stack(tape[:-1], axis=1)
    return d_sum @ params["weight_ih_l0"], recurrent_gradients(x, before, d_sum, d_sum)


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + e⁻ˣ), in a form that cannot overflow."""
    y: Array = (1 + np.tanh(x / 2)) / 2
    return y
