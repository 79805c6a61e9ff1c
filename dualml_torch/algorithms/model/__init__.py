"""Layers, networks and losses of the neutral spec."""

from dualml_torch.algorithms.model.losses import LOSSES
from dualml_torch.algorithms.model.network import ModelPart, Network

__all__ = ["LOSSES", "ModelPart", "Network"]
