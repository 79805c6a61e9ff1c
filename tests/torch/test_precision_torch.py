"""Loss scaling against PyTorch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dualml.algorithms.precision import Scaler, round_to_type
from dualml.algorithms.precision.scaling import BACKOFF, GROWTH, INTERVAL, START


@pytest.mark.parametrize(("share", "updates"), [(0.3, 100), (0.01, 5000), (0.0004, 5000)])
def test_the_scale_is_that_of_gradscaler(share: float, updates: int) -> None:
    """The loss scale follows PyTorch's defaults over updates of which a share overflows."""
    ours, theirs = Scaler(), torch.amp.GradScaler("cpu")
    assert theirs.get_scale() == START
    assert theirs.get_backoff_factor() == BACKOFF
    assert (theirs.get_growth_factor(), theirs.get_growth_interval()) == (GROWTH, INTERVAL)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    for overflows in np.random.default_rng(0).random(updates) < share:
        before = weight.item()
        theirs.scale(weight.detach())  # without a first loss it has no scale to change
        weight.grad = torch.full((1,), float("inf") if overflows else theirs.get_scale())
        theirs.step(optimizer)
        theirs.update()
        assert ours.should_step(not overflows) is (weight.item() != before)
        assert ours.scale == theirs.get_scale()


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_rounding_is_pytorchs_cast(name: str, dtype: torch.dtype) -> None:
    draw = np.random.default_rng(0)
    x = (draw.normal(size=10**5) * 10.0 ** draw.uniform(-9, 9, 10**5)).astype(np.float32)
    cast = torch.from_numpy(x).to(dtype).double().numpy()
    np.testing.assert_array_equal(round_to_type(x, name), cast)
