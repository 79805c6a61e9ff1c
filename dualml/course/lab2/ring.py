"""Ring all-reduce with typical mistakes as options, for all ranks at once, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, Flags
from dualml.course.lab2.layout import RingLayout
from dualml.course.lab2.rules import Number
from dualml.course.places import flags_at

#: Mistakes whose ranks send whole tensors, and how often each is sent in n − 1 rounds.
WHOLE_TENSORS = {"ring_everything": 1, "ring_everything#2": 2}
#: Mistakes that leave the first step of a half out.
SKIPPED = ("ring_reduce_short#2", "ring_gather_short#2")


@dataclass
class RingState:
    """Chunks of all ranks while they go around.

    Attributes:
        layout: the choices.
        chunks: rank → its chunks.
        original: rank → its chunks as they were.
        buffers: rank → receive buffer, for ranks that have one for all messages.
        sent: rank → elements that it has sent.
    """

    layout: RingLayout
    chunks: list[list[Any]]
    original: list[list[Any]] = field(init=False)
    buffers: list[Any] = field(init=False)
    sent: list[int] = field(init=False)

    def __post_init__(self) -> None:
        longest = max(len(c) for c in self.layout.chunks)
        self.original = [list(own) for own in self.chunks]
        self.buffers = [np.zeros(longest, own[0].dtype) for own in self.chunks]
        self.sent = [0] * len(self.chunks)

    def exchange_chunks(self, half: int, step: int, steps: int, flags: Flags) -> None:
        """Let every rank send one chunk and receive one.

        Args:
            half: 0 while sums are formed, 1 while they go around.
            step: number of the step in its half.
            steps: number of steps of a half.
            flags: mistakes.
        """
        n, d = len(self.chunks), self.layout.direction
        places = [flags_at(flags, rank=(r, n), ring_step=(step, steps)) for r in range(n)]
        numbers = [self.first_chunk(r, half, places[r]) for r in range(n)]
        for r in range(n):
            forward = has_form(places[r], "ring_forward", half)
            numbers[r] = (numbers[r] + (d if forward else -d) * step) % n
        messages = []
        for r in range(n):
            here = flags_at(places[r], slice=(numbers[r], n))
            kept = half == 0 and "ring_sends_original" in here
            messages.append((self.original if kept else self.chunks)[r][numbers[r]].copy())
            self.sent[r] += messages[r].size
        for r in range(n):
            left = (r - d) % n
            at, came = numbers[left], messages[left]
            here = flags_at(places[r], slice=(at, n))
            self.store(r, at, came, half, numbers[r], here)

    def first_chunk(self, rank: int, half: int, flags: Flags) -> int:
        """Return the number of the chunk that a rank sends first in a half."""
        n, d = len(self.chunks), self.layout.direction
        if half == 0:
            return rank + self.layout.start
        offset = d
        if "ring_gather_start" in flags:
            offset = -d
        elif "ring_gather_start#2" in flags:
            offset = 2 * d
        return (rank + self.layout.start + offset) % n

    def store(self, rank: int, at: int, came: Any, half: int, sent: int, flags: Flags) -> None:
        """Put a chunk that has come to a rank where it belongs.

        Args:
            rank: the rank.
            at: number of the chunk.
            came: its elements.
            half: 0 if they are to be added, 1 if they replace the rank's own.
            sent: number of the chunk that the rank has just sent.
            flags: mistakes that act there.
        """
        chunks = self.chunks[rank]
        if has_form(flags, "ring_not_stored", half):
            return
        if has_form(flags, "ring_stored_elsewhere", half):
            at = sent
        if half == 1 and "ring_one_buffer" in flags:
            buffer = self.buffers[rank]
            buffer[: len(came)] = came
            chunks[at] = buffer[: len(came)]  # the next message overwrites it
            return
        if half == 0 and "ring_added_twice" in flags:
            came = 2 * came
        elif half == 0 and "ring_added_twice#2" in flags:
            came = came + chunks[at]
        mistake = "ring_gather_adds" if half else "ring_overwritten"
        adds = (half == 0) != (mistake in flags)
        length = min(len(chunks[at]), len(came))  # of another chunk the frameworks raise an error
        stored = chunks[at].copy()
        stored[:length] = stored[:length] + came[:length] if adds else came[:length]
        chunks[at] = stored


def has_form(flags: Flags, name: str, half: int) -> bool:
    """Return whether a mistake acts in a half: its first form in both, ``NAME#2`` in the first,
    ``NAME#3`` in the second."""
    return name in flags or f"{name}#{half + 2}" in flags


