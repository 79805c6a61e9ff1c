"""Settings of arms with several ranks: how each combines, and what was measured alone."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.aggregation import ASYNCHRONOUS
from dualml.aggregation.settings import Aggregation
from dualml.report import ranks
from dualml.report.blocks import Block
from dualml.report.columns import Line as Row
from dualml.report.columns import table
from dualml.report.deals import settings_text
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers


def evidence(run: Run, words: Words) -> Iterator[Block]:
    arms = {arm: run.settings[arm] for arm in ranks.several(run)}
    dealt = any(arm.partition for arm in arms.values())
    pinned = any(arm.cores for arm in arms.values())
    rows: list[Row] = [
        [
            *(name, str(arm.world_size)),
            *([str(arm.cores or numbers.NONE)] if pinned else []),
            *([settings_text(arm.partition) if arm.partition else numbers.NONE] if dealt else []),
            *_combined(arm.aggregation, words),
            ranks.handicap_text(run, name, words),
        ]
        for name, arm in arms.items()
    ]
    head = ["`arm`", "ranks:count", *(["cores_each:count"] if pinned else []),
            *(["`partition`"] if dealt else []), "`strategy`", "of", "reduce", "every:updates",
            "bucket", "compress", "arrival", "handicap"]  # fmt: skip
    yield from table(words, "aggregation", head, rows)
    measured: list[Row] = [
        [
            *(name, str(arm.world_size), ", ".join(arm.strategies)),
            *(", ".join(map(numbers.nbytes, arm.sizes)), numbers.quantity(arm.seconds)),
        ]
        for name, arm in run.settings.items()
        if arm.kind != "train"
    ]
    head = ["`arm`", "ranks:count", "`strategies`", "sizes", "budget:seconds"]
    yield from table(words, "measurements", head, measured)


def _combined(s: Aggregation, words: Words) -> list[str]:
    packed = {"none": numbers.NONE, "topk": f"topk {100 * s.fraction:g} %"}
    order = s.arrival if s.strategy == ASYNCHRONOUS else numbers.NONE
    return [
        s.strategy,
        words.either(f"of.{s.of}", s.of),
        words.either(f"reduce.{s.reduce}", s.reduce),
        numbers.quantity(s.every),
        numbers.nbytes(s.bucket_bytes) if s.bucket_bytes else words("value.one_by_one"),
        packed.get(s.compress, s.compress),
        words.either(f"arrival.{order}", order),
    ]


TOPIC = Topic("aggregation", 40, evidence, part="settings")
