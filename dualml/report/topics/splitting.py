"""The principle of split models: where the model is cut, what is sent, and in which order."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Block, Prose
from dualml.report.cards import CardFooter, make_card, method_cards
from dualml.report.splits.arms import Splits, schedule_name
from dualml.report.topics import ReportSection

_BUBBLE = r"\frac{p-1}{m+p-1}"
#: Way to split a model → formulas of its card.
SPLIT_FORMULAS: dict[str, tuple[str, ...]] = {
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
    "context": (r"L = \log \sum_{i=0}^{n-1} e^{L_i} \quad Y = \sum_{i=0}^{n-1} e^{L_i - L} Y_i",),
    "mesh": (r"n = d \cdot p \cdot t", r"g = \sum_{i=0}^{d-1} \frac{b_i}{B} g_i"),
    "trainers": (r"g = \sum_{r=1}^{n-1} \frac{b_r}{B} g_r",),
    "asynchronous": (r"\theta_{v+1} = \theta_v - \eta \frac{b_r}{B} g_r ( \theta_{v - \tau} )",),
    "rpc": (),
    "devices": (),
}
#: Schedule → its share of idle ticks, and the most micro-batches that a stage holds.
SCHEDULES: dict[str, tuple[str, ...]] = {
    "naive": (r"\frac{p-1}{p}", r"1"),
    "gpipe": (_BUBBLE, r"m"),
    "1f1b": (_BUBBLE, r"\min ( m , S - s )"),
    "eager-1f1b": (_BUBBLE, r"\min ( m , 2 ( S - s ) - 1 )"),
    "interleaved": (r"\frac{p-1}{v m+p-1}", ""),
}
SOURCES = {
    "inside": "Shoeybi et al. 2019, Megatron-LM: Training Multi-Billion Parameter Language Models "
    "Using Model Parallelism, sec. 3",
    "context": "Liu, Zaharia and Abbeel 2023, Ring Attention with Blockwise Transformers for "
    "Near-Infinite Context, sec. 3; Milakov and Gimelshein 2018, Online normalizer calculation for "
    "softmax",
    "mesh": "Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters "
    "Using Megatron-LM, sec. 3",
    "rpc": "PyTorch, Getting Started with Distributed RPC Framework",
    "devices": "PyTorch, Getting Started with Distributed Data Parallel, Combining DDP with Model "
    "Parallelism",
    "gpipe": "Huang et al. 2019, GPipe: Efficient Training of Giant Neural Networks using Pipeline "
    "Parallelism, sec. 2.3",
    "1f1b": "Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters "
    "Using Megatron-LM, sec. 2.2",
    "eager-1f1b": "Zhuang et al. 2023, On Optimizing the Communication of Model Parallelism, "
    "sec. 4",
    "interleaved": "Narayanan et al. 2021, sec. 2.2",
}


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a card per way in which this run splits a model, then one per schedule."""
    splits = Splits(run)
    ways = ((arm.name, way) for arm in splits for way in arm.split_kinds)
    title, does = "splits.way.{}", "splitting.does.{}"
    yield from method_cards(words, SPLIT_FORMULAS, ways, title, does, SOURCES, most=8)
    for name, (idle, live) in SCHEDULES.items():
        used = [arm.name for arm in splits.pipelines if arm.schedule == name]
        if used:
            formulas = (rf"u = {idle}", *([rf"l_s = {live}"] if live else []))
            title = words("splitting.schedule", name=schedule_name(name, words))
            text = words(f"splitting.ordered.{name}")
            footer = CardFooter(used, SOURCES.get(name, ""), most=8)
            yield make_card(words, title, formulas, text, footer)
    if splits:
        yield Prose(words("splitting.symbols"), small=True)


TOPIC = ReportSection("splitting", 50, evidence, group="principle")
