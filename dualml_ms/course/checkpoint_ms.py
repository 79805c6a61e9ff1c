"""Checkpoint: rank 0 saves, every rank loads, and the training goes on as if it had never stopped,
in MindSpore."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn


class Checkpoint:
    """The checkpoint of a data parallel training, in one file on a disk that all ranks see.

    Args:
        comm: the communicator; ``comm.rank``, ``comm.size``, ``comm.barrier()``,
            ``comm.gather(x, root)``, ``comm.all_gather(x)``, ``comm.broadcast(x, root)``.
        path: name of the file, the same on every rank.
        net: a `mindspore.nn.Cell` with parameters, of which one is not trained, the same on every
            rank.
        optimizer: a `mindspore.nn.Cell` whose parameters are the momentum and a learning rate that
            falls, the same on every rank.
        generator: a `numpy.random.RandomState`, another one on every rank.
    """

    def __init__(
        self,
        comm: Any,
        path: str,
        net: nn.Cell,
        optimizer: nn.Cell,
        generator: np.random.RandomState,
    ) -> None:
        self.comm, self.path = comm, path
        self.net, self.optimizer, self.generator = net, optimizer, generator

    def save(self, progress: Mapping[str, int]) -> None:
        """Write everything that is needed to go on; every rank calls it, rank 0 alone writes.

        Once it returns on a rank, the whole file is there and this rank can load it. If writing
        fails, the checkpoint before is still there.

        Args:
            progress: ``epoch`` and ``step``, the epochs and updates that are done.
        """
        # solution: begin
        _, keys, position, *_ = self.generator.get_state()
        own = ms.Tensor(np.append(keys, position).astype(np.int64))
        states = self.comm.gather(own, root=0)
        if self.comm.rank == 0:
            everything = {f"net.{p.name}": p.asnumpy() for p in self.net.get_parameters()}
            for p in self.optimizer.get_parameters():
                everything[f"optimizer.{p.name}"] = p.asnumpy()
            everything["generators"] = np.stack([state.asnumpy() for state in states])
            everything |= {f"progress.{name}": value for name, value in progress.items()}
            temporary = f"{self.path}.tmp"
            with open(temporary, "wb") as file:
                np.savez(file, **everything)
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
        with np.load(self.path) as everything:
            for p in self.net.get_parameters():
                p.set_data(ms.Tensor(everything[f"net.{p.name}"]))
            for p in self.optimizer.get_parameters():
                p.set_data(ms.Tensor(everything[f"optimizer.{p.name}"]))
            *keys, position = everything["generators"][self.comm.rank]
            self.generator.set_state(("MT19937", np.array(keys, np.uint32), int(position)))
            return {name: int(everything[f"progress.{name}"]) for name in ("epoch", "step")}
        # solution: end
