"""Utilisation of a device's peak: MFU by its common definition, and the hardware's."""

from __future__ import annotations

from dualml.planning.planner.shape import Shape


def model_flops(shape: Shape, batch: int) -> float:
    """Return the operations of one update as MFU counts them: 6N + 12·L·a·d·s for each token, with
    N parameters and a attention heads of width d.

    N is the number of parameters that a token uses. Every score counts, also the half that a causal
    mask discards, and no recomputation.

    Source: Chowdhery et al. 2022, "PaLM", appendix B.
    """
    scores = 6.0 * shape.layers * (shape.queries + shape.attended) * shape.sequence
    return float(batch) * shape.sequence * (6.0 * shape.active_parameters + scores)


def hardware_flops(shape: Shape, batch: int, recompute: str, fused: bool) -> float:
    """Return the operations of matrix products that the devices execute in one update: with
    recomputation, and with ``fused`` attention without the scores that a causal mask discards."""
    if recompute != "operations":
        return shape.flops(batch, recompute, fused)
    # Every second product is computed again.
    products = 0.5 * shape.layer_flops(fused)[0] * shape.layers
    return shape.flops(batch, "none", fused) + float(batch) * shape.sequence * products
