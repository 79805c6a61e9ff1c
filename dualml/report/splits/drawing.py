"""Drawings of split plans: ranks as boxes with layers, messages as arrows, collectives as brackets.

One unit of both axes is one pixel, so that texts fit their boxes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dualml.common.json_types import JsonMapping
from dualml.common.words import Messages, numbers
from dualml.report import figure as fig
from dualml.report.draw.palette import SERIES, SMALL
from dualml.report.draw.text import truncate, width
from dualml.report.splits.layers import LayerLine, collective_name, layer_lines

FORWARD, BACKWARD = fig.SeriesId(series="F"), fig.SeriesId(series="B")
COLLECTIVE = fig.SeriesId(series="collective")  # also the colour of slices
KEYS = [
    fig.LegendEntry("series", s, color=c, stroke="line", listed=False)
    for s, c in SERIES["plan"].items()
]
LINE = 16.0  # height of a line of text in a box
#: Width of a box by number of boxes in a row: with arrows between them, and without.
WIDE = {1: 326.0, 2: 264.0, 3: 180.0, 4: 144.0}
BROAD = {1: 326.0, 2: 326.0, 3: 259.0, 4: 197.0}
COLUMN_GAP, ROW_GAP = 166.0, 60.0  # gaps between boxes
BRACKET_HEIGHT, LINE_HEIGHT = 42.0, 19.0  # height of a bracket, and of a line of text


def plan_figure(
    name: str, plan: JsonMapping, words: Messages, caption: str = "", alt: str = ""
) -> fig.Figure:
    """Return a split plan, as `SplitPlan.describe` returns it, as a figure.

    Args:
        name: name of the figure, unique on a page.
        plan: the plan.
        words: the messages.
        caption: caption of the figure.
        alt: alternative text of the figure.
    """
    drawing = Drawing(plan, words)
    wide, height = drawing.width + 4, drawing.height + 6
    x = fig.Axis(low=-2, high=wide - 2, hidden=True)
    y = fig.Axis(low=-2, high=height - 2, hidden=True, flip=True)
    panel = fig.Panel(list(drawing.marks()), x, y, height=height)
    return fig.Figure(name, caption, alt, [panel], KEYS, width=wide)


class Drawing:
    """The boxes of a plan in columns: pipeline ranks side by side, slices and replicas below one
    another; all side by side without a pipeline."""

    def __init__(self, plan: Mapping[str, Any], words: Messages) -> None:
        self.plan, self.words = plan, words
        self.texts = {r["rank"]: layer_lines(plan, r["rank"], words) for r in plan["ranks"]}
        self.flat = plan["mesh"]["pipeline"] == 1
        self.at = {r["rank"]: self._place(r) for r in plan["ranks"]}
        columns, rows = (1 + max(of_axis) for of_axis in zip(*self.at.values(), strict=True))
        self.wide = (BROAD if self.flat else WIDE).get(columns, 1.5)
        self.gap = 24.0 if self.flat else COLUMN_GAP if columns < 4 else 86.0
        self.tall = 34.0 + LINE * max(map(len, self.texts.values()))
        self.width = columns * self.wide + (columns - 1) * self.gap
        self.below = [c for c in plan["meetings"] if self.flat or not self._neighbours(c)]
        self.wrapped = [x for x in plan["links"] if self._column_distance(x) > 1]
        self.bottom = rows * self.tall + (rows - 1) * ROW_GAP
        self.height = (
            self.bottom + BRACKET_HEIGHT * len(self.below) + LINE_HEIGHT * len(self.wrapped)
        )

    def _place(self, r: Mapping[str, Any]) -> tuple[int, int]:
        """Return column and row of a rank."""
        rank, plan = r["rank"], self.plan
        if plan.get("engine") == "rpc":  # the driver calls all the others
            driver = plan.get("driver", 0)
            return (0, 0) if rank == driver else (1, rank - (rank > driver))
        if plan.get("trainers", 1) > 1 and rank:
            return 1, rank - 1
        if self.flat:
            return rank, 0
        return r["pipeline"], r["data"] * plan["mesh"]["tensor"] + r["tensor"]

    def _neighbours(self, collective: Mapping[str, Any]) -> bool:
        """Return whether the boxes of a collective stand directly below one another."""
        columns, rows = zip(*(self.at[rank] for rank in collective["ranks"]), strict=True)
        return len(set(columns)) == 1 and max(rows) - min(rows) == len(rows) - 1

    def _column_distance(self, link: Mapping[str, Any]) -> int:
        """Return how many columns apart the ends of a link are; 1 for neighbouring columns, 0
        within one."""
        return abs(self.at[link["source"]][0] - self.at[link["target"]][0])

    def left_x(self, rank: int) -> float:
        """Return the x of the left edge of a rank's box in pixels."""
        return self.at[rank][0] * (self.wide + self.gap)

    def top_y(self, rank: int) -> float:
        """Return the y of the upper edge of a rank's box in pixels."""
        return self.at[rank][1] * (self.tall + ROW_GAP)

    def box_height(self, rank: int) -> float:
        """Return the height of a rank's box; a rank alone in its column, e.g. a server, takes all
        rows."""
        alone = sum(column == self.at[rank][0] for column, _ in self.at.values()) == 1
        return self.bottom if alone else self.tall

    def marks(self) -> Iterator[fig.Mark]:
        """Yield the marks of the whole drawing: boxes, arrows between neighbouring columns,
        collectives, and a line of text per link between distant columns."""
        for rank, texts in self.texts.items():
            yield from self._box(rank, texts)
        links = self.plan["links"]
        for source, target in sorted({(x["source"], x["target"]) for x in links}):
            between = [x for x in links if (x["source"], x["target"]) == (source, target)]
            if self._column_distance(between[0]) == 1:
                yield from self._arrow(source, target, between)
        yield from self._column_collectives()
        for k, collective in enumerate(self.below):
            yield from self._bracket(collective, self.bottom + BRACKET_HEIGHT * k)
        y = self.bottom + BRACKET_HEIGHT * len(self.below)
        for k, x in enumerate(self.wrapped):
            sent = f"{self._content_text(x)} {self._amount(x)}"
            text = f"{x['source']} → {x['target']}: {sent}"
            yield fig.TextMark(0, y + LINE_HEIGHT * (k + 1), text, small=True)

    def _box(self, rank: int, texts: Sequence[LayerLine]) -> Iterator[fig.Mark]:
        """Yield the box of a rank with its title and a line of text per layer."""
        x, y = self.left_x(rank), self.top_y(rank)
        yield fig.BoxMark(x, y, self.wide, self.box_height(rank), frame=True)
        yield fig.TextMark(x + 10, y + 16, self._title(rank), bold=True)
        for number, line in enumerate(texts):
            at, right = y + 36 + LINE * number, x + self.wide - 10
            space = self.wide - 28 - width(line.right, SMALL)
            yield fig.TextMark(x + 10, at, truncate(line.text, space, SMALL), small=True)
            if line.right:
                look, plain = (COLLECTIVE, False) if line.split else (fig.NOBODY, True)
                yield fig.TextMark(right, at, line.right, look, "right", small=True, muted=plain)

    def _title(self, rank: int) -> str:
        """Return ``rank N``, with its role if it is a server, trainer or driver."""
        role = ""
        if self.plan.get("trainers", 1) > 1:
            role = "trainer" if rank else "server"
        elif self.plan.get("engine") == "rpc" and rank == self.plan.get("driver"):
            role = "driver"
        named = [self.words(f"splits.role.{role}")] if role else []
        return self.words("list.colon").join([self.words("value.rank", rank=rank), *named])

    def _arrow(
        self, source: int, target: int, links: Sequence[Mapping[str, Any]]
    ) -> Iterator[fig.Mark]:
        """Yield an arrow, above the middle to the right and below it to the left, with its contents
        as text."""
        right = self.at[source][0] < self.at[target][0]
        begin = self.left_x(source) + (self.wide if right else 0)
        end = self.left_x(target) + (0 if right else self.wide)
        narrow = source if self.box_height(source) <= self.box_height(target) else target
        up = -1 if right else 1
        y = self.top_y(narrow) + self.box_height(narrow) / 2 + 11 * up
        yield fig.Arrow(begin, y, end, y, FORWARD if right else BACKWARD)
        texts = []
        for x in links:
            owner = BACKWARD if x["what"] == "gradients" else FORWARD
            size = f"{self._content_text(x)} {numbers.nbytes(x['nbytes'])}"
            carried = [size] if len(links) > 1 else [self._content_text(x), self._amount(x)]
            texts += [(text, owner) for text in carried]
        for number, (text, owner) in enumerate(reversed(texts) if right else texts):
            at = y + up * (11 + 14 * number)
            yield fig.TextMark((begin + end) / 2, at, text, owner, "center", small=True)

    def _content_text(self, link: Mapping[str, Any]) -> str:
        """Return what a link carries, e.g. activations, in the reader's language."""
        return self.words.get(f"splits.what.{link['what']}", str(link["what"]))

    def _amount(self, link: Mapping[str, Any]) -> str:
        """Return the number of messages and bytes of a link as text."""
        return self.words("splits.amount", link=link)

    def _column_collectives(self) -> Iterator[fig.Mark]:
        """Yield the collectives of boxes below one another, between them."""
        inside = [c for c in self.plan["meetings"] if c not in self.below]
        for members in dict.fromkeys(tuple(c["ranks"]) for c in inside):
            ordered = sorted(members, key=lambda rank: self.at[rank][1])
            for a, b in itertools.pairwise(ordered):
                x = self.left_x(a) + 22
                yield fig.Arrow(
                    x, self.top_y(a) + self.tall, x, self.top_y(b), COLLECTIVE, both=True
                )
            y = self.top_y(ordered[0]) + self.tall + ROW_GAP / 2
            texts = [self._collective(c) for c in inside if tuple(c["ranks"]) == members]
            for number, text in enumerate(texts):
                at = y + 14 * (number - (len(texts) - 1) / 2)
                yield fig.TextMark(self.left_x(ordered[0]) + 34, at, text, COLLECTIVE, small=True)

    def _collective(self, collective: Mapping[str, Any]) -> str:
        """Return the name of a collective with its calls and bytes as text."""
        size = self.words("splits.calls", collective=collective)
        return f"{collective_name(collective['kind'], self.words)}{self.words('list.colon')}{size}"

    def _bracket(self, collective: Mapping[str, Any], y: float) -> Iterator[fig.Mark]:
        """Yield a collective as a bracket below all boxes."""
        middles = [self.left_x(rank) + self.wide / 2 for rank in sorted(collective["ranks"])]
        first, last, low = middles[0], middles[-1], y + 19
        yield fig.LineMark([first, last], [low, low], COLLECTIVE)
        for x in middles:
            yield fig.LineMark([x, x], [y + 6, low], COLLECTIVE)
        text = self._collective(collective)
        yield fig.TextMark((first + last) / 2, low + 12, text, COLLECTIVE, "center", small=True)
