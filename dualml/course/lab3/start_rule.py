"""Broadcast of the initial parameters with typical mistakes as options, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import Arrays, Flags
from dualml.course.lab3.rank_optimizer import WEIGHTS
from dualml.course.lab3.rules import LONGEST
from dualml.course.mistakes import compute_mistaken
from dualml.course.places import flags_at


def broadcast_start(ranks: Sequence[Arrays], f: Flags, number: Any) -> list[Arrays]:
    """Return the parameters of every rank after rank 0's were broadcast, as the typical mistakes
    named in ``f`` change it, in the dtype ``number``; and ``kept``, 1 if the model has the same
    parameter objects as before."""
    every = [{name[2:]: a.astype(number) for name, a in own.items()} for own in ranks]
    out: list[Arrays] = []
    for rank, own in enumerate(every):
        now: dict[str, Any] = {}
        for i, (name, before) in enumerate(own.items()):
            here = flags_at(
                f, rank=(rank, len(every)), tensor=(i, len(own)), dim=(before.ndim, LONGEST)
            )
            now[name] = starting_value(name, before, [r[name] for r in every], here, number)
        replaced = "start_replaced" in flags_at(f, rank=(rank, len(every)))
        out.append({**now, "kept": np.asarray(number(not replaced))})
    return out


def starting_value(name: str, own: Any, every: Sequence[Any], f: Flags, number: Any) -> Any:
    """Return the value with which one rank begins in place of its ``own``, from that of ``every``
    rank: rank 0's, as the typical mistakes named in ``f`` change it."""
    if ("start_first_alone" in f and name != WEIGHTS[0]) or (
        "start_buffers_left" in f and name == "shift"
    ):
        return own
    mistaken = {
        "start_not_broadcast": lambda: own,
        "start_averaged": lambda: sum(every) / number(len(every)),
        "start_summed": lambda: sum(every),
        "start_other_root": lambda: every[-1],
        "start_other_root#2": lambda: every[1 % len(every)],
    }
    return compute_mistaken(f, mistaken, lambda: every[0])
