"""The principles of sharding (ZeRO) and recomputation, and their code."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.report import ranks
from dualml.report.blocks import Block, Code
from dualml.report.cards import method_cards
from dualml.report.code import code_sections, excerpt
from dualml.report.topics import ReportSection

#: Formulas: the reduced gradient of a shard, its update, and the bytes sent with two and with three
#: collectives.
_REDUCE = r"g_{t,r} = \sum_{s=0}^{N-1} ( \frac{b_s}{B} g_{t,s} )_r"
_SHARD_UPDATE = r"\theta_{t,r} = \theta_{t-1,r} + u_t ( g_{t,r} )"
_SENT_BYTES = r"q = 2 \, S \, \frac{N - 1}{N}"
_SENT_BYTES_ZERO3 = r"q = 3 \, S \, \frac{N - 1}{N}"
#: Stage of ZeRO, or variant → update of a rank's shard r, bytes M that it keeps, bytes q that it
#: sends.
STAGES = {
    "zero1": (_REDUCE, _SHARD_UPDATE, r"M = b \Psi + b \Psi + \frac{k b \Psi}{N}", _SENT_BYTES),
    "zero2": (r"M = b \Psi + \frac{b \Psi + k b \Psi}{N}", _SENT_BYTES),
    "zero3": (r"M = \frac{b \Psi + b \Psi + k b \Psi}{N}", _SENT_BYTES_ZERO3),
    "all_reduce": (r"q = 2 \, S \, \frac{N - 1}{N} + S \, \frac{N - 1}{N}",),
}
ZERO = "Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, sec. 5, 7"  # noqa: E501
#: Recomputation setting → formulas of the activations A kept of L blocks and of the seconds T of an
#: update.
RECOMPUTE_FORMULAS = {
    "selective": (r"A = \sum_{l=1}^{L} ( A_l - s_l )", r"T = F + F_s + B"),
    "full": (r"A = \sum_{l=1}^{L} x_l", r"T = F + F + B"),
}
RECOMPUTE_SOURCES = {
    "selective": "Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models, sec. 5",  # noqa: E501
    "full": "Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost, sec. 3",
}
#: Framework → file and functions that recompute layers.
RECOMPUTE_CODE = {
    "torch": ("dualml_torch/algorithms/model/network.py", ("set_recompute", "run_span")),
    "mindspore": (
        "dualml_ms/algorithms/model/network.py",
        ("set_recompute", "LayerBlock.__init__"),
    ),
}


def zero_cards(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a card per stage of ZeRO that an arm uses, and one for the all-reduce variant."""
    used = ((arm, _stage_key(run, arm)) for arm in ranks.training_arms(run))
    sources = dict.fromkeys(STAGES, ZERO)
    return method_cards(words, STAGES, used, "shared.{}.name", "shared.{}.does", sources)


def _stage_key(run: RunData, arm: str) -> str:
    """Return the key of `STAGES` that an arm uses; of an arm that shards nothing a key that is not
    there."""
    s = run.settings[arm]
    return f"zero{s.zero}" if s.zero_reduce == "reduce_scatter" else s.zero_reduce


def recompute_cards(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a card per kind of activation recomputation that an arm uses."""
    used = ((arm, str(run.settings[arm].recompute)) for arm in ranks.training_arms(run))
    title, text = "again.{}.name", "again.{}.does"
    return method_cards(words, RECOMPUTE_FORMULAS, used, title, text, RECOMPUTE_SOURCES)


def code(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the code of sharding (ZeRO) and of recomputation, each only if an arm of the run uses
    it."""
    parts = dict[str, list[Code]]()
    if any(run.settings[arm].zero for arm in ranks.training_arms(run)):
        parts["shared"] = [
            excerpt(
                "dualml/parallel/zero/forward_backward.py",
                ("micro_step", "fetch_unit", "gather_unit", "reduce_scatter_unit"),
            ),
            excerpt("dualml/parallel/zero/model.py", ("update",)),
            excerpt("dualml/parallel/zero/collectives.py", ("reduce_scatter", "all_gather")),
        ]
    if any(run.settings[arm].recompute != "none" for arm in ranks.training_arms(run)):
        present = {run.framework(b) for b in run.backends}
        parts["again"] = [excerpt(*RECOMPUTE_CODE[f], f) for f in RECOMPUTE_CODE if f in present]
    return code_sections(parts, words)


TOPICS = (
    ReportSection("shared", 25, zero_cards, group="principle"),
    ReportSection("again", 26, recompute_cards, group="principle"),
    ReportSection("memory_code", 20, code, group="code"),
)
