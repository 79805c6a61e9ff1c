"""Requirements on a ring all-reduce, judged with the student's own chunks and order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dualml.course.computed import select_keys
from dualml.course.differences import Difference
from dualml.course.exercise import Answer, Arrays, ExerciseCall, Flags, Trouble
from dualml.course.lab2.layout import RingLayout, find_layout
from dualml.course.lab2.reductions import CollectiveRequirement
from dualml.course.lab2.ring import WHOLE_TENSORS, count_steps, ring_all_reduce

#: Places at which a mistake of a ring may act alone; its parts are the chunks.
RING_PLACES = (
    *("ring_step=0", "ring_step=!0", "ring_step=-1", "rank=0", "rank=!0", "rank=-1"),
    *("slice=0", "slice=!0", "slice=-1"),
)
#: Patterns of errors in a ring.
RING_ERRORS = (
    (r"rank 0 of 1 cannot exchange", "ring_alone"),
    (r"rank (\d+) of \d+ cannot exchange with rank (?!\1$)", "ring_no_modulo"),
    (r"receives \w+ from rank \d+ and expects [a-z]", "ring_type"),
    (r"KeyError: -?\d|'dict' (object|and)|and 'dict'|received dict", "ring_reply_key"),
    (r"invalid for input of size|[Rr]eshape", "ring_length"),
    (r"(Runtime|Value)Error: .*(must match|broadcast)", "ring_stored_elsewhere"),
)


#: Beginnings of the names of mistakes in the number of steps.
STEP_MISTAKES = (
    *("ring_one_half", "ring_one_step", "ring_step_more"),
    *("ring_reduce_short", "ring_gather_short"),
)


@dataclass
class RingRequirement(CollectiveRequirement):
    """Requirement on the result or the traffic of a ring all-reduce."""

    places: Sequence[str] = RING_PLACES

    def adopt_choices(self, call: ExerciseCall, answer: Answer) -> Sequence[ExerciseCall]:
        """Return the call with ``layout``, the chunks, direction and order that the first messages
        show, and with the usual order, since a first message may be one of the second half; the
        call itself if they show none."""
        inputs = [own["t"].reshape(-1) for own in call.arrays]
        layout = find_layout(inputs, answer.arrays)
        if layout is None:
            return [call]
        layouts = [replace(layout, start=start) for start in dict.fromkeys((layout.start, 0))]
        return [replace(call, options={**call.options, "layout": each}) for each in layouts]

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute each rank's results that count in the dtype ``number``, with the typical mistakes
        named in ``flags``, with the call's ``layout`` if it has one."""
        made = ring_all_reduce(call.arrays, flags, number, call.options.get("layout"))
        return [select_keys(own, self.result_keys) for own in made]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first difference; if there is none and the traffic counts, the lengths of
        chunks that differ by more than one, with ``ring_uneven``."""
        found = super().problem(call, answer)
        if found is not None or "elements" not in self.result_keys:
            return found
        inputs = [own["t"].reshape(-1) for own in call.arrays]
        layout = find_layout(inputs, answer.arrays)
        lengths = [len(chunk) for chunk in layout.chunks] if layout else [0]
        if max(lengths) - min(lengths) <= 1:
            return None
        even = RingLayout.split_evenly(len(inputs[0]), call.ranks)
        nearly = [len(chunk) for chunk in even.chunks]
        return Difference(0, "chunks", None, lengths, nearly), ("ring_uneven",)

    def rules_out(self, call: ExerciseCall, answer: Answer, flags: Flags) -> bool:
        """Return whether mistakes lead to another number of messages than the answer's, if the
        number of steps is among them or if the student's chunks are known."""
        if "layout" not in call.options and not any(f.startswith(STEP_MISTAKES) for f in flags):
            return False
        if flags & WHOLE_TENSORS.keys():
            return False
        steps = sum(count_steps(call.ranks, flags))
        return any(len(own.get("peers", range(steps))) != steps for own in answer.arrays)

    def mistakes_of(self, trouble: Trouble) -> tuple[str, ...]:
        """Return the typical mistake that an error shows: an index beyond a list, on rank 0, is
        one of a chunk that is missing, since there no number exceeds n − 1."""
        if trouble.kind == "IndexError" or "out of range" in trouble.message:
            return ("ring_chunk_count",) if trouble.rank == 0 else ("ring_no_modulo",)
        return super().mistakes_of(trouble)
