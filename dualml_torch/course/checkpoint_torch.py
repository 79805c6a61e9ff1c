"""Checkpoint: rank 0 saves, every rank loads, and the training goes on as if it had never stopped,
in PyTorch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch


class Checkpoint:
    """The checkpoint of a data parallel training, in one file on a disk that all ranks see.

    Args:
        comm: the communicator; ``comm.rank``, ``comm.size``, ``comm.barrier()``,
            ``comm.gather(x, root)``, ``comm.all_gather(x)``, ``comm.broadcast(x, root)``.
        path: name of the file, the same on every rank.
        model: a `torch.nn.Module` with parameters and a buffer, the same on every rank.
        optimizer: a `torch.optim.Optimizer` with momentum and a learning rate that falls, the same
            on every rank.
        generator: a `torch.Generator`, another one on every rank.
    """

    def __init__(
        self,
        comm: Any,
        path: str,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
    ) -> None:
        self.comm, self.path = comm, path
        self.model, self.optimizer, self.generator = model, optimizer, generator

    def save(self, progress: Mapping[str, int]) -> None:
        """Write everything that is needed to go on; every rank calls it, rank 0 alone writes.

        Once it returns on a rank, the whole file is there and this rank can load it. If writing
        fails, the checkpoint before is still there.

        Args:
            progress: ``epoch`` and ``step``, the epochs and updates that are done.
        """
        # solution: begin
        own = self.generator.get_state().to(torch.int32)
        states = self.comm.gather(own, root=0)
        if self.comm.rank == 0:
            everything = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "generators": states,
                "progress": dict(progress),
            }
            temporary = f"{self.path}.tmp"
            torch.save(everything, temporary)
            os.replace(temporary, self.path)
        self.comm.barrier()
        # solution: end

    def load(self) -> Mapping[str, int]:
        """Put back the model, the optimizer and this rank's generator, in place; every rank calls
        it.

        Returns:
            the ``progress`` that was saved.
        """
        # solution: begin
        everything = torch.load(self.path, map_location="cpu")
        self.model.load_state_dict(everything["model"])
        self.optimizer.load_state_dict(everything["optimizer"])
        self.generator.set_state(everything["generators"][self.comm.rank].to(torch.uint8))
        return everything["progress"]
        # solution: end
