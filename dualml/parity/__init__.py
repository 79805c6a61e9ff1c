"""Parity checks: compare trajectories of trials, and users' own models.

`compare` runs two models and judges them; `compare_traces` judges traces that Recorders wrote.
Their dependencies are imported only when one of them is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualml.parity.models.comparison import ModelComparison as ModelComparison
    from dualml.parity.models.run import compare as compare
    from dualml.parity.models.run import compare_traces as compare_traces
    from dualml.parity.models.sides import Side as Side

__all__ = ["ModelComparison", "Side", "compare", "compare_traces"]


def __getattr__(name: str) -> Any:
    if name not in (*__all__, "Comparison"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dualml.parity.models import comparison, run, sides

    if name == "Side":
        return sides.Side
    if name in ("ModelComparison", "Comparison"):  # the latter is the name of version 0.1
        return comparison.ModelComparison
    return getattr(run, name)
