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
    return method_cards(words, "shared", used, "shared.{}.name", "shared.{}.does")


def _stage_key(run: RunData, arm: str) -> str:
    """Return the method of the section ``shared`` that an arm uses; of an arm that shards nothing
    one that is not there."""
    s = run.settings[arm]
    return f"zero{s.zero}" if s.zero_reduce == "reduce_scatter" else s.zero_reduce


def recompute_cards(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a card per kind of activation recomputation that an arm uses."""
    used = ((arm, str(run.settings[arm].recompute)) for arm in ranks.training_arms(run))
    return method_cards(words, "again", used, "again.{}.name", "again.{}.does")


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
