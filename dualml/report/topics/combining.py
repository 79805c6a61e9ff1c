"""The principle of several ranks: how what they find becomes one update."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.aggregation import ASYNCHRONOUS
from dualml.report import ranks
from dualml.report.blocks import Block
from dualml.report.cards import card
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words

_PART = r"g_{t,r} = \frac{1}{b_r} \sum_{i \in B_{t,r}} \nabla \ell_i ( \theta_{t-1} )"
_LOCAL = r"\theta_{t,r} = \theta_{t-1,r} - \eta \, g_{t,r}"
#: How ranks combine what they find: the formulas of one update.
COMBINE: dict[str, tuple[str, ...]] = {
    "weighted": (_PART, r"g_t = \sum_{r=0}^{n-1} \frac{b_r}{B} \, g_{t,r}"),
    "mean": (_PART, r"g_t = \frac{1}{n} \sum_{r=0}^{n-1} g_{t,r}"),
    "sum": (_PART, r"g_t = \sum_{r=0}^{n-1} g_{t,r}", r"\hat{\eta} = n \, \eta"),
    "parameters": (_LOCAL, r"\theta_{t,r} \leftarrow \sum_{s=0}^{n-1} \frac{b_s}{B} \theta_{t,s}"),
    "neighbour": (
        _LOCAL,
        r"\theta_{t,r} \leftarrow \frac{1}{3} ( \theta_{t,r-1} + \theta_{t,r} + \theta_{t,r+1} )",
    ),
    "asynchronous": (r"\theta_{v+1} = \theta_v - \eta \frac{b_r}{B} g_r ( \theta_{v - \tau} )",),
    "fp16": (r"g_t = \sum_{r=0}^{n-1} h ( \frac{b_r}{B} \, g_{t,r} )",),
    "topk": (
        r"p_{t,r} = \frac{b_r}{B} \, g_{t,r} + e_{t-1,r}",
        r"e_{t,r} = p_{t,r} - s_{t,r}",
        r"g_t = \sum_{r=0}^{n-1} s_{t,r}",
    ),
}


def way(run: Run, arm: str) -> str:
    """The key of `COMBINE`."""
    s = run.settings[arm].aggregation
    if s.strategy == ASYNCHRONOUS:
        return "asynchronous"
    if s.strategy == "neighbour":
        return "neighbour"
    if s.compress in COMBINE:
        return s.compress
    return "parameters" if s.of == "parameters" else s.reduce


def evidence(run: Run, words: Words) -> Iterator[Block]:
    used: dict[str, list[str]] = {}
    for arm in ranks.several(run):
        used.setdefault(way(run, arm), []).append(arm)
    for key, formulas in COMBINE.items():
        if key in used:
            name, does = words(f"combine.{key}.name"), words(f"combine.{key}.does")
            yield card(words, name, formulas, does, used[key])


TOPIC = Topic("combining", 20, evidence, part="principle")
