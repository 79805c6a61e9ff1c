"""Memory that a comparison block by block takes, estimated before it begins."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.common.errors import UserError
from dualml.parity.models.lockstep.plan import is_inside
from dualml.parity.models.partners import Tensor
from dualml.parity.models.resources import FRAMEWORK_BYTES, free_memory

#: Copies of a block's weights at once: weights, gradients of two runs, and what a kernel arranges.
COPIES = 4
#: Further ones of a block that is updated: two states, the first run's weights and states.
UPDATE_COPIES = 5


def estimate_bytes(blocks: Sequence[str], tensors: Sequence[Tensor]) -> tuple[int, int]:
    """Return the bytes of the largest block's weights, and of all tensors outside of blocks
    together, as float32."""
    sizes = dict.fromkeys(blocks, 0)
    outside = 0
    for one in tensors:
        block = next((name for name in blocks if is_inside(one.name, name)), None)
        if block is None:
            outside += 4 * one.size
        else:
            sizes[block] += 4 * one.size
    return max(sizes.values(), default=0), outside


def check_memory(
    blocks: Sequence[str], tensors: Sequence[Tensor], *, updated: bool = False
) -> None:
    """Raise `UserError` if the free memory is too small for the largest block, and all tensors
    outside of blocks, on both sides at once.

    Args:
        updated: whether an optimizer updates the parameters.
    """
    copies = COPIES + (UPDATE_COPIES if updated else 0)
    largest, outside = estimate_bytes(blocks, tensors)
    needed = 2 * (FRAMEWORK_BYTES + outside + copies * largest)
    if needed > (free := free_memory() + FRAMEWORK_BYTES):
        raise UserError(
            f"the largest block has {largest / 1e9:.1f} GB of weights, and {outside / 1e9:.1f} GB "
            f"lie outside of blocks: both sides take at least {needed / 1e9:.1f} GB of memory, and "
            f"{free / 1e9:.1f} GB are free; name smaller blocks with --blocks, or compare with "
            "--loss none (forward only)"
        )
