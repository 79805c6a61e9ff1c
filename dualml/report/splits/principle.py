"""The principle of split models: what is cut, what crosses, in which order."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.report.model import Run
from dualml.report.splits import arms
from dualml.report.strategies import Card, short
from dualml.report.words import Words

_BUBBLE = r"\frac{p-1}{m+p-1}"
#: What a model is split in: the formulas of a card.
WAYS: dict[str, tuple[str, ...]] = {
    "by_layer": (
        r"a_{s+1} = f_s ( a_s , \theta_s )",
        r"g_s = {( \frac{\partial a_{s+1}}{\partial a_s} )}^T g_{s+1}",
        r"\nabla \ell = \sum_{k=0}^{m-1} \frac{b_k}{B} \nabla \ell_k",
    ),
    "inside": (
        r"Y_r = X A_r^T \quad Z = \sum_{r=0}^{t-1} Y_r B_r^T",
        r"\frac{\partial \ell}{\partial X} = \sum_{r=0}^{t-1} "
        r"\frac{\partial \ell}{\partial Y_r} A_r",
    ),
    "mesh": (r"n = d \cdot p \cdot t", r"g = \sum_{i=0}^{d-1} \frac{b_i}{B} g_i"),
    "trainers": (r"g = \sum_{r=1}^{n-1} \frac{b_r}{B} g_r",),
    "asynchronous": (r"\theta_{v+1} = \theta_v - \eta \frac{b_r}{B} g_r ( \theta_{v - \tau} )",),
    "rpc": (),
}
SOURCES = {
    "inside": "Shoeybi et al. 2019, Megatron-LM: Training Multi-Billion Parameter Language Models "
    "Using Model Parallelism, sec. 3",
    "mesh": "Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters "
    "Using Megatron-LM, sec. 3",
    "rpc": "PyTorch, Getting Started with Distributed RPC Framework",
}
#: Schedule → its share of idle ticks, and the most micro-batches a stage holds.
ORDERS: dict[str, tuple[str, ...]] = {
    "naive": (r"\frac{p-1}{p}", r"1"),
    "gpipe": (_BUBBLE, r"m"),
    "1f1b": (_BUBBLE, r"\min ( m , S - s )"),
    "eager-1f1b": (_BUBBLE, r"\min ( m , 2 ( S - s ) - 1 )"),
    "interleaved": (r"\frac{p-1}{v m+p-1}", ""),
}
ORDER_SOURCES = {
    "gpipe": "Huang et al. 2019, GPipe: Efficient Training of Giant Neural Networks using Pipeline "
    "Parallelism, sec. 2.3",
    "1f1b": "Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters "
    "Using Megatron-LM, sec. 2.2",
    "eager-1f1b": "Zhuang et al. 2023, On Optimizing the Communication of Model Parallelism, "
    "sec. 4",
    "interleaved": "Narayanan et al. 2021, sec. 2.2",
}


def ways(run: Run) -> dict[str, list[str]]:
    """Way → the arms that split so; an arm may split in several ways."""
    found: dict[str, list[str]] = {name: [] for name in WAYS}
    for arm in arms.split_arms(run):
        shape, told = arms.mesh(run, arm), arms.split(run, arm)
        here = {
            "by_layer": shape.pipeline > 1,
            "inside": shape.tensor > 1,
            "mesh": sum(n > 1 for n in (shape.data, shape.pipeline, shape.tensor)) > 1,
            "trainers": told["trainers"] > 1,
            "asynchronous": told["arrival"] == "asynchronous",
            "rpc": told["engine"] == "rpc",
        }
        for name, there in here.items():
            if there:
                found[name].append(arm)
    return {name: used for name, used in found.items() if used}


def way_cards(run: Run, words: Words) -> list[Card]:
    """One for each way in which this run splits a model, then one for each schedule."""
    made = [
        Card(
            name=words(f"splits.way.{name}"),
            arms=short(used, words, 8),
            formulas=WAYS[name],
            explanation=words(f"splits.does.{name}"),
            source=SOURCES.get(name, ""),
        )
        for name, used in ways(run).items()
    ]
    for name, formulas in ORDERS.items():
        used = [a for a in piped(run) if arms.schedule(run, a) == name]
        if used:
            made.append(_order(name, used, formulas, words))
    return made


def piped(run: Run) -> list[str]:
    """Arms whose stages follow a schedule."""
    return [a for a in arms.split_arms(run) if arms.piped(run, a)]


def _order(name: str, used: Sequence[str], formulas: Sequence[str], words: Words) -> Card:
    idle, live = formulas
    symbols = [rf"u = {idle}", *([rf"l_s = {live}"] if live else [])]
    return Card(
        name=words("splits.order", name=arms.called(name, words)),
        arms=short(used, words, 8),
        formulas=symbols,
        explanation=words(f"splits.ordered.{name}"),
        source=ORDER_SOURCES.get(name, ""),
    )
