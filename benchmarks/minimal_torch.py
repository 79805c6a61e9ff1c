"""The minimal program of a group of ranks in plain PyTorch under torchrun (see minimal.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == dist.get_world_size()
Path(sys.argv[1], str(dist.get_rank())).touch()
dist.destroy_process_group()
