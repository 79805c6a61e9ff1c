"""Requirements on a `Sampler`, by itself and in the framework's own loader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dualml.course.exercise import Arrays, Call, Requirement
from dualml.course.lab3 import properties as p
from dualml.course.lab3.dealt import PARTS, SIZES, Draw, Open, situations, two_seeds
from dualml.course.lab3.lists import Ask, Lists, Seen, kinds, unpacked

#: Epoch 1 occurs twice, because a sampler must be able to return to it.
EPOCHS = (0, 1, 2, 1)
#: Samples of a mini-batch of the loader; the last one has fewer.
BATCH = 4


def loaded_alike(lists: Lists) -> Seen | None:
    """Check that the framework's loader returns the samples of a loop over the sampler."""
    for ask, a in lists.first.items():
        if not np.array_equal(a, lists.loaded[ask]):
            shown = short(lists.loaded[ask]), short(a)
            return Seen(f"loader({lists.title(ask)})", *shown)
    return None


def fresh_alike(lists: Lists) -> Seen | None:
    """Check that a sampler made for this epoch gives the same samples as an older one."""
    for ask, a in lists.first.items():
        if not np.array_equal(a, lists.fresh[ask]):
            return Seen(lists.title(ask), short(a), short(lists.fresh[ask]))
    return None


def short(a: Any) -> str:
    """Format the first samples of a list."""
    return "[" + ", ".join(str(int(i)) for i in a[:6]) + (", …]" if len(a) > 6 else "]")


def length(lists: Lists) -> Seen | None:
    """Check that ``len`` is the number of samples."""
    for ask, a in lists.first.items():
        if lists.lengths[ask] != len(a):
            return Seen(f"len({lists.title(ask)})", lists.lengths[ask], len(a))
    return None


@dataclass
class Sampled(Open):
    """Requirement on samplers of all ranks, with two seeds, in some epochs.

    Attributes:
        kind: ``partition`` or ``sampling``.
        load: whether they are used in the framework's loader.
    """

    kind: str = "partition"
    load: bool = False

    def calls(self, draw: Draw) -> list[Call]:
        case = situations(draw)[int(draw.integers(2))]
        hyper = {**case, "kind": self.kind}
        asks = [list(ask) for ask in product(range(case["ranks"]), two_seeds(draw))]
        options = {"hyper": hyper, "asks": asks, "epochs": list(EPOCHS),
                   "batch": BATCH, "load": self.load}  # fmt: skip
        return [Call("sampler", self.target, options, [{}])]

    def lists(self, call: Call, arrays: Arrays) -> Lists:
        case = call.options["hyper"]
        asks = [(rank, seed, epoch) for rank, seed in call.options["asks"] for epoch in EPOCHS]
        found = {
            name: unpacked(arrays, f"{name}/") for name in ("first", "again", "fresh", "loaded")
        }

        def title(ask: Ask) -> str:
            """Return a sampler as the student would write it."""
            rank, seed, epoch = ask
            return (f"Sampler({case['n']}, {case['ranks']}, {rank=}, {seed=}, kind={self.kind!r})"
                    f".set_epoch({epoch})")  # fmt: skip

        # A repeated epoch must give the same list.
        back = len(EPOCHS) - 1
        first: dict[Ask, Any] = {}
        again, loaded, fresh = dict(first), dict(first), dict(first)
        lengths: dict[Ask, int] = {}
        for number, ask in enumerate(asks):
            if number % len(EPOCHS) == back and np.array_equal(first[ask], again[ask]):
                again[ask] = found["first"][number]
            elif number % len(EPOCHS) != back:
                first[ask], again[ask] = found["first"][number], found["again"][number]
                loaded[ask], fresh[ask] = found["loaded"][number], found["fresh"][number]
                lengths[ask] = int(arrays["lengths"][number])
        return Lists(case["n"], case["ranks"], first, again, *kinds(arrays, "first/"),
                     bool(arrays["touched"]), title, loaded, fresh, lengths)  # fmt: skip


def of_sampler() -> list[Requirement]:
    """Return the requirements on `Sampler`."""
    target, spent, on = "Sampler", "sampler_exhausted", "sampler_goes_on"
    unsteady: Sequence[str] = (spent, "draw_not_repeatable", on)
    return [
        Sampled("sampler.parts", target, [p.even_sizes, p.every_once],
                [*unsteady, *PARTS]),
        Sampled("sampler.epochs", target, [p.kept, p.unsorted, p.epochs_differ],
                [*unsteady, "deal_each_epoch", "deal_sorted", "sampler_epoch_ignored"]),
        Sampled("sampler.seeds", target, [p.seeds_deal_otherwise],
                [spent, "deal_strided", "deal_blocks", "draw_seed_ignored"]),
        Sampled("sampler.sampling", target, [p.even_sizes, p.repeated, p.ranks_differ,
                                             p.epochs_differ],
                [spent, "sampler_kind_ignored", *SIZES, "draw_rank_ignored",
                 "sampler_epoch_ignored", "draw_seeds_added"], kind="sampling"),
        Sampled("sampler.again", target, [p.repeatable, fresh_alike, p.untouched],
                [*unsteady, "draw_global"]),
        Sampled("sampler.length", target, [length], [spent, "sampler_length"]),
        Sampled("sampler.loader", target, [loaded_alike],
                [*unsteady, "sampler_length"], load=True),
    ]  # fmt: skip
