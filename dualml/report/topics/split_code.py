"""Key code of split models: the framework-neutral executor, a segment in each framework, RPC
calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Block, Code
from dualml.report.code import code_sections, excerpt, read_listings
from dualml.report.splits.arms import Splits
from dualml.report.topics import ReportSection

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
    yield "executor", read_listings("split_executor")
    used = {arm.schedule for arm in splits.pipelines}
    builders = [name for schedule, name in BUILDERS.items() if schedule in used][:2]
    yield "schedules", [excerpt("dualml/parallel/split/schedules.py", (b,), b) for b in builders]
    if any(arm.mesh.tensor > 1 for arm in splits):
        yield "inside", read_listings("split_inside")
    present = {run.framework(b) for b in run.backends}
    compared = present - {"numpy"} or present
    yield "segment", read_listings("split_segment", compared)
    yield "cells", read_listings("split_cells", present)
    if any(arm.rpc for arm in splits):
        yield "rpc", read_listings("split_rpc")
    if any(arm.on_devices for arm in splits):
        yield "devices", read_listings("split_devices", present)


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a section of code per group of `listings` that is not empty."""
    return code_sections(dict(listings(run)), words, "split_")


TOPIC = ReportSection("split_code", 30, evidence, group="code")
