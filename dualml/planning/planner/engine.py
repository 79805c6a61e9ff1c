"""Training engines by name."""

from __future__ import annotations

from collections.abc import Mapping

from dualml.planning.planner.dualml_engine import DualmlEngine
from dualml.planning.planner.software_engines import (
    DeepSpeedEngine,
    EarlierMegatronEngine,
    NanotronEngine,
    TorchEngine,
)
from dualml.planning.planner.training_engine import PRECISIONS as PRECISIONS
from dualml.planning.planner.training_engine import PrecisionBytes as PrecisionBytes
from dualml.planning.planner.training_engine import TrainingEngine as TrainingEngine

MEGATRON, DUALML = TrainingEngine(), DualmlEngine()
DEEPSPEED, TORCH, NANOTRON = DeepSpeedEngine(), TorchEngine(), NanotronEngine()
EARLIER_MEGATRON = EarlierMegatronEngine()
ENGINES: Mapping[str, TrainingEngine] = {
    engine.name: engine for engine in (MEGATRON, DEEPSPEED, TORCH, DUALML)
}
#: Published software → the engine whose memory it shares, where their names differ.
RELATED_ENGINES: Mapping[str, TrainingEngine] = {
    "aleph-alpha": EARLIER_MEGATRON,
    "megatron-2021": EARLIER_MEGATRON,
    "megatron-deepspeed": DEEPSPEED,
    "colossalai": DEEPSPEED,
    "fsdp1": TORCH,
    "fsdp2": TORCH,
    "nanotron": NANOTRON,
}


def find_engine(software: str) -> TrainingEngine:
    """Return the engine that has in memory what the training software has: the engine of its name,
    or the one that it is related to (`RELATED_ENGINES`), or Megatron-LM for any other name."""
    return ENGINES.get(software) or RELATED_ENGINES.get(software, MEGATRON)
