"""A split plan drawn: ranks as boxes with layers, messages as arrows, collectives as brackets."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dualml.report import style
from dualml.report.collectives import size_of
from dualml.report.splits.layers import Line
from dualml.report.words import Words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORWARD, BACKWARD, TOGETHER = "#2E6DA4", "#C9651B", "#6F5AA0"
SLICE = "#6F5AA0"
LINE, FONT = 0.165, 7.5  # inches of a line, points
LETTER = 0.058  # inches of a letter
#: Inches of a box, by boxes in a row: with arrows between them, and without.
WIDE = {1: 3.4, 2: 2.75, 3: 1.95, 4: 1.5}
BROAD = {1: 3.4, 2: 3.4, 3: 2.7, 4: 2.05}
ACROSS, DOWN = 1.75, 0.62  # inches between boxes
BRACKET = 0.44  # inches of a bracket below them


class Drawing:
    """Boxes in columns: the ranks of a pipeline side by side, those of a slice or replica below
    one another; all side by side where there is no pipeline."""

    def __init__(
        self, plan: Mapping[str, Any], boxes: Mapping[int, list[Line]], words: Words
    ) -> None:
        self.plan, self.boxes, self.words = plan, boxes, words
        ranks, trainers = plan["ranks"], plan.get("trainers", 1)
        self.flat = plan["mesh"]["pipeline"] == 1
        self.at: dict[int, tuple[int, int]] = {}
        for r in ranks:
            column = r["rank"] if self.flat else r["pipeline"]
            row = 0 if self.flat else r["data"] * plan["mesh"]["tensor"] + r["tensor"]
            if plan.get("engine") == "rpc":  # the driver calls all the others
                driver = plan.get("driver", 0)
                column = int(r["rank"] != driver)
                row = r["rank"] - (r["rank"] > driver) if column else 0
            elif trainers > 1 and r["rank"]:
                column, row = 1, r["rank"] - 1
            self.at[r["rank"]] = (column, row)
        self.columns = 1 + max(c for c, _ in self.at.values())
        self.rows = 1 + max(r for _, r in self.at.values())
        self.wide = (BROAD if self.flat else WIDE).get(self.columns, 1.5)
        self.gap = 0.25 if self.flat else ACROSS if self.columns < 4 else 0.9
        self.tall = 0.34 + LINE * max(map(len, boxes.values()))
        self.width = self.columns * self.wide + (self.columns - 1) * self.gap
        self.below = [m for m in plan["meetings"] if self.flat or not self._neighbours(m)]
        self.wrapped = [x for x in plan["links"] if self._apart(x) > 1]
        self.bottom = self.rows * self.tall + (self.rows - 1) * DOWN
        self.height = self.bottom + BRACKET * len(self.below) + 0.2 * len(self.wrapped)

    def _neighbours(self, meeting: Mapping[str, Any]) -> bool:
        places = [self.at[r] for r in meeting["ranks"]]
        rows = sorted(row for _, row in places)
        return len({c for c, _ in places}) == 1 and rows == list(range(rows[0], rows[-1] + 1))

    def _apart(self, link: Mapping[str, Any]) -> int:
        return abs(self.at[link["source"]][0] - self.at[link["target"]][0])

    def left(self, rank: int) -> float:
        return self.at[rank][0] * (self.wide + self.gap)

    def top(self, rank: int) -> float:
        return self.at[rank][1] * (self.tall + DOWN)

    def tallness(self, rank: int) -> float:
        """A server is as tall as all its trainers."""
        alone = sum(c == self.at[rank][0] for c, _ in self.at.values()) == 1
        return self.bottom if alone else self.tall

    def draw(self, axes: Axes) -> None:
        for rank, text in self.boxes.items():
            self._box(axes, rank, text)
        pairs = {(x["source"], x["target"]) for x in self.plan["links"]}
        for source, target in sorted(pairs):
            here = [x for x in self.plan["links"] if (x["source"], x["target"]) == (source, target)]
            if self._apart(here[0]) == 1:
                self._arrow(axes, source, target, here)
        self._columns(axes)
        y = self.bottom
        for meeting in self.below:
            y = self._bracket(axes, meeting, y)
        for x in self.wrapped:
            y += 0.2
            axes.text(0, y, f"{x['source']} → {x['target']}: {self._sent(x)}", fontsize=FONT)

    def _box(self, axes: Axes, rank: int, text: Sequence[Line]) -> None:
        from matplotlib.patches import FancyBboxPatch

        x, y = self.left(rank), self.top(rank)
        axes.add_patch(
            FancyBboxPatch(
                (x, y), self.wide, self.tallness(rank), boxstyle="round,pad=0,rounding_size=0.06",
                facecolor="#F7F7F5", edgecolor="#8A8A8A", linewidth=0.9, zorder=2,
            )
        )  # fmt: skip
        axes.text(x + 0.1, y + 0.17, self._title(rank), fontsize=8.5, fontweight="bold",
                  va="center", zorder=3)  # fmt: skip
        room = self.wide - 0.2
        for number, line in enumerate(text):
            at = y + 0.38 + LINE * number
            left = _fitted(line.text, room - LETTER * len(line.right) - 0.1)
            axes.text(x + 0.1, at, left, fontsize=FONT, va="center", zorder=3,
                      color="#777777" if line.title else style.INK,
                      fontstyle="italic" if line.title else "normal")  # fmt: skip
            axes.text(x + self.wide - 0.1, at, line.right, fontsize=FONT, va="center", ha="right",
                      color=SLICE if line.split else "#777777", zorder=3)  # fmt: skip

    def _title(self, rank: int) -> str:
        told = self.words("value.rank", rank=rank)
        if self.plan.get("trainers", 1) > 1:
            role = "server" if rank == 0 else "trainer"
        elif self.plan.get("engine") == "rpc" and rank == self.plan.get("driver"):
            role = "driver"
        else:
            return told
        return f"{told}{self.words('list.colon')}{self.words(f'splits.role.{role}')}"

    def _arrow(
        self, axes: Axes, source: int, target: int, here: Sequence[Mapping[str, Any]]
    ) -> None:
        """To the right above the middle, to the left below it; what it carries beside it."""
        right = self.at[source][0] < self.at[target][0]
        begin = self.left(source) + (self.wide if right else 0)
        end = self.left(target) + (0 if right else self.wide)
        narrow = source if self.tallness(source) <= self.tallness(target) else target
        middle = self.top(narrow) + self.tallness(narrow) / 2
        y = middle + (-0.11 if right else 0.11)
        axes.annotate("", xy=(end, y), xytext=(begin, y), zorder=3,
                      arrowprops={"arrowstyle": "-|>", "linewidth": 1.3, "shrinkA": 1, "shrinkB": 1,
                                  "color": FORWARD if right else BACKWARD})  # fmt: skip
        texts = [part for x in here for part in self._carried(x, len(here) == 1)]
        for number, (text, color) in enumerate(reversed(texts) if right else texts):
            shift = 0.12 + 0.145 * number
            at = y - shift if right else y + shift
            axes.text((begin + end) / 2, at, text, fontsize=FONT - 0.5, ha="center", va="center",
                      color=color)  # fmt: skip

    def _carried(self, link: Mapping[str, Any], alone: bool) -> list[tuple[str, str]]:
        color = BACKWARD if link["what"] == "gradients" else FORWARD
        if not alone:
            return [(f"{self._what(link)} {size_of(link['nbytes'])}", color)]
        return [(self._what(link), color), (self._amount(link["nbytes"], link["messages"]), color)]

    def _what(self, link: Mapping[str, Any]) -> str:
        return self.words.either(f"splits.what.{link['what']}", str(link["what"]))

    def _amount(self, nbytes: float, n: int) -> str:
        return self.words(
            "splits.amount", size=size_of(nbytes), messages=self.words.count("message", n)
        )

    def _sent(self, link: Mapping[str, Any]) -> str:
        return f"{self._what(link)} {self._amount(link['nbytes'], link['messages'])}"

    def _columns(self, axes: Axes) -> None:
        """Collectives of boxes below one another, between them."""
        groups: dict[tuple[int, ...], list[str]] = {}
        for meeting in self.plan["meetings"]:
            if meeting not in self.below:
                groups.setdefault(tuple(meeting["ranks"]), []).append(self.met(meeting))
        for members, texts in groups.items():
            ordered = sorted(members, key=lambda r: self.at[r][1])
            for number, (a, b) in enumerate(itertools.pairwise(ordered)):
                x = self.left(a) + 0.22
                axes.annotate("", xy=(x, self.top(b)), xytext=(x, self.top(a) + self.tall),
                              arrowprops={"arrowstyle": "<|-|>", "linewidth": 1.3, "shrinkA": 1,
                                          "shrinkB": 1, "color": TOGETHER})  # fmt: skip
                if number == 0:
                    y = self.top(a) + self.tall + DOWN / 2
                    for k, text in enumerate(texts):
                        at = y + 0.15 * (k - (len(texts) - 1) / 2)
                        axes.text(x + 0.12, at, text, fontsize=FONT - 0.5, va="center",
                                  color=TOGETHER)  # fmt: skip

    def met(self, meeting: Mapping[str, Any]) -> str:
        kind = str(meeting["kind"]).replace(" ", "_")
        told = self.words.either(f"splits.meeting.{kind}", str(meeting["kind"]))
        calls = self.words.count("call", meeting["calls"])
        size = self.words("splits.calls", size=size_of(meeting["nbytes"]), calls=calls)
        return f"{told}{self.words('list.colon')}{size}"

    def _bracket(self, axes: Axes, meeting: Mapping[str, Any], y: float) -> float:
        """Under all boxes; where the next one goes."""
        middles = [self.left(r) + self.wide / 2 for r in sorted(meeting["ranks"])]
        low = y + 0.2
        axes.plot([middles[0], middles[-1]], [low, low], color=TOGETHER, linewidth=1.3)
        for x in middles:
            axes.plot([x, x], [y + 0.06, low], color=TOGETHER, linewidth=1.3)
        axes.text(sum((middles[0], middles[-1])) / 2, low + 0.13, self.met(meeting),
                  fontsize=FONT, ha="center", va="center", color=TOGETHER)  # fmt: skip
        return y + BRACKET


def _fitted(text: str, room: float) -> str:
    """As much of a text as there is room for, a Chinese letter counting twice."""
    most = max(3, int(room / LETTER))
    return text if len(text) <= most else text[: most - 1].rstrip(" ,、") + "…"
