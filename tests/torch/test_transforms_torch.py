"""The transforms that both searches know do the same in NumPy and in PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dualml.parity.causes.element_orders import element_orders  # noqa: E402
from dualml.parity.causes.tables import EXTRAS  # noqa: E402
from dualml.parity.transforms import TRANSFORMS, apply_transform  # noqa: E402
from dualml_torch.parity.causes import functions  # noqa: E402

X = np.random.default_rng(0).normal(size=(4, 6, 12)).astype(np.float32)
TRIED = {
    *element_orders(X.shape),
    *(one for one in EXTRAS if one[0] in TRANSFORMS),
    ("take", 1, 5, 4, 3, 2, 1, 0),
    ("arrange", *range(71, -1, -1)),
    ("identity",),
    ("half",),
    ("bfloat",),
    ("round",),
    ("trunc",),
    ("shift", 0.5),
}


def test_every_transform_is_tried() -> None:
    assert {one[0] for one in TRIED} == set(TRANSFORMS)
    assert set(TRANSFORMS) <= set(functions.TRANSFORMS)


@pytest.mark.parametrize("name", sorted(TRANSFORMS))
def test_a_transform_is_the_same_on_both_sides(name: str) -> None:
    for one in (one for one in TRIED if one[0] == name):
        theirs = functions.TRANSFORMS[name](torch.from_numpy(X.copy()), *one[1:]).numpy()
        assert np.allclose(apply_transform(one, X), theirs, 1e-5, 1e-6, equal_nan=True), one
