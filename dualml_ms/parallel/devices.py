"""All stages of a model in one process, on logical devices of its processor, in MindSpore.

A MindSpore process drives one device, which `mindspore.set_device` chooses once. So the devices
here are logical ones. Each stage is compiled separately; values between stages are copied. There is
no wrapper that sums the gradients of a model on several devices: the caller's all-reduce does.
"""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms

from dualml.backend import PlacedStage, Segment, TrainingSpec
from dualml.backend.devices import check_present
from dualml_ms.parallel.split import MindSporeStage

#: Reason why stages cannot be placed on a second device.
SINGLE_DEVICE_REASON = (
    "a MindSpore process drives one device, so that there is no second one to place stages on"
)


class MindSporePlacedStage(MindSporeStage, PlacedStage):
    """MindSpore implementation of `dualml.backend.capability.PlacedStage`.

    Args:
        names: devices of the segments, by the names of `dualml.backend.devices`.

    Raises:
        Unsupported: a device that is not a logical one.
    """

    transfers_by = "mindspore.Tensor.copy"

    def __init__(
        self, segments: Sequence[Segment], recipe: TrainingSpec, names: Sequence[str]
    ) -> None:
        check_present(names, {}, dict.fromkeys(("cuda", "ascend"), SINGLE_DEVICE_REASON))
        super().__init__(segments, recipe, first=True, last=True)

    def transfer(self, x: ms.Tensor, segment: int) -> ms.Tensor:
        """Return a copy of ``x``; ``segment`` is ignored, because all logical devices share one
        memory."""
        return x.copy()
