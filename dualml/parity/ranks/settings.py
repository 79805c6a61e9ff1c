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
    """Return name of a setting → its values on reference and suspect → names of the parameters that
    have these; of settings that both sides state, and that differ. Learning rates are left out
    where both sides recorded them in every step."""
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
    """Return name of a parameter → settings of its group."""
    return {name: one.settings for one in side.trace.groups for name in one.names}


def find_settings(evidence: RankEvidence, *, exchanged: bool) -> RankFinding | None:
    """Return a finding if settings differ, and updates or states of parameters that have them.

    Args:
        exchanged: whether one setting has two values that two groups of parameters exchange.
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
    """Return a finding if groups of both optimizers state other settings."""
    return find_settings(evidence, exchanged=False)


def exchanged_settings(evidence: RankEvidence) -> RankFinding | None:
    """Return a finding if two groups of parameters have exchanged values of a setting."""
    return find_settings(evidence, exchanged=True)


def describe_starts(sides: tuple[TraceSide, TraceSide]) -> list[Note]:
    """Return the sentence that the optimizers of two sides are not in the same state before the
    first step; none if they are, or if a side did not record it."""
    if any(side.trace.start is None for side in sides) or is_same_start(sides):
        return []
    values: dict[str, object] = {}
    for letter, side in zip("ab", sides, strict=True):
        start = side.trace.start or OptimizerStart()
        own = {"side": side.name, "n": start.updates, "state": describe_state(start)}
        values |= {f"{key}_{letter}": value for key, value in own.items()}
    return [Note("ranks_starts_apart", values)]


def describe_state(start: OptimizerStart) -> str:
    """Describe the state as names, with the value of each that is the same everywhere."""
    texts = [k if v is None else f"{k} = {v:g}" for k, v in start.slots.items()]
    return ", ".join(texts) or "–"


def is_same_start(sides: tuple[TraceSide, TraceSide]) -> bool:
    """Return whether two optimizers have made as many updates, where both count them, and whether
    the kinds of state that both have are alike: zero, one number, or neither."""
    a, b = (side.trace.start or OptimizerStart() for side in sides)
    if a.updates and b.updates and a.updates != b.updates:
        return False
    return not any(
        has_state(side, slot) and not is_same_value(one, other, slot)
        for side, one, other in ((sides[1], a, b), (sides[0], b, a))
        for slot in one.slots
    )


def has_state(side: TraceSide, slot: str) -> bool:
    """Return whether the optimizer has a kind of state after the first step."""
    return any(name.startswith(f"{slot}/") for name in side.trace.names("state", 1))


def is_same_value(a: OptimizerStart, b: OptimizerStart, slot: str) -> bool:
    """Return whether a kind of state begins alike: as one number, or as several."""
    if slot not in b.slots:
        return False
    x, y = a.slots[slot], b.slots[slot]
    return x is None or y is None or is_near(x, y, SETTING_RTOL)
