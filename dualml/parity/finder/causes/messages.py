"""Hypotheses about single messages of an aggregation that sends them one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dualml.common.array_types import Array
from dualml.common.errors import CommunicationError, UserError
from dualml.parallel.aggregation import STRATEGIES, Strategy
from dualml.parallel.aggregation.buckets import bucket_layout
from dualml.parallel.aggregation.layers import layer_sizes
from dualml.parallel.aggregation.schedule import CollectiveSchedule, Transfer
from dualml.parity.finder.causes.base import Arrays, Hypothesis, Observation

Steps = tuple[tuple[Transfer, ...], ...]
OTHER_OP: Mapping[str, Any] = {"add": "put", "put": "add"}
#: Most messages of a schedule that are changed one by one.
MAX_TRANSFERS = 200


def changed_messages(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses that a step of the strategy's schedule, or one message of it, is left
    out, sent twice, replaced instead of added, added instead of replaced, or of another chunk;
    steps may also be exchanged with the next. Nothing for strategies without messages between two
    ranks, compressed ones, and schedules of more than MAX_TRANSFERS messages."""
    settings = suspect.scene.arm.aggregation
    kind = STRATEGIES.get(settings.strategy)
    if kind is None or not kind.is_point_to_point or settings.compress != "none":
        return
    own = kind().schedule(suspect.world_size)
    if sum(map(len, own.steps)) > MAX_TRANSFERS:
        return
    for change, at, transfer, steps in changed_steps(own.steps, own.chunks):
        detail: dict[str, Any] = {"change": change, "step": at + 1}
        if transfer is not None:
            detail |= {"source": transfer.source, "target": transfer.target}
            detail["chunk"] = transfer.name
        yield Hypothesis(
            "changed-message",
            lambda step, rank, steps=steps: aggregate_with_steps(
                suspect, kind(), steps, step, rank
            ),
            detail,
            cost=1 if transfer is None else 2,
        )


def changed_steps(steps: Steps, chunks: int) -> Iterator[tuple[str, int, Transfer | None, Steps]]:
    """Yield every change of a schedule as (what was changed, number of the step from 0, the message
    or None for all of the step, changed steps).

    Args:
        chunks: number of chunks that a vector is sent in.
    """
    for at, step in enumerate(steps):
        before, after = steps[:at], steps[at + 1 :]
        other = tuple(replace(t, op=OTHER_OP[t.op]) for t in step)
        names = {"add": "replaces", "put": "added"}
        yield "left out", at, None, (*before, *after)
        yield "repeated", at, None, (*before, step, step, *after)
        yield names[step[0].op], at, None, (*before, other, *after)
        if after:
            yield "exchanged with the next", at, None, (*before, after[0], step, *after[1:])
        for i, t in enumerate(step):
            rest = (*step[:i], *step[i + 1 :])
            yield "left out", at, t, (*before, rest, *after)
            yield "repeated", at, t, (*before, step, (t,), *after)
            for name, new in (
                (names[t.op], replace(t, op=OTHER_OP[t.op])),
                *(
                    (f"of chunk {c}", replace(t, first=c, last=c))
                    for c in range(chunks)
                    if t.first == t.last != c
                ),
            ):
                yield name, at, t, (*before, (*step[:i], new, *step[i + 1 :]), *after)


def aggregate_with_steps(
    suspect: Observation, strategy: Strategy, steps: Steps, step: int, rank: int
) -> Arrays:
    """Return the aggregated gradient of an update on a rank, by parameter, if the strategy's
    schedule has these ``steps``; empty if the schedule cannot have them.

    Args:
        steps: the steps of the schedule, each a tuple of messages.
        step: number of the update.
    """
    parts = [suspect.reference(step, q, "gradient") for q in range(suspect.world_size)]
    settings, made = suspect.scene.arm.aggregation, dict[str, Array]()
    shapes = {name: a.shape for name, a in parts[0].items()}
    for names in bucket_layout(shapes, settings.bucket_bytes):
        flat = [
            np.concatenate([part[n].astype(np.float64).ravel() for n in names]) for part in parts
        ]
        kind = strategy.for_layers(layer_sizes(names, shapes)) if settings.cut == "layers" else None
        schedule = (kind or strategy).schedule(suspect.world_size)
        try:
            schedule = replace(schedule, steps=steps)
        except UserError:
            return {}
        ends = np.cumsum([np.prod(shapes[n], dtype=int) for n in names])[:-1]
        for name, a in zip(names, np.split(run_schedule(schedule, flat)[rank], ends), strict=True):
            made[name] = a.reshape(shapes[name])
    return made


def run_schedule(schedule: CollectiveSchedule, vectors: Sequence[Array]) -> list[Array]:
    """Return what each rank holds after a schedule, starting from its own vector; every message of
    a step is of what its sender held before the step. Ends early at a message of a chunk that does
    not exist."""
    held = [vector.copy() for vector in vectors]
    for step in schedule.steps:
        before = [vector.copy() for vector in held]
        for t in step:
            try:
                first, end = schedule.span(t, len(held[0]))
            except CommunicationError:
                return held
            sent = before[t.source][first:end]
            held[t.target][first:end] = sent + (held[t.target][first:end] if t.op == "add" else 0)
    return held
