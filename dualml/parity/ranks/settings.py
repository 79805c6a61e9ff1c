"""Settings of an optimizer by group of parameters, and its state before the first step."""

from __future__ import annotations

from collections.abc import Mapping

from dualml.experiment.comparison import Note
from dualml.parity.models.optimizer_facts import OptimizerStart
from dualml.parity.ranks.evidence import RankEvidence, TraceSide, is_near
from dualml.parity.ranks.factors import RankFinding
from dualml.parity.ranks.state_mistakes import list_names

#: Relative tolerance of a setting: MindSpore keeps some in float32.
SETTING_RTOL = 1e-6
#: Phases before the optimizer's.
EARLIER = ("forward", "loss", "gradient")


def compare_settings(
    evidence: RankEvidence,
) -> dict[str, dict[tuple[float, float], list[str]]]:
    """Return name of a setting → (value on reference, on suspect) → names of the parameters with
    these values, for the settings of optimizers that both sides state and that differ.

    Learning rates are left out where both sides recorded them in every step.
    """
    sides = (evidence.reference, evidence.suspect)
    rates = [side.rates() for side in sides]
    scheduled = all(rates) and len(rates[0][0]) == len(rates[1][0])
    found: dict[str, dict[tuple[float, float], list[str]]] = {}
    settings = [settings_by_name(side) for side in sides]
    for name in evidence.reference.names:
        a, b = (one.get(side.own_name(name), {}) for one, side in zip(settings, sides, strict=True))
        for key in a.keys() & b.keys():
            apart = not is_near(a[key], b[key], SETTING_RTOL)
            if apart and not (key == "lr" and scheduled):
                found.setdefault(key, {}).setdefault((a[key], b[key]), []).append(name)
    return dict(sorted(found.items()))


def settings_by_name(side: TraceSide) -> dict[str, Mapping[str, float]]:
    """Return name of a parameter on this side → settings of its group in the optimizer."""
    return {name: one.settings for one in side.trace.groups for name in one.names}


def find_settings(evidence: RankEvidence, *, exchanged: bool) -> RankFinding | None:
    """Return a finding if settings of the two optimizers differ, and updates or states of
    parameters that have them lie outside of rounding; else None. It explains no arrays if an
    earlier phase differs.

    Args:
        exchanged: count only settings with two values that two groups of parameters exchange.
    """
    found = compare_settings(evidence)
    if exchanged:
        found = {key: rows for key, rows in found.items() if any((b, a) in rows for a, b in rows)}
    concerned = {name for rows in found.values() for names in rows.values() for name in names}
    outside = [
        name
        for phase in ("update", "state")
        for name in evidence.names_outside(phase)
        if name.rpartition("/")[2] in concerned
    ]
    if not outside:
        return None
    texts = [
        f"{key} "
        + ", ".join(f"{a:g} / {b:g} ({list_names(names)})" for (a, b), names in rows.items())
        for key, rows in found.items()
    ]
    earlier = any(evidence.names_outside(phase) for phase in EARLIER)
    values = {"settings": "; ".join(texts), "names": ", ".join(f"`{key}`" for key in found)}
    count = 0 if earlier else len(outside)
    return RankFinding(count, "update", values, tuple(sorted(concerned)), is_predicted=False)


def other_settings(evidence: RankEvidence) -> RankFinding | None:
    """Return a finding if the two optimizers state different settings for groups of parameters that
    differ; else None."""
    return find_settings(evidence, exchanged=False)


def exchanged_settings(evidence: RankEvidence) -> RankFinding | None:
    """Return a finding if two groups of parameters have exchanged values of a setting on the
    suspect's side; else None."""
    return find_settings(evidence, exchanged=True)


def describe_starts(sides: tuple[TraceSide, TraceSide]) -> list[Note]:
    """Return a list with one note that the optimizers of two sides are not in the same state before
    the first step; empty if they are, or if a side did not record it."""
    if any(side.trace.start is None for side in sides) or is_same_start(sides):
        return []
    values: dict[str, object] = {}
    for letter, side in zip("ab", sides, strict=True):
        start = side.trace.start or OptimizerStart()
        own = {"side": side.name, "n": start.updates, "state": describe_state(start)}
        values |= {f"{key}_{letter}": value for key, value in own.items()}
    return [Note("ranks_starts_apart", values)]


def describe_state(start: OptimizerStart) -> str:
    """Return the names of the kinds of state that are not zero, as text, each with its value if
    that is one number; a dash if there are none."""
    texts = [k if v is None else f"{k} = {v:g}" for k, v in start.slots.items()]
    return ", ".join(texts) or "–"


def is_same_start(sides: tuple[TraceSide, TraceSide]) -> bool:
    """Return whether two optimizers start alike: after as many updates, where both count them, and
    with kinds of state that are zero on both sides or on neither, with one value where both have a
    single one.

    Only the kinds of state that both sides have after the first step are compared.
    """
    a, b = (side.trace.start or OptimizerStart() for side in sides)
    if a.updates and b.updates and a.updates != b.updates:
        return False
    return not any(
        has_slot(side, slot) and not is_same_value(one, other, slot)
        for side, one, other in ((sides[1], a, b), (sides[0], b, a))
        for slot in one.slots
    )


def has_slot(side: TraceSide, slot: str) -> bool:
    """Return whether the optimizer has a kind of state, ``slot``, after the first step."""
    return any(name.startswith(f"{slot}/") for name in side.trace.names("state", 1))


def is_same_value(a: OptimizerStart, b: OptimizerStart, slot: str) -> bool:
    """Return whether a kind of state that is not zero on side ``a`` begins alike on side ``b``: it
    is not zero there either, and if both are one number, it is the same number."""
    if slot not in b.slots:
        return False
    x, y = a.slots[slot], b.slots[slot]
    return x is None or y is None or is_near(x, y, SETTING_RTOL)
