"""An optimizer that was written for dualml_torch 0.1 still trains."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from dualml_torch.algorithms.optim import GD


def test_a_hook_gets_its_workspace_by_the_former_name() -> None:
    with pytest.warns(DeprecationWarning, match=r"Slow\.update has a parameter .* 'workspace'"):

        class Slow(GD):
            @staticmethod
            def update(p: Any, g: Any, state: Any, group: Any, lr: Any, *, room: Any) -> None:
                assert callable(room)
                torch._foreach_add_(p, g, alpha=-lr / 2)

    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = Slow([weight], lr=1.0)
    weight.sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.full((3,), 0.5))
    with pytest.warns(DeprecationWarning, match=r"Slow\.rule_of is now Slow\.spec_of_group"):
        assert optimizer.rule_of(optimizer.param_groups[0]).lr == 1.0  # type: ignore[attr-defined]
