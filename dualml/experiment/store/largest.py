"""``largest.json``: the largest models that trained within a memory limit."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dualml.experiment.store.jsonfile import Count, JsonFile, Name, Number, Record


class SizeAttempt(Record):
    """One model size: whether it trained, the mean losses of its updates, the most bytes that a
    rank held after the last one, and seconds per update; else the reason why it did not."""

    blocks: Count
    fits: bool
    reason: str = ""
    losses: list[Number] = []
    held_bytes: Count = 0
    step_s: Number = 0.0


class LargestRow(Record):
    """One setting: the largest number of blocks by the planner and by training, and all
    attempts."""

    backend: Name
    model: Name
    limit_bytes: Count
    world_size: Annotated[int, Field(ge=1, le=4096)]
    zero: Annotated[int, Field(ge=0, le=3)] = 0
    recompute: str = "none"
    width: Count
    predicted_blocks: Count
    blocks: Count
    parameters: Count
    predicted_bytes: Number
    tries: list[SizeAttempt]


class LargestRecord(Record):
    """The content of ``largest.json``."""

    rows: list[LargestRow]


LARGEST = JsonFile("largest.json", LargestRecord, version=1)
