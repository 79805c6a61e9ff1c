"""The numbers from which a wrong one of a training with a parameter server is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Array, Arrays, Difference
from dualml.course.language_model import WEIGHTS, join_weights, language_model
from dualml.course.rnn_ps.remote_rules import differentiate

Row = tuple[float, ...]


def server_inputs(
    arrays: Sequence[Arrays], made: Sequence[Arrays], difference: Difference
) -> dict[str, Any]:
    """Return the number of the table E or of the weights W before the update, and each trainer's
    gradient for it; for a wrong loss the words of the trainer's window, and what the server has to
    send first: the row of the first word and the first weight.

    Args:
        arrays: arrays of all ranks; those of rank 0 are ``table`` and the weights.
        made: the right results of all ranks: ``3/table`` and ``3/weights`` on rank 0,
            ``3/gradient`` and ``3/weight_gradient`` on the trainers.
        difference: the wrong number of ``3/table``, ``3/weights`` or ``3/loss``.
    """
    step, _, name = difference.key.partition("/")
    if difference.index is None:
        return {}
    last = int(step) - 1
    if last:
        table, weights = made[0][f"{last}/table"], made[0][f"{last}/weights"]
    else:
        table, weights = arrays[0]["table"], join_weights(arrays[0])
    if name == "loss":
        words = arrays[difference.rank][f"words/{step}"]
        return {
            "words": tuple(int(word) for word in words),
            f"E_{last}[{words[0]}]": as_row(table[words[0]]),
            f"W_{last}[0]": float(weights[0]),
        }
    kind, symbol, before = (
        ("gradient", "E", table) if name == "table" else ("weight_gradient", "W", weights)
    )
    shown = {f"{symbol}_{last}": float(before[difference.index])}
    for rank, own in enumerate(made[1:], 1):
        shown[f"g_{step} (rank {rank})"] = float(own[f"{step}/{kind}"][difference.index])
    return shown


def remote_inputs(arrays: Arrays, made: Arrays, difference: Difference) -> dict[str, Any]:
    """Return θ and momentum v before the update that is wrong, and its gradient g; for a wrong loss
    that of each sequence; for a wrong state the vector x of the last word, the state h before it,
    and the rows of the recurrent layer's parameters.

    Args:
        arrays: arrays of the trainer: all parameters, ``state``, ``words/1`` and ``y/1``, ….
        made: the right results: ``3/NAME`` of each parameter and ``3/state`` after update 3,
            ``g/3/NAME`` and ``v/3/NAME``.
        difference: the wrong number of ``3/NAME``, ``3/loss`` or ``3/state``.
    """
    step, _, name = difference.key.partition("/")
    if difference.index is None:
        return {}
    last = int(step) - 1
    names = ("table", *WEIGHTS, "state")
    now = {n: np.asarray(made[f"{last}/{n}"] if last else arrays[n], np.float64) for n in names}
    words, y = arrays[f"words/{step}"], arrays[f"y/{step}"]
    if name == "loss":
        each = [slice(k, k + 1) for k in range(len(words))]
        losses = (differentiate(now, words[k], y[k], now["state"][k], RIGHT)[0] for k in each)
        return {f"L_{k}": float(loss) for k, loss in enumerate(losses)}
    if name == "state":
        return state_inputs(now, words, y, *difference.index)
    parts = {f"θ_{last}": now[name], f"v_{last}": made[f"v/{step}/{name}"]}
    parts[f"g_{step}"] = made[f"g/{step}/{name}"]
    return {n: float(a[difference.index]) for n, a in parts.items()}


def state_inputs(
    now: Mapping[str, Array], words: Array, y: Array, sequence: int, unit: int
) -> dict[str, Any]:
    """Return what a unit of the recurrent layer computes its state after a window from.

    Args:
        now: parameters by name, and ``state``, the state before the window (batch, hidden).
        words, y: word numbers (batch, time), and the next word of each.
        sequence, unit: numbers of the sequence in the batch and of the unit in the layer.
    """
    length = words.shape[1]
    before = now["state"]
    if length > 1:
        weights = {name: now[name] for name in WEIGHTS}
        before = language_model(now["table"][words.T[:-1]], weights, y.T[:-1], before)[3]
    return {
        f"x_{length}": as_row(now["table"][words[sequence, -1]]),
        f"h_{length - 1}": as_row(before[sequence]),
        f"input[{unit}]": as_row(now["input"][unit]),
        f"hidden[{unit}]": as_row(now["hidden"][unit]),
        f"bias[{unit}]": float(now["bias"][unit]),
    }


def as_row(a: Array) -> Row:
    """Return a vector as a tuple of Python floats."""
    return tuple(float(v) for v in a)
