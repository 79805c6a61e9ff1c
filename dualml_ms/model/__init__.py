"""Layers, networks and losses of the neutral spec."""

from dualml_ms.model.losses import LOSSES
from dualml_ms.model.network import Network, ModelPart

__all__ = ["LOSSES", "Network", "ModelPart"]
