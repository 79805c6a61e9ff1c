"""Cuts of a model into pipeline stages of consecutive layers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from dualml.algorithms.model.spec import ModelSpec
from dualml.common.errors import UserError, did_you_mean

BALANCES = ("parameters", "activations", "time")
Costs = dict[int, tuple[float, int]]


def legal_cuts(spec: ModelSpec) -> list[str]:
    """Return all layers at which a stage may begin, in model order: not the first layer, and none
    inside a residual block."""
    depth, names = spec.open_branches(), [name for name, _ in spec.layers]
    return [now for before, now in itertools.pairwise(names) if depth[before] == 0]


def check_cuts(spec: ModelSpec, cut: Sequence[str]) -> None:
    """Raise `UserError` if a stage cannot begin at one of the layers ``cut``, or they are not in
    model order, each once."""
    names, allowed = [name for name, _ in spec.layers], legal_cuts(spec)
    for name in cut:
        if name not in names:
            raise UserError(f"cut: {spec.name} has no layer {name!r}{did_you_mean(name, names)}")
        if name == names[0]:
            raise UserError(f"cut: {name!r} is the first layer; the first stage begins there")
        if name not in allowed:
            near = min(allowed, key=lambda a: abs(names.index(a) - names.index(name)), default="")
            hint = f"; the nearest place to cut is {near!r}" if near else ""
            raise UserError(f"cut: {name!r} lies inside a residual connection{hint}")
    places = [names.index(name) for name in cut]
    if places != sorted(set(places)):
        raise UserError(f"cut: layers must follow the model's order, each once: {list(cut)}")


def layer_costs(
    spec: ModelSpec, balance: str, times: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Return the cost of every layer of the model, which stages balance.

    With ``balance`` ``parameters`` it is the number of parameters (0 without any), with
    ``activations`` the elements of the output per sample (saved for the backward pass), with
    ``time`` the seconds in ``times``.

    Raises:
        UserError: ``time`` without the time of every layer.
    """
    if balance == "parameters":
        return {
            name: float(sum(map(math.prod, layer.parameters().values())))
            for name, layer in spec.layers
        }
    if balance == "activations":
        return {name: float(math.prod(shape)) for name, shape in spec.shapes().items()}
    if not times or set(times) != {name for name, _ in spec.layers}:
        raise UserError("balance = time needs the measured time of every layer")
    return dict(times)


def balance_stages(spec: ModelSpec, stages: int, weights: Mapping[str, float]) -> list[str]:
    """Return the layers at which stages 1, 2, … begin, so that the heaviest stage is as light as
    possible; among equal cuts the one with the smallest sum of squares. ``weights`` has the cost of
    every layer.

    Raises:
        UserError: more stages than legal cuts allow.
    """
    names, allowed = [name for name, _ in spec.layers], legal_cuts(spec)
    if stages - 1 > len(allowed):
        raise UserError(
            f"{stages} stages are too many for {spec.name}: it can be cut at {len(allowed)} places "
            f"({', '.join(allowed)}); use at most {len(allowed) + 1} stages"
        )
    blocks = [0, *(names.index(name) for name in allowed), len(names)]
    sums = [sum(weights[n] for n in names[a:b]) for a, b in itertools.pairwise(blocks)]
    total = [0.0, *itertools.accumulate(sums)]

    def table(join: Callable[[float, float], float], most: float) -> list[Costs]:
        """Return number of stages → number of blocks in them → (cost, block at which the last stage
        begins), if no stage may be heavier than ``most``."""
        best: list[Costs] = [{0: (0.0, 0)}]
        for _ in range(stages):
            now: Costs = {}
            for j in range(1, len(sums) + 1):
                options = [
                    (join(cost, total[j] - total[i]), i)
                    for i, (cost, _) in best[-1].items()
                    if i < j and total[j] - total[i] <= most
                ]
                if options:
                    now[j] = min(options)
            best.append(now)
        return best

    heaviest = table(max, math.inf)[stages][len(sums)][0]
    best = table(lambda squares, stage: squares + stage**2, heaviest)
    cut, j = list[int](), len(sums)
    for k in range(stages, 0, -1):
        j = best[k][j][1]
        cut.append(j)
    return [names[blocks[j]] for j in reversed(cut[:-1])]


def stage_layers(spec: ModelSpec, cut: Sequence[str]) -> list[list[str]]:
    """Return the layer names of each stage, where ``cut`` names the first layers of stages 1, 2,
    …"""
    names = [name for name, _ in spec.layers]
    ends = [0, *(names.index(name) for name in cut), len(names)]
    return [names[a:b] for a, b in itertools.pairwise(ends)]
