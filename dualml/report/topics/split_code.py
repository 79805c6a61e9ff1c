"""Key code of split models: the framework-neutral executor, a segment in each framework, RPC
calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Block, Code
from dualml.report.code import code_sections, excerpt
from dualml.report.splits.arms import Splits
from dualml.report.topics import ReportSection

#: Framework → file of its segments, and the methods that compute.
SEGMENTS = {
    "numpy": ("dualml/backend/reference/split.py", ("forward", "backward", "loss_backward")),
    "torch": (
        "dualml_torch/parallel/split.py",
        ("forward", "_run_segment", "run_layers", "backward", "loss_backward"),
    ),
    "mindspore": ("dualml_ms/parallel/split.py", ("forward", "backward", "loss_backward")),
}
CELLS = (
    "dualml_ms/parallel/split_cells.py",
    ("Forward.construct", "Backward.construct", "LossBackward.construct"),
)
#: Schedule → the function that builds it.
BUILDERS = {
    "gpipe": "gpipe",
    "1f1b": "one_f_one_b",
    "eager-1f1b": "eager",
    "interleaved": "interleaved",
    "naive": "naive",
}


def listings(run: RunData) -> Iterator[tuple[str, Sequence[Code]]]:
    """Yield the key of a heading and the listings below it, which may be none; nothing for a run
    without split arms."""
    splits = Splits(run)
    if not splits:
        return
    yield (
        "executor",
        [excerpt("dualml/parallel/split/executor.py", ("run_action", "forward", "backward"))],
    )
    used = {arm.schedule for arm in splits.pipelines}
    builders = [name for schedule, name in BUILDERS.items() if schedule in used][:2]
    yield "schedules", [excerpt("dualml/parallel/split/schedules.py", (b,), b) for b in builders]
    if any(arm.mesh.tensor > 1 for arm in splits):
        shard = excerpt(
            "dualml/parallel/split/tensor_parallel.py", ("add_layer", "slice_layer"), "StageShard"
        )
        rank = excerpt(
            "dualml/parallel/split/tensor_parallel_rank.py",
            ("communicate", "communicate_back"),
            "TensorParallelRank",
        )
        yield "inside", [shard, rank]
    present = {run.framework(b) for b in run.backends}
    frameworks = [f for f in SEGMENTS if f in present and (f != "numpy" or len(present) == 1)]
    yield "segment", [excerpt(*SEGMENTS[f], f) for f in frameworks]
    if "mindspore" in present:
        yield "cells", [excerpt(*CELLS, "mindspore")]
    if any(arm.rpc for arm in splits):
        calls = excerpt(
            "dualml_torch/parallel/rpc.py",
            ("step", "forward_backward", "forward", "update"),
            "torch",
        )
        yield "rpc", [calls]
    if any(arm.on_devices for arm in splits):
        own = [
            excerpt(
                "dualml/parallel/split/placed_executor.py", ("send", "reduce"), "PlacedExecutor"
            )
        ]
        if "torch" in present:
            names = ("transfer", "compute", "loss_backward")
            own.append(excerpt("dualml_torch/parallel/devices.py", names, "TorchPlacedStage"))
        yield "devices", own


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a section of code per group of `listings` that is not empty."""
    return code_sections(dict(listings(run)), words, "split_")


TOPIC = ReportSection("split_code", 30, evidence, group="code")
