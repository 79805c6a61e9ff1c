"""Where the layout that a run's authors chose stands among all that the planner proposes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualml.common.errors import UserError
from dualml.planning.planner.space import SearchSpace, enumerate_layouts
from planner.price import PricedCase, make_shape, price_row
from planner.rows import PublishedRow
from planner.setting import make_setting

#: A chosen layout is found if it is among the first ``FIRST`` meshes, or slower than the fastest by
#: at most ``WITHIN``.
FIRST, WITHIN = 3, 0.03


@dataclass(frozen=True)
class Rank:
    """Place of a chosen layout.

    Attributes:
        place: number of meshes (dp, pp, tp, cp) whose fastest layout that fits is predicted faster,
            plus 1.
        meshes: number of meshes.
        slower: predicted seconds of the published layout relative to the fastest that fits, − 1.
        fastest: the planner's own layout.
    """

    place: int
    meshes: int
    slower: float
    fastest: str

    @property
    def is_proposed(self) -> bool:
        """Whether the planner would have proposed it."""
        return self.place <= FIRST or self.slower <= WITHIN


def make_space(row: PublishedRow) -> SearchSpace:
    """Return the search space that the authors of a row had, as far as the row says."""
    known = {"recompute": (row.recompute,)} if row.recompute in ("none", "full") else {}
    return SearchSpace(
        tensor=max(row.tp, 8),
        context=row.cp,
        chunks=max(row.chunks, 1),
        zero=(0, 1) if row.zero <= 1 else (row.zero,),
        sequence=(int(row.sp),),
        **known,
    )


def rank_row(row: PublishedRow) -> Rank | None:
    """Return the rank of a row's layout among those that its authors had: of its devices and batch,
    with its recomputation and sequence parallelism, ZeRO of its kind, tp up to a node or its own,
    and at most its cp and stages of a device; None if the row has no price or nothing fits."""
    price = price_row(row)
    if price.reason:
        return None
    shape, setting = make_shape(row), make_setting(row)
    space = make_space(row)
    try:
        x = enumerate_layouts(shape, row.devices, row.batch, space)
    except UserError:
        return None
    case = PricedCase(shape, x, setting)
    times = case.price(case.cluster).total
    rows = np.flatnonzero(case.memory().total <= case.cluster.memory)
    if not len(rows):
        return None
    best: dict[tuple[int, ...], int] = {}
    for i in rows[np.argsort(times[rows])]:
        best.setdefault((int(x.dp[i]), int(x.pp[i]), int(x.tp[i]), int(x.cp[i])), int(i))
    mesh = (row.dp, row.pp, row.tp, row.cp)
    mine = float(times[best[mesh]]) if mesh in best else price.seconds
    faster = sum(float(times[i]) < mine for key, i in best.items() if key != mesh)
    first = next(iter(best))
    text = " · ".join(
        f"{axis} {n}" for axis, n in zip(("dp", "pp", "tp", "cp"), first, strict=True)
    )
    return Rank(faster + 1, len(best), price.seconds / float(times[rows].min()) - 1, text)
