"""Checkpoints that outlive a layout: saved in slices by all ranks, read under any other mesh, world
size or framework, and converted from and to what others write."""

from __future__ import annotations

from dualml.checkpoint.saving import save as save
from dualml.checkpoint.slices import Slice as Slice
from dualml.checkpoint.sources import load as load
from dualml.checkpoint.sources import opened as opened
from dualml.checkpoint.stored import Checkpoint as Checkpoint
