"""AdamW: Adam with weight decay taken out of the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.algorithms.optim.adam import Adam
from dualml.algorithms.optim.base import RULES, Variants


@RULES.register("adamw", 40)
@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    r"""θ ← (1 − ηλ)·θ before Adam's update; the gradient is not touched by the decay.

    Args:
        weight_decay: λ ≥ 0, decoupled, 0.01 by default; the others as in `Adam`.

    Note:
        The paper's Algorithm 2 multiplies the decay by a schedule multiplier only; PyTorch, and
        this rule, multiply it by the step size η. MindSpore's ``nn.AdamWeightDecay`` has no bias
        correction and another ε; ours follows the rule.

    Source: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", Algorithm 2.
    """

    variants: ClassVar[Variants] = {
        "adamw": {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1},
        "adamw-biased": {
            "lr": 0.01,
            "betas": (0.8, 0.95),
            "eps": 1e-3,
            "bias_correction": False,
        },
        "adamw-hat": {"lr": 0.01, "eps": 1e-3, "eps_form": "hat", "weight_decay": 0.1},
    }
    decoupled = True

    weight_decay: float = 0.01
