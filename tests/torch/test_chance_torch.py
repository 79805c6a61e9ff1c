"""PyTorch's random functions draw from the shared random source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from dualml.parity.models.rng import SharedRng
from dualml_torch.parity.rng import SharedRngMode

X = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0))
ATTENTION = nn.MultiheadAttention(8, 2, dropout=0.5)


def drawn(function: Callable[[], torch.Tensor], seed: int = 0) -> torch.Tensor:
    with SharedRngMode(SharedRng(seed)):
        return function()


@pytest.mark.parametrize(
    "function",
    [
        lambda: nn.Dropout(0.3)(X),
        lambda: functional.dropout2d(X[..., None], 0.3),
        lambda: nn.AlphaDropout(0.3)(X),
        lambda: nn.FeatureAlphaDropout(0.3)(X),
        lambda: torch.bernoulli(torch.full((50,), 0.4)),
        lambda: torch.empty(50).bernoulli_(0.4),
        lambda: torch.rand(5, 3),
        lambda: torch.rand_like(X),
        lambda: functional.scaled_dot_product_attention(X, X, X, dropout_p=0.5, is_causal=True),
        lambda: ATTENTION(X, X, X, need_weights=False)[0],
    ],
)
def test_the_same_seed_gives_the_same_numbers(function: Callable[[], torch.Tensor]) -> None:
    torch.manual_seed(1)
    first = drawn(function)
    torch.manual_seed(2)
    torch.testing.assert_close(drawn(function), first, rtol=0, atol=0)


def test_a_dropout_keeps_what_the_source_says_and_scales_it() -> None:
    found = drawn(lambda: functional.dropout(X, 0.25))
    kept = SharedRng(0).keep_mask(tuple(X.shape), 0.25)
    np.testing.assert_allclose(found.numpy(), X.numpy() * kept / 0.75, rtol=1e-6)
    assert drawn(lambda: functional.dropout(X, 0.25, training=False)) is X


def test_alpha_dropout_keeps_mean_and_variance_and_drops_to_one_value() -> None:
    x = torch.randn(200, 500, generator=torch.Generator().manual_seed(0))
    found = drawn(lambda: functional.alpha_dropout(x, 0.25, training=True))
    kept = torch.from_numpy(SharedRng(0).keep_mask(tuple(x.shape), 0.25).astype(bool))
    ours, theirs = found[~kept].unique(), functional.alpha_dropout(x, 0.25, training=True)
    torch.testing.assert_close(ours, theirs.mode().values[:1])  # the value that is there most often
    assert abs(float(found.mean())) < 0.01
    assert abs(float(found.var()) - 1) < 0.02
    channels = drawn(lambda: functional.feature_alpha_dropout(X, 0.5, training=True))
    assert all(len(row.unique()) in (1, 8) for row in channels.flatten(0, 1))
    assert drawn(lambda: functional.alpha_dropout(X, 0.25, training=False)).equal(X)
    for rate in (-0.1, 1.5):  # PyTorch refuses them
        with pytest.raises(ValueError, match="between 0 and 1"):
            drawn(lambda rate=rate: functional.alpha_dropout(X, rate, training=True))


def test_a_dropout_in_place_changes_its_input() -> None:
    x = X.clone()
    wanted = drawn(lambda: functional.dropout(X, 0.25))
    assert drawn(lambda: functional.dropout(x, 0.25, inplace=True)) is x
    assert torch.equal(x, wanted)


def test_attention_with_dropout_is_close_to_its_mean() -> None:
    wanted = functional.scaled_dot_product_attention(X, X, X)
    many = [
        drawn(lambda: functional.scaled_dot_product_attention(X, X, X, dropout_p=0.1), seed)
        for seed in range(400)
    ]
    torch.testing.assert_close(torch.stack(many).mean(0), wanted, rtol=0.1, atol=0.1)


def test_a_kernel_of_attention_runs_only_without_dropout() -> None:
    q, called = X[None], list[str]()

    class Names(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            called.append(func.__name__)
            return func(*args, **(kwargs or {}))

    name = "scaled_dot_product_attention"
    for keeps, dropout, runs in ((True, 0.0, True), (True, 0.5, False), (False, 0.0, False)):
        called.clear()
        with Names(), SharedRngMode(SharedRng(0), keeps):
            functional.scaled_dot_product_attention(q, q, q, None, dropout)
        assert (name in called) == runs
        called.clear()
        with Names(), SharedRngMode(SharedRng(0), keeps):
            functional.scaled_dot_product_attention(q, q, q, dropout_p=dropout)
        assert (name in called) == runs


def test_a_generator_of_ones_own_is_left_alone() -> None:
    own = [torch.Generator().manual_seed(5) for _ in range(2)]
    assert torch.equal(
        drawn(lambda: torch.rand(4, generator=own[0])), torch.rand(4, generator=own[1])
    )


def test_gradients_pass_through_the_mask() -> None:
    x = X.clone().requires_grad_()
    drawn(lambda: functional.dropout(x, 0.5)).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 2 * SharedRng(0).keep_mask(tuple(X.shape), 0.5))


def test_a_dropout_is_one_call_under_any_number_of_modes() -> None:
    class RecordCalls(TorchFunctionMode):
        def __init__(self, names: list[str]) -> None:
            super().__init__()
            self.names = names

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            self.names += [func.__name__] if func.__name__ != "__get__" else []
            return func(*args, **(kwargs or {}))

    outer: list[str] = []
    inner: list[str] = []
    with RecordCalls(outer), RecordCalls(inner), SharedRngMode(SharedRng(0)):
        nn.Dropout(0.5)(X)
    assert outer == inner == ["dropout"]
