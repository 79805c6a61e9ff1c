"""The activations that dualml saves on PyTorch, by the planner's formula and by the table that is
compared with autograd."""

from __future__ import annotations

import numpy as np
import pytest

from dualml.algorithms.model.recompute import recompute_groups
from dualml.algorithms.model.zoo import model
from dualml.planning.planner.engine import DUALML
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.memory import stage_memory
from dualml.planning.planner.zoo import shape_from_spec
from dualml_torch.algorithms.model.saved_activations import saved_activation_bytes

SIZES = [
    {"blocks": 3},
    {"width": 32, "blocks": 2, "heads": 4, "kv_heads": 2, "inner": 48},
    {"width": 32, "heads": 4, "kv_heads": 1, "tied": False},
    {"width": 64, "heads": 4, "kv_heads": 4, "dropout": 0.1},
]
BATCH = 4


@pytest.mark.parametrize("again", ["none", "selective", "full"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", ["gpt", "gpt_llama"])
def test_one_rank_keeps_what_the_formula_says(
    name: str, sizes: dict[str, object], again: str
) -> None:
    """One rank saves what the formula says, to the byte, except for the tokens, which the formula
    omits."""
    spec = model(name, words=80, length=24, sizes=sizes)
    x = Layouts.from_axes(BATCH, micro=BATCH, recompute=again)
    m = stage_memory(
        shape_from_spec(spec), x, DUALML.precisions["fp32"], np.zeros(1), engine=DUALML
    )
    kept = saved_activation_bytes(spec, BATCH, recompute_groups(spec, again))
    predicted = float(m.activations[0] + m.logits[0])
    assert kept is not None
    assert 0 <= kept - predicted <= BATCH * 24 * 5 + 4
