"""Typical mistakes in a pipeline of two stages, as functions of the numbers that they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Tensors = list[Any]
#: Forms of ``stage_step_each``: gradients of earlier micro-batches are kept; rank 0 computes its
#: activation anew; each micro-batch goes both ways before the next; rank 1 goes forward with all
#: first.
CUMULATIVE_STEPS, RECOMPUTED_STEPS, LOCKSTEP, FORWARD_FIRST = (
    {"stage_step_each#2", "stage_step_each#4", "stage_step_each#6", "stage_step_each#8"},
    {"stage_step_each#3", "stage_step_each#4"},
    {"stage_step_each#5", "stage_step_each#6"},
    {"stage_step_each#7", "stage_step_each#8"},
)
STEPS_IN_LOOP = {"stage_step_each", *CUMULATIVE_STEPS, *RECOMPUTED_STEPS, *LOCKSTEP, *FORWARD_FIRST}
#: Mistake → whether micro-batch k of m is passed over; the first two also in the loss.
SKIPPED: Mapping[str, Callable[[int, int], bool]] = {
    "stage_left_out": lambda k, m: k == m - 1 and m > 1,
    "stage_left_out#2": lambda k, m: k == 0 and m > 1,
    "stage_left_out#3": lambda k, m: k == m - 1 and m > 1,
    "stage_left_out#4": lambda k, m: k == 0 and m > 1,
    "stage_first_micro_batch": lambda k, m: k > 0,
}
#: Mistake → what the gradient of a micro-batch is divided by, of the numbers of micro-batches m and
#: of samples N; with ``#2`` or ``#4`` the returned loss is right.
DIVISORS: Mapping[str, Callable[[int, int], float]] = {
    "stage_undivided": lambda m, n: 1,
    "stage_divided_twice": lambda m, n: m * m,
    "stage_divided_samples": lambda m, n: n,
    "stage_divided_samples#3": lambda m, n: n // m,
    "stage_divided_ranks": lambda m, n: 2 * m,
    "stage_negated": lambda m, n: -m,
}
GRADIENT_FORMS = {"stage_divided_samples#3": "stage_divided_samples#4"}
#: Mistake → the returned loss, of the losses of the micro-batches, m and N.
RETURNED_LOSSES: Mapping[str, Callable[[Tensors, int, int], Any]] = {
    "stage_loss_undivided": lambda each, m, n: sum(each),
    "stage_loss_divided_twice": lambda each, m, n: sum(each) / (m * m),
    "stage_loss_last": lambda each, m, n: each[-1],
    "stage_loss_last#2": lambda each, m, n: each[-1] / m,
    "stage_loss_last#3": lambda each, m, n: each[0],
    "stage_loss_last#4": lambda each, m, n: each[0] / m,
    "stage_loss_samples": lambda each, m, n: sum(each) / n,
    "stage_loss_samples#2": lambda each, m, n: sum(each) * (n // m) / m,
    "stage_loss_samples#3": lambda each, m, n: sum(each) / (n // m),
    "stage_loss_samples#4": lambda each, m, n: sum(each) * (n // m),
}
#: Mistake → the gradients at the cut that rank 0 uses, of those of the micro-batches and of its
#: activations.
CUT_GRADIENTS: Mapping[str, Callable[[Tensors, Tensors], Tensors]] = {
    "stage_order_crossed": lambda gs, hs: gs[::-1],
    "stage_order_crossed#2": lambda gs, hs: gs[1:] + gs[:1],
    "stage_order_crossed#3": lambda gs, hs: gs[-1:] + gs[:-1],
    "stage_last_gradient": lambda gs, hs: [gs[-1]] * len(gs),
    "stage_last_gradient#2": lambda gs, hs: [gs[0]] * len(gs),
    "stage_cut_accumulated": lambda gs, hs: list(np.cumsum(gs, axis=0)),
    "stage_cut_accumulated#2": lambda gs, hs: [sum(gs)] * len(gs),
    "stage_gradient_ignored": lambda gs, hs: [np.ones_like(g) for g in gs],
    "stage_activation_sent": lambda gs, hs: hs,
    "stage_product_mean": lambda gs, hs: [g / g.dtype.type(g.size) for g in gs],
}
#: Mistake → the micro-batch of m whose activation goes backward on rank 0, for all of them.
BACKWARD_MICRO_BATCHES: Mapping[str, Callable[[int], int]] = {
    "stage_wrong_activation": lambda m: m - 1,
    "stage_wrong_activation#2": lambda m: 0,
}
#: Mistake → the activations that rank 1 uses.
RECEIVED_ACTIVATIONS: Mapping[str, Callable[[Tensors], Tensors]] = {
    "stage_one_buffer": lambda hs: hs[-1:] * len(hs),
    "stage_one_buffer#2": lambda hs: hs[:1] * len(hs),
}
#: Mistake → the samples of micro-batch k, of k and of the numbers of micro-batches and samples.
SAMPLE_SLICES: Mapping[str, Callable[[int, int, int], Any]] = {
    "stage_samples_repeated": lambda k, m, n: slice(k, k + n // m),
    "stage_samples_repeated#2": lambda k, m, n: slice(0, n // m),
    "stage_samples_repeated#3": lambda k, m, n: slice(n - n // m, n),
}
#: Mistake → the targets of micro-batch k, which belong to other activations.
TARGET_SLICES: Mapping[str, Callable[[int, int, int], Any]] = {
    "stage_samples_crossed": lambda k, m, n: samples_of(m - 1 - k, m, n),
    "stage_samples_crossed#2": lambda k, m, n: samples_of((k + 1) % m, m, n),
    "stage_samples_crossed#3": lambda k, m, n: samples_of((k - 1) % m, m, n),
    "stage_samples_crossed#4": lambda k, m, n: slice(k, None, m),
}


def samples_of(k: int, m: int, n: int) -> slice:
    """Return the samples of micro-batch ``k`` of ``m``, of ``n`` samples."""
    return slice(k * (n // m), (k + 1) * (n // m))
