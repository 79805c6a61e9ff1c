"""The principle of several ranks: how an update is combined, and what each strategy sends."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dualml.aggregation import ASYNCHRONOUS, NATIVE, REPLICAS
from dualml.report import numbers, ranks
from dualml.report.model import Run
from dualml.report.words import Words

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
_RING = (r"m = 2 (n-1)", r"b = 2 \frac{n-1}{n} S", r"T = 2 (n-1) \alpha + 2 \frac{n-1}{n} S \beta")
_LOG = r"\lceil \log_2 n \rceil"
_TREE = (rf"m = {_LOG}", rf"b = {_LOG} S", rf"T = 2 {_LOG} ( \alpha + S \beta )")
_SERVER = (r"m = n - 1", r"b = (n-1) S", r"T = 2 (n-1) ( \alpha + S \beta )")
#: Messages m and bytes b that the busiest rank sends, and the time T of the critical path.
CLOSED: dict[str, tuple[str, ...]] = {
    "all_reduce": _RING,
    "all_gather": (*_SERVER[:2], r"T = (n-1) ( \alpha + S \beta )"),
    "reduce_broadcast": _TREE,
    "parameter_server": _SERVER,
    "reduce_scatter_all_gather": _RING,
    "ring": _RING,
    "tree": _TREE,
    "halving_doubling": (
        r"m = 2 \log_2 n",
        *_RING[1:2],
        r"T = 2 \log_2 n \, \alpha + 2 \frac{n-1}{n} S \beta",
    ),
    "neighbour": (r"m = 2", r"b = 2 S", r"T = 2 ( \alpha + S \beta )"),
    ASYNCHRONOUS: (r"m = 1", r"b = S", r"T = 2 ( \alpha + S \beta )"),
}
COST = r"T = p \, \alpha + q \, \beta"


@dataclass(frozen=True)
class Card:
    """A way to combine, or a strategy: what it does, in formulas and words, and who used it."""

    name: str
    arms: Sequence[str]
    formulas: Sequence[str]
    explanation: str
    counts: Sequence[str] = ()
    source: str = ""


def combining(run: Run, words: Words) -> list[Card]:
    """The ways in which this run's arms combine, in the order of `COMBINE`."""
    used: dict[str, list[str]] = {}
    for arm in ranks.several(run):
        used.setdefault(way(run, arm), []).append(arm)
    return [
        Card(
            words(f"combine.{key}.name"),
            short(used[key], words),
            formulas,
            words(f"combine.{key}.does"),
        )
        for key, formulas in COMBINE.items()
        if key in used
    ]


def short(arms: Sequence[str], words: Words, most: int = 12) -> list[str]:
    """The first ones of many arms, and how many more there are."""
    if len(arms) <= most + 1:
        return list(arms)
    return [*arms[:most], words.count("more", len(arms) - most)]


def way(run: Run, arm: str) -> str:
    """The key of `COMBINE`."""
    told = ranks.aggregation(run, arm)
    if told["strategy"] == ASYNCHRONOUS:
        return "asynchronous"
    if told["strategy"] == "neighbour":
        return "neighbour"
    if told["compress"] in COMBINE:
        return str(told["compress"])
    return "parameters" if told["of"] == "parameters" else str(told["reduce"])


#: Strategies whose messages nobody outside the framework sees.
UNSEEN = (NATIVE, REPLICAS)


def cards(run: Run, words: Words) -> list[Card]:
    """One per strategy that trained or was measured."""
    made = []
    for name in ranks.strategies(run):
        arms = [arm for arm in ranks.several(run) if ranks.strategy(run, arm) == name]
        arms += [a for a in run.arms if name in (run.arms[a].get("strategies") or ())]
        made.append(
            Card(
                name=name,
                arms=short(arms, words),
                formulas=CLOSED.get(name, ()),
                explanation=words.either(f"strategy.{name}", ""),
                counts=[counts(name, n, words) for n in _sizes(run, arms) if name not in UNSEEN],
                source=source(name),
            )
        )
    return made


def _sizes(run: Run, arms: Sequence[str]) -> list[int]:
    return sorted({ranks.size(run, arm) for arm in arms} - {1})


def counts(name: str, n: int, words: Words) -> str:
    """What its schedule sends among n ranks, in multiples of S."""
    from dualml.aggregation import STRATEGIES

    if name not in STRATEGIES:
        return words("strategy_counts.asynchronous", n=n)
    schedule = STRATEGIES[name]().schedule(n)
    sent = [schedule.sent(rank, schedule.chunks) for rank in range(n)]
    most, total = max(sent), sum(moved for _, moved in sent)
    return words(
        "strategy_counts.schedule",
        n=n,
        steps=words.count("step", len(schedule.steps)),
        messages=words.count("message", most[0]),
        bytes=numbers.factor(max(moved for _, moved in sent) / schedule.chunks),
        total=numbers.factor(total / schedule.chunks),
    )


def source(name: str) -> str:
    """What the strategy's docstring names as its source."""
    from dualml.aggregation import STRATEGIES
    from dualml.aggregation.asynchronous import Asynchronous

    kind = Asynchronous if name == ASYNCHRONOUS else STRATEGIES.get(name)
    text = inspect.getdoc(kind) if kind is not None else None
    found = re.search(r"^Source: (.+?)(?:\n\n|\Z)", text or "", re.S | re.M)
    return " ".join(found[1].split()).rstrip(".") if found else ""
