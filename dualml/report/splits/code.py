"""Key code of split models: the neutral executor, a segment in each framework, the calls."""

from __future__ import annotations

from dualml.report.code import excerpt
from dualml.report.model import Run
from dualml.report.rank_code import Excerpts
from dualml.report.splits import arms
from dualml.report.splits.principle import piped
from dualml.report.words import Words

#: Framework → its segments' file, and what of it computes.
SEGMENTS = {
    "numpy": ("dualml/reference/split.py", ("forward", "backward", "loss_backward")),
    "torch": ("dualml_torch/split.py", ("forward", "_through", "backward", "loss_backward")),
    "mindspore": ("dualml_ms/split.py", ("forward", "backward", "loss_backward")),
}
CELLS = ("dualml_ms/split_cells.py", ("Forward.construct", "Backward.construct", "Last.construct"))
BUILDERS = {
    "gpipe": "gpipe",
    "1f1b": "one_f_one_b",
    "eager-1f1b": "eager",
    "interleaved": "interleaved",
    "naive": "naive",
}


def split_code(run: Run, words: Words) -> list[Excerpts]:
    used = arms.split_arms(run)
    if not used:
        return []
    made = [
        Excerpts(
            words("code.split_executor"),
            [excerpt("dualml/split/executor.py", ("act", "forward", "backward"))],
        )
    ]
    schedules = {arms.schedule(run, arm) for arm in piped(run)}
    shown = [BUILDERS[name] for name in BUILDERS if name in schedules]
    if shown:
        listings = [excerpt("dualml/split/schedules.py", (name,), name) for name in shown[:2]]
        made.append(Excerpts(words("code.split_schedules"), listings))
    if any(arms.mesh(run, arm).tensor > 1 for arm in used):
        made.append(
            Excerpts(
                words("code.split_inside"),
                [
                    excerpt("dualml/split/horizontal.py", ("add", "slice"), "Shard"),
                    excerpt("dualml/split/rank.py", ("join", "unjoin"), "Rank"),
                ],
            )
        )
    present = {run.framework(b) for b in run.backends}
    frameworks = [f for f in SEGMENTS if f in present and (f != "numpy" or len(present) == 1)]
    segments = [excerpt(*SEGMENTS[f], f) for f in frameworks]
    if segments:
        made.append(Excerpts(words("code.split_segment"), segments))
    if "mindspore" in present:
        made.append(Excerpts(words("code.split_cells"), [excerpt(*CELLS, "mindspore")]))
    if any(arms.split(run, arm)["engine"] == "rpc" for arm in used):
        calls = excerpt("dualml_torch/rpc.py", ("step", "passes", "forward", "update"), "torch")
        made.append(Excerpts(words("code.split_rpc"), [calls]))
    return made
