"""What is tried on one operation."""

from __future__ import annotations

import pytest

from dualml.parity.causes.alteration import Around
from dualml.parity.causes.alterations import alterations
from dualml.parity.models.operations import Operation

AROUND = Around((), (), {}, {}, ())


@pytest.mark.parametrize(
    "name",
    ["cross_entropy", "nll_loss", "cat", "split", "lstm", "reshape", "embedding", "mul", "softmax",
     "__getitem__", "rsqrt", "where", "scaled_dot_product_attention", "max_pool2d"],
)  # fmt: skip
@pytest.mark.parametrize("shapes", [[()], [(3,)], [(4, 3), ()], [(), (4,)], [(4, 3), (4,)]])
def test_shapes_of_all_kinds_are_no_error(name: str, shapes: list[tuple[int, ...]]) -> None:
    inputs = tuple(f"op:{i}" for i in range(len(shapes)))
    for output in ((), (4,), (4, 3)):
        one = Operation(9, name, inputs, {}, (output,))
        assert all(change.sites for change in alterations(one, shapes, AROUND))
        several = Operation(9, name, inputs, {}, (output, output, output))
        assert list(alterations(several, shapes, AROUND))
