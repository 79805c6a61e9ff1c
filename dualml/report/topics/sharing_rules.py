"""The principles of sharding (ZeRO) and recomputation, and their code."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.report import ranks
from dualml.report.blocks import Block, Code
from dualml.report.cards import card
from dualml.report.code import excerpt, section
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words

#: Formulas: the reduced gradient of a shard, its update, and the bytes sent with two and with three
#: collectives.
_REDUCE = r"g_{t,r} = \sum_{s=0}^{N-1} ( \frac{b_s}{B} g_{t,s} )_r"
_OWN = r"\theta_{t,r} = \theta_{t-1,r} + u_t ( g_{t,r} )"
_SENT = r"q = 2 \, S \, \frac{N - 1}{N}"
_THREE = r"q = 3 \, S \, \frac{N - 1}{N}"
#: Stage of ZeRO, or variant → update of a rank's shard r, bytes M that it keeps, bytes q that it
#: sends.
STAGES = {
    "zero1": (_REDUCE, _OWN, r"M = b \Psi + b \Psi + \frac{k b \Psi}{N}", _SENT),
    "zero2": (r"M = b \Psi + \frac{b \Psi + k b \Psi}{N}", _SENT),
    "zero3": (r"M = \frac{b \Psi + b \Psi + k b \Psi}{N}", _THREE),
    "all_reduce": (r"q = 2 \, S \, \frac{N - 1}{N} + S \, \frac{N - 1}{N}",),
}
ZERO = "Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, sec. 5, 7"  # noqa: E501
#: Recomputation setting → formulas of the activations A kept of L blocks and of the seconds T of an
#: update, and their source.
AGAIN = {
    "selective": (
        (r"A = \sum_{l=1}^{L} ( A_l - s_l )", r"T = F + F_s + B"),
        "Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models, sec. 5",  # noqa: E501
    ),
    "full": (
        (r"A = \sum_{l=1}^{L} x_l", r"T = F + F + B"),
        "Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost, sec. 3",
    ),
}
#: Framework → file and functions that recompute layers.
STRETCHES = {
    "torch": ("dualml_torch/model/network.py", ("compute_again", "through")),
    "mindspore": ("dualml_ms/model/network.py", ("compute_again", "Block.__init__")),
}


def shared(run: Run, words: Words) -> Iterator[Block]:
    """Yield a card per stage of ZeRO that an arm uses, and one for the all-reduce variant."""
    ways = {arm: _way(run, arm) for arm in ranks.training(run)}
    for way, formulas in STAGES.items():
        if arms := [arm for arm in ways if ways[arm] == way]:
            name, does = words(f"shared.{way}.name"), words(f"shared.{way}.does")
            yield card(words, name, formulas, does, arms, source=ZERO)


def _way(run: Run, arm: str) -> str:
    """Return the key of `STAGES` that an arm uses; of an arm that shards nothing a key that is not
    there."""
    s = run.settings[arm]
    return f"zero{s.zero}" if s.zero_reduce == "reduce_scatter" else s.zero_reduce


def again(run: Run, words: Words) -> Iterator[Block]:
    """Yield a card per kind of activation recomputation that an arm uses."""
    for setting, (formulas, source) in AGAIN.items():
        if arms := [arm for arm in ranks.training(run) if run.settings[arm].recompute == setting]:
            name, does = words(f"again.{setting}.name"), words(f"again.{setting}.does")
            yield card(words, name, formulas, does, arms, source=source)


def code(run: Run, words: Words) -> Iterator[Block]:
    parts = dict[str, list[Code]]()
    if any(run.settings[arm].zero for arm in ranks.training(run)):
        parts["shared"] = [
            excerpt("dualml/zero/passes.py", ("round", "fetch", "gather", "add_up")),
            excerpt("dualml/zero/model.py", ("update",)),
            excerpt("dualml/zero/moves.py", ("reduce", "gather")),
        ]
    if any(run.settings[arm].recompute != "none" for arm in ranks.training(run)):
        present = {run.framework(b) for b in run.backends}
        parts["again"] = [excerpt(*STRETCHES[f], f) for f in STRETCHES if f in present]
    for key, codes in parts.items():
        yield section(words(f"code.{key}"), codes, words)


TOPICS = (
    Topic("shared", 25, shared, part="principle"),
    Topic("again", 26, again, part="principle"),
    Topic("memory_code", 20, code, part="code"),
)
