"""Training engines by name."""

from __future__ import annotations

from collections.abc import Mapping

from dualml.planning.planner.dualml_engine import DualmlEngine
from dualml.planning.planner.software_engines import DeepSpeedEngine, NanotronEngine, TorchEngine
from dualml.planning.planner.training_engine import PRECISIONS as PRECISIONS
from dualml.planning.planner.training_engine import PrecisionBytes as PrecisionBytes
from dualml.planning.planner.training_engine import TrainingEngine as TrainingEngine

MEGATRON, DUALML = TrainingEngine(), DualmlEngine()
DEEPSPEED, TORCH, NANOTRON = DeepSpeedEngine(), TorchEngine(), NanotronEngine()
ENGINES: Mapping[str, TrainingEngine] = {
    engine.name: engine for engine in (MEGATRON, DEEPSPEED, TORCH, DUALML)
}
