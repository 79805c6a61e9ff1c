"""Choices of the software that a plan assumes unless the user names them; messages that run beside
computation are in `software`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dualml.planning.planner.engine import DUALML, MEGATRON


@dataclass(frozen=True)
class SoftwareDefaults:
    """Choices that training software makes by default today.

    Attributes:
        fused: whether attention saves no scores (FlashAttention).
        max_chunks: largest number of stages on a device that a search tries.
    """

    fused: bool
    max_chunks: int


#: FlashAttention through Transformer Engine, and a few virtual stages.
MEGATRON_DEFAULTS = SoftwareDefaults(fused=True, max_chunks=4)
#: dualml interleaves no stages as the planner lays them out.
DUALML_DEFAULTS = SoftwareDefaults(fused=True, max_chunks=1)
DEFAULTS: Mapping[str, SoftwareDefaults] = {
    MEGATRON.name: MEGATRON_DEFAULTS,
    DUALML.name: DUALML_DEFAULTS,
}


def software_defaults(engine: str) -> SoftwareDefaults:
    """Return the defaults of an engine by name; those of Megatron for an engine without its own."""
    return DEFAULTS.get(engine, MEGATRON_DEFAULTS)
