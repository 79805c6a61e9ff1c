"""A small recurrent language model in NumPy: its loss and its gradients, for rules and drivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

#: Names of the weights beside the table of word vectors, in the order of the vector of all weights.
WEIGHTS = ("input", "hidden", "bias", "decoder", "decoder_bias")


def weight_shapes(words: int, width: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights, for ``words`` words with vectors of ``width`` numbers."""
    return {
        "input": (hidden, width),
        "hidden": (hidden, hidden),
        "bias": (hidden,),
        "decoder": (words, hidden),
        "decoder_bias": (words,),
    }


def split_weights(vector: Any, shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Split the vector of all weights, in the order of `WEIGHTS`, into arrays by name."""
    found, at = {}, 0
    for name in WEIGHTS:
        size = int(np.prod(shapes[name]))
        found[name] = vector[at : at + size].reshape(shapes[name])
        at += size
    return found


def join_weights(weights: Mapping[str, Any]) -> Any:
    """Return all weights as one vector, in the order of `WEIGHTS`."""
    return np.concatenate([np.ravel(weights[name]) for name in WEIGHTS])


def language_model(
    rows: Any, weights: Mapping[str, Any], targets: Any, hidden: Any, last_word: bool = False
) -> tuple[Any, Any, dict[str, Any], Any]:
    """Compute loss, gradients and the last state of h_t = s(W·x_t + U·h_{t−1} + b) with softsign s,
    logits D·h_t + c, and the mean cross entropy; all in the dtype of ``rows``.

    Args:
        rows: word vectors (time, batch, width).
        targets: numbers of the next words, (time, batch).
        hidden: state before the first word, (batch, hidden); no gradient flows into it.
        last_word: whether only the last position counts for the loss.

    Returns:
        loss, gradient of the rows, gradients of the weights by name, and the state after the last
        word.
    """
    length, batch, _ = rows.shape
    number = rows.dtype.type
    states, slopes = [hidden], []
    for x in rows:
        z = x @ weights["input"].T + states[-1] @ weights["hidden"].T + weights["bias"]
        states.append(z / (1 + np.abs(z)))
        slopes.append(1 / (1 + np.abs(z)) ** 2)
    counted = [length - 1] if last_word else range(length)
    share = number(1 / (len(counted) * batch))
    gradients = {name: np.zeros_like(w) for name, w in weights.items()}
    row_gradients, back, loss = np.zeros_like(rows), np.zeros_like(hidden), number(0)
    for t in range(length - 1, -1, -1):
        if t in counted:
            logits = states[t + 1] @ weights["decoder"].T + weights["decoder_bias"]
            logits = logits - logits.max(1, keepdims=True)
            powers = np.exp(logits)
            off = powers / powers.sum(1, keepdims=True)
            at = np.arange(batch), targets[t]
            loss = loss - share * np.log(off[at]).sum()
            off[at] -= 1
            off = share * off
            gradients["decoder"] += off.T @ states[t + 1]
            gradients["decoder_bias"] += off.sum(0)
            back = back + off @ weights["decoder"]
        inner = back * slopes[t]
        gradients["input"] += inner.T @ rows[t]
        gradients["hidden"] += inner.T @ states[t]
        gradients["bias"] += inner.sum(0)
        row_gradients[t] = inner @ weights["input"]
        back = inner @ weights["hidden"]
    return loss, row_gradients, gradients, states[-1]
