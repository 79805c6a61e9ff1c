"""Find the pieces of fused tensors among the parameters of one block: queries, keys and values.

Their lengths may differ (fewer heads for keys and values), and other parameters may have the shape
of a piece, so that counting shapes does not find them. The block's modules do: neighbours in it
whose rows together are those of the fused tensor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from dualml.parity.models.layers import parent_name
from dualml.parity.models.partners import Tensor

Shape = tuple[int, ...]


def find_module_runs(shape: Shape, tensors: Sequence[Tensor], most: int) -> list[list[Tensor]]:
    """Return, for each block that has one, the longest run of neighbouring modules whose parameters
    of one last name have together the rows of a fused tensor. The modules are of one kind: a
    convolution and the normalization behind it are no pieces, whatever their biases add up to.

    Args:
        shape: shape of the fused tensor.
        tensors: tensors of the other side, in its order.
        most: number of parameters of a run, at most.

    Example:
        >>> names = "a.o.w", "a.q.w", "a.k.w", "a.v.w"
        >>> side = [Tensor(name, (2 if "k" in name or "v" in name else 4, 3)) for name in names]
        >>> [[one.name for one in run] for run in find_module_runs((8, 3), side, 4)]
        [['a.q.w', 'a.k.w', 'a.v.w']]
    """
    blocks: dict[tuple[str, str], list[Tensor]] = defaultdict(list)
    kinds: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for one in tensors:
        module, _, last = one.name.rpartition(".")
        block, dot, _ = module.rpartition(".")
        kinds[module].add((last, len(one.shape)))
        if dot and one.trained:
            blocks[block, last].append(one)
    found = []
    for members in blocks.values():
        runs = (
            members[start:end]
            for start in range(len(members))
            for end in range(start + 2, min(start + most, len(members)) + 1)
            if all(one.shape[1:] == shape[1:] and one.shape for one in members[start:end])
            and sum(one.shape[0] for one in members[start:end]) == shape[0]
            and all(
                kinds[parent_name(one.name)] == kinds[parent_name(members[start].name)]
                for one in members[start:end]
            )
        )
        # Of several runs the one with most pieces: an output beside it may have a piece's shape.
        best = max(runs, key=len, default=None)
        if best is not None:
            found.append(best)
    return found