def ring_all_reduce(
    ranks: Sequence[Arrays],
    flags: Flags = RIGHT,
    number: Number = np.float64,
    layout: RingLayout | None = None,
) -> list[dict[str, Any]]:
    """Compute for each rank ``sum``, its result of a ring all-reduce, ``messages`` and
    ``elements``, the numbers that it sends, and ``before``, its input; with the typical mistakes
    named in ``flags``, in the dtype ``number``.

    Args:
        layout: chunks and order; None: nearly equal chunks, the longer ones first, to the right.
    """
    n, shape = len(ranks), ranks[0]["t"].shape
    flat = [a["t"].astype(number).reshape(-1) for a in ranks]
    size = flat[0].size
    even = size // n * n
    if flags & {"ring_remainder", "ring_remainder#2"} and (
        not layout or layout.element_count >= size
    ):
        layout = RingLayout(np.split(np.arange(even), n))
    layout = layout or RingLayout.split_evenly(size, n)
    if "ring_order#4" in flags:
        layout = replace(layout, chunks=[np.arange(c, size, n) for c in range(n)])
    padded = [np.append(x, np.zeros(max(0, layout.element_count - size), number)) for x in flat]
    state = RingState(layout, [[x[at] for at in layout.chunks] for x in padded])
    steps = count_steps(n, flags)
    for half in (0, 1):
        begin = int(SKIPPED[half] in flags)
        for step in range(begin, begin + steps[half]):
            state.exchange_chunks(half, step, steps[half], flags)
    times = next((WHOLE_TENSORS[name] for name in WHOLE_TENSORS if name in flags), 0)
    out = []
    for r in range(n):
        here = flags_at(flags, rank=(r, n))
        total = sum(flat) if times else assemble(state, r, flat, here)
        out.append(
            {
                "sum": finish_sum(total, flat[r], n, here).reshape(
                    -1 if "ring_flat" in here else shape
                ),
                "messages": np.array(times * (n - 1) or sum(steps), float),
                "elements": np.array(times * (n - 1) * size or state.sent[r], float),
                "before": flat[r].reshape(shape),
            }
        )
    return out


def count_steps(ranks: int, flags: Flags) -> list[int]:
    """Return the number of steps of each half, n − 1 unless a mistake makes it another."""
    if "ring_one_step" in flags or ranks == 1:
        return [min(1, ranks - 1)] * 2
    more = 2 * ("ring_step_more#2" in flags) or 1 * ("ring_step_more" in flags)
    steps = []
    for half, added in (("reduce", more > 1), ("gather", more > 0)):
        missing = {"reduce": "ring_one_half#2", "gather": "ring_one_half"}[half] in flags
        count = ranks - 1 + added
        count -= bool(flags & {f"ring_{half}_short", f"ring_{half}_short#2"})
        steps.append(0 if missing else max(0, count))
    return steps


def assemble(state: RingState, rank: int, flat: Sequence[Any], flags: Flags) -> Any:
    """Put a rank's chunks together to a flat tensor, as the typical mistakes named in ``flags`` do;
    elements that are in no chunk are all ranks' sum, or by a mistake that leaves them out the
    rank's own (``ring_remainder``) or 0 (``ring_remainder#2``)."""
    chunks, spans = state.chunks[rank], state.layout.chunks
    n, size, d = len(chunks), flat[rank].size, state.layout.direction
    orders = {
        "ring_order": rank,
        "ring_order#2": rank + state.layout.start + d,
    }
    for name, first in orders.items():
        if name in flags:
            return np.concatenate([chunks[(first + i) % n] for i in range(n)])[:size]
    if "ring_order#3" in flags:
        return np.concatenate(chunks[::-1])[:size]
    if "ring_order#4" in flags:
        return np.concatenate(chunks)[:size]
    whole = np.zeros(max(size, state.layout.element_count), flat[rank].dtype)
    remains = "ring_remainder" in flags
    if remains or "ring_remainder#2" not in flags:
        whole[:size] = flat[rank] if remains else sum(flat)
    for c, (span, chunk) in enumerate(zip(spans, chunks, strict=True)):
        here = flags_at(flags, slice=(c, n))
        whole[span] = 0 * chunk if "ring_chunk_missing" in here else chunk
    return whole[:size]


def finish_sum(total: Any, own: Any, ranks: int, flags: Flags) -> Any:
    """Return a rank's result, made of the sum that its chunks have, as the typical mistakes named
    in ``flags`` change it."""
    if "ring_mean" in flags:
        return total / own.dtype.type(ranks)
    if "ring_own_twice" in flags:
        return total + own
    return total - own if "ring_own_missing" in flags else total
