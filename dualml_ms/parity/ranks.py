"""MindSpore's groups of ranks, as a recorder needs them."""

from __future__ import annotations

from functools import partial
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import communication, ops

from dualml.common.errors import UserError
from dualml.parity.ranks.member import GroupAccess


def join_group(group: Any) -> GroupAccess:
    """Return access to a communication group by its name, or with True to all ranks.

    Raises:
        UserError: communication was not initialised, or this process is not in the group.
    """
    if group is not True and not isinstance(group, str):
        raise UserError(
            "group must be the name of a communication group of MindSpore, or True; received "
            f"{type(group).__name__}"
        )
    name = communication.GlobalComm.WORLD_COMM_GROUP if group is True else group
    try:
        # In some processes the rank is 0 without a group, and a sum then ends the process.
        if not communication.GlobalComm.INITED:
            raise RuntimeError("communication is not initialised")
        rank, size = communication.get_rank(name), communication.get_group_size(name)
    except (RuntimeError, ValueError, TypeError) as error:
        raise UserError(
            "Recorder(group=…) needs a communication group that this process is in: call "
            f"mindspore.communication.init() before it ({str(error).strip().splitlines()[0]})"
        ) from None
    return GroupAccess(rank, size, partial(find_maximum, name, rank, size))


def find_maximum(group: str, rank: int, size: int, value: int) -> int:
    """Return the largest of the numbers that the ranks of a group give, integers from 0 with at
    most 24 bits; all of them must call this.

    Args:
        rank, size: number of this rank in the group, and of all ranks.
    """
    # The CPU's kernel only adds, and only real numbers: every rank adds its own to zeros.
    values = np.zeros(size, np.float32)
    values[rank] = value
    summed = ops.AllReduce(ops.ReduceOp.SUM, group)(ms.Tensor(values))
    return int(summed.asnumpy().max())
