"""Sizes of the models of published runs, and how their sources count operations."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dualml.planning.planner.models import known_models

#: Sizes that a row may give instead of its model's.
OVERRIDES = ("layers", "hidden", "heads", "vocabulary", "sequence")
PATH = Path(__file__).with_name("models.toml")


@cache
def described_models() -> Mapping[str, Mapping[str, Any]]:
    """Return name → sizes of the models that ``models.toml`` describes, as the planner's keys."""
    given = tomllib.loads(PATH.read_text("utf-8"))
    models = {}
    for name, entry in given["model"].items():
        family = given["family"].get(entry.get("family"), {})
        models[name] = {**family, **{key: value for key, value in entry.items() if key != "family"}}
    return models


def find_sizes(name: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of a model: of ``models.toml``, else of the planner's model of this name,
    with those that ``overrides`` has of `OVERRIDES`.

    Raises:
        KeyError: neither has the model.
    """
    if name in described_models():
        sizes = dict(described_models()[name])
    else:
        shape, _, _ = known_models()[name]
        sizes = {key: value for key, value in vars(shape).items() if key != "name" and value}
        # A value of a planner's model that is false differs from the default.
        sizes |= {key: False for key, value in vars(shape).items() if value is False}
    sizes |= {key: overrides[key] for key in OVERRIDES if key in overrides}
    return sizes


def count_operations(sizes: Mapping[str, Any], counted: str) -> float:
    """Return the operations of a token in an update, as a source counts them.

    ``matrices``: six for each element of the layers' matrices and of the output layer, and all
    scores, 12·L·s·(width of the queries), as if no mask threw half of them away; ``causal``: the
    half of the scores.

    Raises:
        ValueError: another way of counting, or a mixture of experts.
    """
    if counted not in ("matrices", "causal") or sizes.get("experts"):
        raise ValueError(f"operations counted as {counted!r} are not known for this model")
    hidden, layers = sizes["hidden"], sizes["layers"]
    width = sizes.get("head_width") or hidden // sizes["heads"]
    queries, keys = sizes["heads"] * width, sizes.get("kv_heads", sizes["heads"]) * width
    ffn = sizes.get("ffn", 4 * hidden)
    matrices = 2 * hidden * (queries + keys) + (3 if sizes.get("gated") else 2) * hidden * ffn
    scores = (12.0 if counted == "matrices" else 6.0) * layers * sizes["sequence"] * queries
    return 6.0 * (layers * matrices + sizes["vocabulary"] * hidden) + scores
