"""Layers, networks and losses of the neutral spec."""

from dualml_ms.model.losses import LOSSES
from dualml_ms.model.network import Network

__all__ = ["LOSSES", "Network"]
