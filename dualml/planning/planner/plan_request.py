"""One question to the planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dualml.common.json_types import JsonObject
from dualml.planning.planner.cluster import Cluster
from dualml.planning.planner.engine import MEGATRON, TrainingEngine
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.space import SearchSpace

ATTENTION = ("stored", "fused")


@dataclass(frozen=True)
class PlanRequest:
    """One question to the planner.

    Attributes:
        shape, cluster: model and devices.
        precision: a key of the engine's ``precisions``.
        batch: sequences per update.
        batch_given: whether the user gave the batch.
        fused: attention saves no scores (FlashAttention, Dao et al. 2022).
        device: name of the device.
        choices: search space.
        engine: engine that trains the model.
        layout: axes of the layout to price (`axes.complete_axes`); None: the fastest one.
        pins: axis → the only value that a search may choose.
        reserve: bytes of a device that the user keeps free; they are not in the cluster's memory.
    """

    shape: Shape
    cluster: Cluster
    precision: str
    batch: int
    batch_given: bool
    fused: bool
    device: str
    choices: SearchSpace = field(default_factory=SearchSpace)
    engine: TrainingEngine = MEGATRON
    layout: Mapping[str, Any] | None = None
    pins: Mapping[str, Any] = field(default_factory=dict)
    reserve: float = 0.0

    def describe(self) -> JsonObject:
        """Return model, cluster, precision, batch, attention, engine and `describe_assumptions` as
        JSON-compatible values; the search space is not included."""
        shape = {**vars(self.shape), "parameters": self.shape.parameters}
        cluster = vars(self.cluster)
        nested = {key: vars(cluster[key]) for key in ("inside", "between", "reached", "software")}
        chip = {**vars(self.cluster.chip), "attention": list(self.cluster.chip.attention)}
        return {
            "model": shape,
            "cluster": {"device": self.device, **cluster, **nested, "chip": chip},
            "precision": self.precision,
            "batch": self.batch,
            "attention": ATTENTION[self.fused],
            "engine": self.engine.name,
            "assumed": self.describe_assumptions(),
        }

    def describe_assumptions(self) -> JsonObject:
        """Return what the answer takes for granted, as the options that change it: ``attention``,
        ``overlap``, ``interleave``, ``reserve`` in bytes, and ``efficiency``."""
        return {
            "attention": ATTENTION[self.fused],
            "overlap": self.cluster.overlap,
            "interleave": self.choices.chunks,
            "reserve": self.reserve,
            "efficiency": self.cluster.reached.products,
        }
