"""All stages of a model in one process, each on its own device, in PyTorch.

``Tensor.to`` moves activations forward and their gradients back. With several processes
`DistributedDataParallel` wraps the module that holds all stages. Its parameters lie on several
devices, so it gets no ``device_ids``; it sums the gradients during the backward pass of the last
micro-batch.

Source: PyTorch, "Getting Started with Distributed Data Parallel", section "Combining DDP with Model
Parallelism".
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dualml.algorithms.communicator import Communicator
from dualml.backend import Array, PlacedStage, Segment, TrainingSpec
from dualml.backend.devices import check_present, parse_device
from dualml_torch.common.environment import missing_cuda_reason
from dualml_torch.parallel.split import TorchStage, Values


def resolve_devices(names: Sequence[str]) -> list[torch.device]:
    """Return the devices of these names, one each; the processor's logical devices (``cpu:1``) are
    all ``cpu``.

    Raises:
        Unsupported: a device that does not exist, or ``ascend``.
        UserError: a name that is no device.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    reasons = {"ascend": "PyTorch drives Ascend only with torch_npu, which dualml does not use"}
    if any(parse_device(name)[0] == "cuda" for name in names) and not count:
        reasons["cuda"] = missing_cuda_reason()
    check_present(names, {"cuda": count}, reasons)
    return [
        torch.device(*parse_device(n)) if n[:3] != "cpu" else torch.device("cpu") for n in names
    ]


class Stages(nn.Module):
    """A module that holds all parts of a model and computes one of them per call."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, segment: int, values: Values, masks: Sequence[torch.Tensor]) -> Values:
        """Compute the part number ``segment``, from 0, of the stack ``values`` with its masks;
        return the stack after it."""
        outputs: Values = self.parts[segment](values, masks)
        return outputs


class TorchPlacedStage(TorchStage, PlacedStage):
    """PyTorch implementation of `dualml.backend.capability.PlacedStage`.

    Args:
        names: devices of the segments, by the names of `dualml.backend.devices`.
        comm: communicator of the processes that each have the whole model; all of them make the
            stage at the same time, because `DistributedDataParallel` first compares their models.
    """

    transfers_by = "torch.Tensor.to"

    def __init__(
        self,
        segments: Sequence[Segment],
        recipe: TrainingSpec,
        names: Sequence[str],
        comm: Communicator,
    ) -> None:
        self.devices = resolve_devices(names)
        super().__init__(segments, recipe, self.devices[0], first=True, devices=self.devices)
        self.size, self.last_micro = comm.size, -1
        self.parallel: DistributedDataParallel | None = None
        group = getattr(comm, "group", None)
        if group is not None:
            self.sums_by = "torch.nn.parallel.DistributedDataParallel, without device_ids"
            self.parallel = DistributedDataParallel(
                Stages(self.parts),
                process_group=group,
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
            )

    def transfer(self, x: torch.Tensor, segment: int) -> torch.Tensor:
        """Return a tensor, detached, on a segment's device. On a processor this is always a copy,
        also between logical devices; a GPU that has the tensor already shares it."""
        device = self.devices[segment]
        return x.detach().to(device, copy=device.type == "cpu")

    def labels(self, index: Array) -> torch.Tensor:
        """Return the labels of these training samples on the last segment's device."""
        return self.y.index_select(0, torch.from_numpy(index).to(self.y.device))

    def targets(self, y: Array) -> torch.Tensor:
        """Copy labels from outside the training set to the last segment's device."""
        return torch.from_numpy(y).to(self.devices[-1])

    # --- several processes ------------------------------------------------------------------------

    def expect_last(self, micro: int) -> None:
        """Note ``micro``, the micro-batch in whose backward pass the gradients are summed over the
        processes. For −1, a process without samples, take part in that sum with zeros at once;
        alone do nothing."""
        self.last_micro = micro
        if self.parallel is None or micro >= 0:
            return
        # Take part in the other processes' all-reduce: the gradient of an empty sum is zero.
        values: Values = (self.x[:0],)
        for segment, device in enumerate(self.devices):
            values = tuple(value.to(device) for value in values)
            values = self.parallel(segment, values, ())
        values[-1].sum().backward()  # type: ignore[no-untyped-call]

    def run_layers(
        self, segment: int, micro: int, values: Values, masks: Sequence[torch.Tensor]
    ) -> Values:
        """Compute a segment and return the stack after it, in the wrapper that sums gradients if
        there are several processes; it sums only in the last micro-batch, see `expect_last`."""
        if self.parallel is None:
            return super().run_layers(segment, micro, values, masks)
        last = micro == self.last_micro
        with nullcontext() if last else self.parallel.no_sync():
            outputs: Values = self.parallel(segment, values, masks)
            return outputs

    def loss_backward(self, micro: int, share: float) -> tuple[torch.Tensor | None, Values | None]:
        """Run the last segment's backward pass for ``share`` times the loss of a micro-batch, times
        the number of processes if there are several: the wrapper averages gradients, and the sum is
        needed. Return loss and gradients as `TorchStage.loss_backward`."""
        return super().loss_backward(micro, share * (self.size if self.parallel else 1))

    # --- all gradients ----------------------------------------------------------------------------

    def flatten_gradients(self) -> torch.Tensor:
        """Return copies of all gradients as one 1-D tensor on the first device, zeros for missing
        ones."""
        own = self.parameters.values()
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
        return torch.cat([part.flatten().to(self.device) for part in parts])

    def assign_flat_gradients(self, flat: torch.Tensor) -> None:
        """Replace the gradients by parts of ``flat``, which is in the order of `flatten_gradients`,
        each moved to its parameter's device."""
        sizes = [p.numel() for p in self.parameters.values()]
        parts: Any = flat.split(sizes)  # type: ignore[no-untyped-call]
        for parameter, part in zip(self.parameters.values(), parts, strict=True):
            parameter.grad = part.view_as(parameter).to(parameter.device)
