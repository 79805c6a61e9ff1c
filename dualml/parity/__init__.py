"""Parity checks: compare trajectories of trials, and users' own models.

`compare` runs two models and judges them; `compare_traces` judges traces that Recorders wrote;
`pair_models` pairs the parameters of two models without running a comparison.
Their dependencies are imported only when one of them is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualml.parity.models.comparison import ModelComparison as ModelComparison
    from dualml.parity.models.run import compare as compare
    from dualml.parity.models.run import compare_traces as compare_traces
    from dualml.parity.models.sides import Side as Side
    from dualml.parity.models.weights.map_only import pair_models as pair_models
    from dualml.parity.models.weights.options import WeightOptions as WeightOptions

__all__ = [
    "ModelComparison",
    "Side",
    "WeightOptions",
    "compare",
    "compare_traces",
    "pair_models",
]


def __getattr__(name: str) -> Any:
    if name not in (*__all__, "Comparison"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dualml.parity.models import comparison, run, sides
    from dualml.parity.models.weights import map_only, options

    if name in ("WeightOptions", "pair_models"):
        return getattr(options if name == "WeightOptions" else map_only, name)
    if name == "Side":
        return sides.Side
    if name in ("ModelComparison", "Comparison"):  # the latter is the name of version 0.1
        return comparison.ModelComparison
    return getattr(run, name)
