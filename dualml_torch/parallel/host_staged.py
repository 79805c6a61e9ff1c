"""Communication through host memory between ranks that compute on GPUs: gloo, with a copy at each
end.

Ranks need no GPU of their own and no NCCL: several ranks may compute on one GPU, or on GPUs of
machines that are connected only by the network of their processors. Every message costs two copies
between device and host more than with NCCL.
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
        staged_bytes: bytes copied so far, [to the host, back to ``compute``].
    """

    compute = HOST

    def __init__(self, *words: Any, compute: torch.device | None = None) -> None:
        super().__init__(*words)
        self.compute = compute or HOST
        self.device, self.staged_bytes = str(self.compute), [0, 0]

    def implementation_of(
        self, primitive: str, dtype: str = "float32", op: str = "sum"
    ) -> Implementation:
        """Return gloo's implementation, with a note that it passes host memory unless this is a
        single rank, which sends nothing."""
        known = super().implementation_of(primitive, dtype, op)
        return (
            known
            if self.group is None
            else Implementation(known.kind, f"{known.detail}, by host memory")
        )

    def to_host(self, x: Tensor) -> Tensor:
        """Copy a tensor into host memory, even if it is there already, as a detached contiguous
        tensor, and count its bytes."""
        self.staged_bytes[0] += x.nbytes
        return x.detach().to(HOST, copy=True).contiguous()

    def to_device(self, x: Tensor) -> Tensor:
        """Copy a tensor from host memory to `compute`, even if that is the host, and count its
        bytes."""
        self.staged_bytes[1] += x.nbytes
        return x.to(self.compute, copy=True)

    def results_to_device(self, result: Any) -> Any:
        """Copy the result of a collective to `compute`: a tensor or each of a list; return anything
        else, such as None, as it is."""
        if isinstance(result, list):
            return [self.to_device(x) for x in result]
        return self.to_device(result) if isinstance(result, Tensor) else result

    def tensor(self, array: Any) -> Tensor:
        """Copy a NumPy array to a new tensor on `compute`."""
        return super().tensor(array).to(self.compute)

    def synchronize(self) -> None:
        """Wait for the GPU `compute`; do nothing on a CPU."""
        if self.compute.type == "cuda":
            torch.cuda.synchronize(self.compute)

    def _subgroup(self, ranks: Sequence[int]) -> Any:
        """Make the communicator of these ranks of this group, which all of them call; it shares the
        device and the byte counters."""
        made: Any = super()._subgroup(ranks)
        made.compute, made.device = self.compute, self.device
        made.staged_bytes = self.staged_bytes
        return made

    def _exchange(
        self, send: Mapping[int, Tensor], receive: Mapping[int, Tensor]
    ) -> dict[int, Tensor]:
        """Exchange tensors by host memory; return the received ones by rank, as new tensors on
        `compute`. Those in ``receive`` only give shapes and types."""
        given = {peer: self.to_host(x) for peer, x in send.items()}
        buffers = {peer: torch.empty_like(x, device=HOST) for peer, x in receive.items()}
        return {peer: self.to_device(x) for peer, x in super()._exchange(given, buffers).items()}

    def _isend(self, x: Tensor, peer: int) -> Callable[[], Tensor]:
        """Start sending a host copy of ``x``; return a function that waits and returns ``x``."""
        wait = super()._isend(self.to_host(x), peer)

        def wait_sent() -> Tensor:
            wait()
            return x

        return wait_sent

    def _irecv(self, buffer: Tensor, peer: int) -> Callable[[], Tensor]:
        """Start receiving into host memory; return a function that waits and returns a copy on
        `compute`. ``buffer`` only gives shape and type and is not written."""
        wait = super()._irecv(torch.empty_like(buffer, device=HOST), peer)
        return lambda: self.to_device(wait())

    def _isend_tagged(self, x: Tensor, peer: int, tag: int) -> EngineWork:
        """Start sending a host copy of ``x`` with the number ``tag``; the work returns ``x``."""
        work = super()._isend_tagged(self.to_host(x), peer, tag)

        def wait_sent() -> Tensor:
            work()
            return x

        return EngineWork(wait_sent, work.done, work.why)

    def _irecv_tagged(self, buffer: Tensor, peer: int | None, tag: int) -> EngineWork:
        """Start receiving a message with the number ``tag`` into host memory, from any rank if
        ``peer`` is None; the work returns a copy on `compute`, and ``buffer`` is not written."""
        work = super()._irecv_tagged(torch.empty_like(buffer, device=HOST), peer, tag)
        return EngineWork(lambda: self.to_device(work()), work.done, work.why, work.source)

    def _native(self, primitive: str, x: Any, **options: Any) -> Any:
        """Run a collective on host copies and return its result on `compute`; ``x`` is
        unchanged."""
        own, options = self._arguments_to_host(x, options)
        return self.results_to_device(super()._native(primitive, own, **options))

    def _start(self, primitive: str, x: Tensor, **options: Any) -> Callable[[], Any]:
        """Start a collective on host copies; its work returns the result on `compute`, and ``x`` is
        unchanged."""
        own, options = self._arguments_to_host(x, options)
        work = super()._start(primitive, own, **options)
        return EngineWork(lambda: self.results_to_device(work()), work.done)

    def _arguments_to_host(self, x: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return host copies of a collective's arguments: its tensor, and the option ``parts`` of a
        scatter or all-to-all, if it is not None; other options unchanged."""
        parts = options.get("parts")
        if parts is not None:
            options = {**options, "parts": [self.to_host(part) for part in parts]}
        return (self.to_host(x) if isinstance(x, Tensor) else x), options


def connect_staged(place: RankContext, device: torch.device) -> HostStagedCommunicator:
    """Join the other ranks by gloo and return the communicator of tensors on ``device``; a GPU
    becomes the current one. Raises what `join` does.

    Args:
        device: ``cpu``, or any ``cuda`` device, whose index is ignored: a rank takes the GPU of its
            local rank, modulo the number of GPUs.
    """
    compute = device
    if device.type == "cuda":
        number = int(os.environ.get("LOCAL_RANK", place.rank)) % torch.cuda.device_count()
        compute = torch.device("cuda", number)
        torch.cuda.set_device(compute)
    return HostStagedCommunicator(place, join(place, "cpu"), compute=compute)
