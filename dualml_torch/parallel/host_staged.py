"""Communication through host memory between ranks that compute on GPUs: gloo, with a copy at each
end.

Ranks need no GPU of their own and no NCCL: several ranks may compute on one GPU, or on GPUs of
machines that are connected only by the network of their processors. Every message costs two copies
between device and host more than with NCCL.

A GPU need not be a rank's own, and NCCL is not needed: several ranks may compute on one GPU, or on
GPUs of machines that only the network of their processors joins. Every message costs two copies
between device and host more than NCCL's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dualml.algorithms.communicator import Implementation, RankContext
from dualml.algorithms.communicator.primitives import EngineWork
from dualml_torch.algorithms.cluster import join
from dualml_torch.algorithms.communicator import TorchCommunicator

HOST = torch.device("cpu")


class HostStagedCommunicator(TorchCommunicator):
    """A `TorchCommunicator` whose tensors are on ``compute`` and whose messages are in host memory.

    Attributes:
        compute: the device of arguments and results.
        staged_bytes: bytes copied to the host, and back, so far.
    """

    compute = HOST

    def __init__(self, *words: Any, compute: torch.device | None = None) -> None:
        super().__init__(*words)
        self.compute = compute or HOST
        self.device, self.staged_bytes = str(self.compute), [0, 0]

    def implementation_of(
        self, primitive: str, dtype: str = "float32", op: str = "sum"
    ) -> Implementation:
        known = super().implementation_of(primitive, dtype, op)
        return (
            known
            if self.group is None
            else Implementation(known.kind, f"{known.detail}, by host memory")
        )

    def to_host(self, x: Tensor) -> Tensor:
        """Copy a tensor into host memory, even if it is there already."""
        self.staged_bytes[0] += x.nbytes
        return x.detach().to(HOST, copy=True).contiguous()

    def to_device(self, x: Tensor) -> Tensor:
        """Copy a tensor from host memory to the device."""
        self.staged_bytes[1] += x.nbytes
        return x.to(self.compute, copy=True)

    def results_to_device(self, result: Any) -> Any:
        """Copy the result of a collective to the device: a tensor, a list of tensors, or
        nothing."""
        if isinstance(result, list):
            return [self.to_device(x) for x in result]
        return self.to_device(result) if isinstance(result, Tensor) else result

    def tensor(self, array: Any) -> Tensor:
        return super().tensor(array).to(self.compute)

    def synchronize(self) -> None:
        if self.compute.type == "cuda":
            torch.cuda.synchronize(self.compute)

    def _subgroup(self, ranks: Sequence[int]) -> Any:
        made: Any = super()._subgroup(ranks)
        made.compute, made.device = self.compute, self.device
        made.staged_bytes = self.staged_bytes
        return made

    def _exchange(
        self, send: Mapping[int, Tensor], receive: Mapping[int, Tensor]
    ) -> dict[int, Tensor]:
        given = {peer: self.to_host(x) for peer, x in send.items()}
        buffers = {peer: torch.empty_like(x, device=HOST) for peer, x in receive.items()}
        return {peer: self.to_device(x) for peer, x in super()._exchange(given, buffers).items()}

    def _isend(self, x: Tensor, peer: int) -> Callable[[], Tensor]:
        wait = super()._isend(self.to_host(x), peer)

        def wait_sent() -> Tensor:
            wait()
            return x

        return wait_sent

    def _irecv(self, buffer: Tensor, peer: int) -> Callable[[], Tensor]:
        wait = super()._irecv(torch.empty_like(buffer, device=HOST), peer)
        return lambda: self.to_device(wait())

    def _isend_tagged(self, x: Tensor, peer: int, tag: int) -> EngineWork:
        work = super()._isend_tagged(self.to_host(x), peer, tag)

        def wait_sent() -> Tensor:
            work()
            return x

        return EngineWork(wait_sent, work.done, work.why)

    def _irecv_tagged(self, buffer: Tensor, peer: int | None, tag: int) -> EngineWork:
        work = super()._irecv_tagged(torch.empty_like(buffer, device=HOST), peer, tag)
        return EngineWork(lambda: self.to_device(work()), work.done, work.why, work.source)

    def _native(self, primitive: str, x: Any, **options: Any) -> Any:
        own, options = self._arguments_to_host(x, options)
        return self.results_to_device(super()._native(primitive, own, **options))

    def _start(self, primitive: str, x: Tensor, **options: Any) -> Callable[[], Any]:
        own, options = self._arguments_to_host(x, options)
        work = super()._start(primitive, own, **options)
        return EngineWork(lambda: self.results_to_device(work()), work.done)

    def _arguments_to_host(self, x: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Copy the arguments of a collective to the host: its tensor, and the parts of a
        scatter."""
        parts = options.get("parts")
        if parts is not None:
            options = {**options, "parts": [self.to_host(part) for part in parts]}
        return (self.to_host(x) if isinstance(x, Tensor) else x), options


def connect_staged(place: RankContext, device: torch.device) -> HostStagedCommunicator:
    """Join the other ranks by gloo and return the communicator of tensors on ``device``.

    Args:
        device: ``cpu``, or any ``cuda`` device: a rank takes the GPU of its local rank, modulo the
            number of GPUs.
    """
    compute = device
    if device.type == "cuda":
        number = int(os.environ.get("LOCAL_RANK", place.rank)) % torch.cuda.device_count()
        compute = torch.device("cuda", number)
        torch.cuda.set_device(compute)
    return HostStagedCommunicator(place, join(place, "cpu"), compute=compute)
