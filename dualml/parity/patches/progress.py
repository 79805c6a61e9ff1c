"""Whether a patch brings the two sides of a comparison closer."""

from __future__ import annotations

from dualml.parity.models.comparison import ModelComparison

#: How far both sides agree, see `ModelComparison.reach`.
Reach = tuple[float, float]


def measure_reach(found: ModelComparison) -> Reach:
    """Return how far both sides of a comparison agree, to be compared with other results:
    `ModelComparison.reach` if they are different, infinite if they are equal, −1 if a side raised
    or they cannot be compared."""
    if found.verdict == "equal":
        return (float("inf"), 0.0)
    raised = any(note.key == "raised" for note in found.notes)
    return (-1.0, 0.0) if raised or found.verdict != "different" else found.reach


def is_closer(found: ModelComparison, before: ModelComparison) -> bool:
    """Return whether both sides of ``found`` agree further than those of ``before``, and share more
    values: a port that computes something else altogether may differ later by chance."""
    return measure_reach(found) > measure_reach(before) and found.lost < before.lost
