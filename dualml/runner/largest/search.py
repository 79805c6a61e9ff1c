"""Search for the largest decoder that trains under a memory limit on every rank, by bisection over
its blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np

from dualml.common.errors import TrialError, UserError
from dualml.experiment.arm import make_arm
from dualml.experiment.store.largest import LargestRow, SizeAttempt
from dualml.launch.ranks import run_ranks
from dualml.parallel.memory import gathered_elements
from dualml.parallel.zero.units import units_of
from dualml.planning.planner.arm import layout_from_arm
from dualml.planning.planner.engine import DUALML
from dualml.planning.planner.memory import stage_memory
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.zoo import sizes_from_shape, spec_from_shape
from dualml.runner.largest.limit import is_out_of_memory, return_freed_memory

#: Maximum number of blocks of a model (`dualml.experiment.models.DecoderSizes`).
MAX_BLOCKS = 1000
#: Time limit for training one size, in seconds.
LIMIT_S = 300.0
PRECISION = DUALML.precisions["fp32"]


@dataclass(frozen=True)
class SizeSearch:
    """The configuration that is fixed while the number of blocks grows.

    Attributes:
        backend: that trains.
        shape: the model; its number of layers is ignored.
        arm: how it is trained, as in an experiment file.
        limit: bytes that a rank may use beyond what its framework takes.
    """

    backend: str
    shape: Shape
    arm: Mapping[str, Any]
    limit: int

    def predict_bytes(self, blocks: int) -> float:
        """Predict the bytes of a rank for a model of ``blocks`` layers: the planner's estimate,
        plus the buffers that ranks reduce or gather (a copy of all gradients; with ZeRO-2 and 3, of
        the largest unit; none for ZeRO-1 and a single rank)."""
        shape, arm = replace(self.shape, layers=blocks), make_arm(self.arm)
        x = layout_from_arm(shape, arm)
        of = stage_memory(shape, x, PRECISION, np.zeros(1, int), engine=DUALML).describe(0)
        copies: int = PRECISION.gradients * shape.parameters * (arm.world_size > 1 and not arm.zero)
        if arm.zero > 1:
            units = units_of(spec_from_shape(shape), arm.aggregation.bucket_bytes, arm.world_size)
            copies = PRECISION.gradients * gathered_elements(units, arm.zero)
        return sum(of.values()) - of["gathered"] + copies

    def result_fields(self) -> dict[str, Any]:
        """Return the fields of the result that do not depend on the search: ``backend``, ``model``,
        ``limit_bytes``, ``world_size``, ``zero``, ``recompute`` and ``width``."""
        return {
            "backend": self.backend,
            "model": self.shape.name,
            "limit_bytes": self.limit,
            "world_size": self.arm["world_size"],
            "zero": self.arm.get("zero", 0),
            "recompute": self.arm.get("recompute", "none"),
            "width": self.shape.hidden,
        }


def find_largest(fits: Callable[[int], bool], start: int, most: int = MAX_BLOCKS) -> int:
    """Find the largest n from 1 to ``most`` for which ``fits(n)``, provided that all smaller ones
    fit; 0 if none does.

    Args:
        fits: whether n fits; never called with 0.
        start: an estimate: the closer, the fewer calls.
        most: the upper bound.

    Example:
        >>> tries = []
        >>> find_largest(lambda n: tries.append(n) or n <= 13, 10), tries
        (13, [10, 11, 13, 17, 15, 14])
    """
    low, high, step, n = 0, most + 1, 1, min(max(start, 1), most)
    while high - low > 1:
        if fits(n):
            low = n
        else:
            high = n
        # Double the step until both bounds are known, then bisect.
        if high > most:
            n = min(low + step, most)
        else:
            n = (low + high) // 2 if low else max(high - step, 1)
        step *= 2
    return low


def search_largest(
    setting: SizeSearch, on_result: Callable[[SizeAttempt], None] = lambda tried: None
) -> LargestRow:
    """Train sizes until one fits and the next one, with one block more, does not, or `MAX_BLOCKS`
    fit; return the largest that fits, with all tries.

    Args:
        setting: the configuration.
        on_result: called with each size that was tried.

    Raises:
        UserError: not even one block fits.
        TrialError: a size failed for another reason than memory.
    """
    start = find_largest(lambda n: setting.predict_bytes(n) <= setting.limit, 1)
    tries: dict[int, SizeAttempt] = {}

    def fits(blocks: int) -> bool:
        if blocks not in tries:
            tries[blocks] = try_size(setting, blocks)
            on_result(tries[blocks])
        return tries[blocks].fits

    found = find_largest(fits, start)
    if not found:
        raise UserError(
            f"{setting.shape.name} with one block does not fit {setting.limit:,} bytes on "
            f"{setting.backend}: {tries[1].reason}; give more memory, fewer words, or a smaller "
            "width, length or batch"
        )
    best = replace(setting.shape, layers=found)
    return LargestRow.model_validate(
        {
            **setting.result_fields(),
            "predicted_blocks": start,
            "blocks": found,
            "parameters": best.parameters,
            "predicted_bytes": setting.predict_bytes(found),
            "tries": sorted(tries.values(), key=by_blocks),
        }
    )


def by_blocks(tried: SizeAttempt) -> int:
    """Return the sort key of a tried size: its number of blocks."""
    return tried.blocks


def try_size(setting: SizeSearch, blocks: int) -> SizeAttempt:
    """Train one size on all ranks and return whether it fits and, if it does, the mean losses over
    the ranks, and the bytes and seconds of the rank that needs most.

    Raises:
        TrialError: it failed for another reason than memory.
    """
    shape = setting.shape
    argument = {
        "arm": dict(setting.arm),
        "sizes": sizes_from_shape(shape),
        "blocks": blocks,
        "words": shape.vocabulary,
        "length": shape.sequence,
        "limit": setting.limit,
    }
    try:
        with return_freed_memory():
            ranks = run_ranks(
                setting.backend,
                setting.arm["world_size"],
                "dualml.runner.largest.rank:train",
                argument,
                timeout=LIMIT_S,
                limit=LIMIT_S,
            )
    except TrialError as error:
        if not is_out_of_memory(error):
            raise
        return SizeAttempt(blocks=blocks, fits=False, reason=str(error))
    losses = np.mean([rank["losses"] for rank in ranks], axis=0).tolist()
    return SizeAttempt(
        blocks=blocks,
        fits=True,
        losses=losses,
        held_bytes=max(rank["held_bytes"] for rank in ranks),
        step_s=max(rank["step_s"] for rank in ranks),
    )


class SizeSearchGrid(TypedDict):
    """Settings of the searches of one command: limits, and lists of what is combined.

    ``limit`` is in bytes per rank.
    """

    ranks: int
    batch: int
    updates: int
    limit: int
    zero: Sequence[int]
    recompute: Sequence[str]


def iter_searches(
    shape: Shape, options: SizeSearchGrid, backends: list[str]
) -> Iterator[SizeSearch]:
    """Yield the search of every combination of backend, ZeRO stage and recomputation, in this order
    of nesting. A single rank always has stage 0, so that several stages give equal searches."""
    ranks = options["ranks"]
    for backend in backends:
        for zero in options["zero"]:
            for again in options["recompute"]:
                arm = {
                    "model": shape.name,
                    "optimizer": {"name": "adam", "lr": 1e-3},
                    "world_size": ranks,
                    "batch_size": options["batch"],
                    "chunk": options["batch"],
                    "updates": options["updates"],
                    "zero": zero if ranks > 1 else 0,
                    "recompute": again,
                }
                if zero > 1 and ranks > 1:
                    # One unit per layer; a tied embedding is in the unit of the layer using it.
                    arm["aggregation"] = {"bucket_bytes": 0}
                yield SizeSearch(backend, shape, arm, options["limit"])
