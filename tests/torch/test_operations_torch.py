"""Names for the arguments of a recorded call."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from dualml_torch.parity.operations import BoundCall


def test_whole_numbers_by_position_are_settings_of_their_own() -> None:
    x, w = torch.ones(2, 3, 6, 6), torch.ones(4, 3, 3, 3)
    taken = BoundCall(F.conv2d, "conv2d", (x, w, None, 2, 1), {}).values
    assert (taken["stride"], taken["padding"]) == (2, 1)
    taken = BoundCall(F.avg_pool2d, "avg_pool2d", (x, 3, 2, 1), {}).values
    assert (taken["kernel_size"], taken["stride"], taken["padding"]) == (3, 2, 1)
    taken = BoundCall(torch.Tensor.roll, "roll", (x, 1, 2), {}).values
    assert (taken["shifts"], taken["dims"]) == (1, [2])
    assert BoundCall(torch.Tensor.permute, "permute", (x, 0, 2, 3, 1), {}).values["dims"] == [
        0,
        2,
        3,
        1,
    ]
    assert BoundCall(torch.Tensor.view, "view", (x, 6, -1), {}).values["size"] == [6, -1]
    moved = BoundCall(torch.Tensor.permute, "permute", (x, 0, 2, 3, 1), {})
    moved.set_argument("dims", [0, 1, 3, 2])
    assert torch.Tensor.permute(*moved.args, **moved.kwargs).shape == (2, 3, 6, 6)
