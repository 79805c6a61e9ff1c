"""Checkpoints that are independent of a layout.

All ranks save their slices; any mesh, world size or framework can read them; other formats can be
converted from and to.
"""

from __future__ import annotations

from dualml.common.former_members import former_names
from dualml.runner.checkpoint.saving import save as save
from dualml.runner.checkpoint.slices import Slice as Slice
from dualml.runner.checkpoint.sources import load as load
from dualml.runner.checkpoint.sources import open_checkpoint as open_checkpoint
from dualml.runner.checkpoint.stored_checkpoint import Checkpoint as Checkpoint

__getattr__ = former_names(__name__, {"opened": "open_checkpoint"})
