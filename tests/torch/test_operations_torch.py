"""Names for the arguments of a recorded call."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from dualml_torch.operations import Bound


def test_whole_numbers_by_position_are_settings_of_their_own() -> None:
    x, w = torch.ones(2, 3, 6, 6), torch.ones(4, 3, 3, 3)
    taken = Bound(F.conv2d, "conv2d", (x, w, None, 2, 1), {}).values
    assert (taken["stride"], taken["padding"]) == (2, 1)
    taken = Bound(F.avg_pool2d, "avg_pool2d", (x, 3, 2, 1), {}).values
    assert (taken["kernel_size"], taken["stride"], taken["padding"]) == (3, 2, 1)
    taken = Bound(torch.Tensor.roll, "roll", (x, 1, 2), {}).values
    assert (taken["shifts"], taken["dims"]) == (1, [2])
    assert Bound(torch.Tensor.permute, "permute", (x, 0, 2, 3, 1), {}).values["dims"] == [
        0,
        2,
        3,
        1,
    ]
    assert Bound(torch.Tensor.view, "view", (x, 6, -1), {}).values["size"] == [6, -1]
    moved = Bound(torch.Tensor.permute, "permute", (x, 0, 2, 3, 1), {})
    moved.put("dims", [0, 1, 3, 2])
    assert torch.Tensor.permute(*moved.args, **moved.kwargs).shape == (2, 3, 6, 6)
