"""What a plan assumes of the software unless the user says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dualml.planning.planner.engine import DUALML, MEGATRON


@dataclass(frozen=True)
class SoftwareDefaults:
    """Choices that training software makes by default today.

    Attributes:
        fused: whether attention saves no scores (FlashAttention).
        overlap: share of the backward pass that may hide messages between replicas, 0 to 1.
        chunks: largest number of stages on a device that a search tries.
    """

    fused: bool
    overlap: float
    chunks: int


#: FlashAttention through Transformer Engine, sums of gradients beside the backward pass
#: (``--overlap-grad-reduce``, which Megatron-LM's own recipes set), and a few virtual stages.
MEGATRON_DEFAULTS = SoftwareDefaults(fused=True, overlap=1.0, chunks=4)
#: dualml sums gradients after the backward pass unless an arm says otherwise, and interleaves no
#: stages as the planner lays them out.
DUALML_DEFAULTS = SoftwareDefaults(fused=True, overlap=0.0, chunks=1)
DEFAULTS: Mapping[str, SoftwareDefaults] = {
    MEGATRON.name: MEGATRON_DEFAULTS,
    DUALML.name: DUALML_DEFAULTS,
}


def software_defaults(engine: str) -> SoftwareDefaults:
    """Return the defaults of an engine by name; those of today for an engine without its own."""
    return DEFAULTS.get(engine, MEGATRON_DEFAULTS)
