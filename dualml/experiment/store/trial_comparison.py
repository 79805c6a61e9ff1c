"""The comparisons of a run's trials, and the content of ``parity.json``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dualml.common.files import nonfinite_to_none
from dualml.common.json_types import JsonMapping, JsonObject
from dualml.experiment.comparison import Comparison, FirstDivergence
from dualml.experiment.store.verdicts import (
    PARITY,
    ComparisonRecord,
    Divergence,
    ParityRecord,
    SerialRecord,
)
from dualml.experiment.verdict import worst_verdict

C = TypeVar("C", bound="TrialComparison")


@dataclass(frozen=True, kw_only=True, repr=False)
class TrialComparison(Comparison):
    """One verdict of ``parity.json``, on two trials: a `Comparison` whose ``sides`` are their
    backends.

    Attributes:
        arms: names of the arm on both sides.
        seed: seed of both trials.
        curve: relative distance of the losses and its envelope, update by update.
        outcome: results at the end of training, on both sides.
    """

    arms: tuple[str, str] = ("", "")
    seed: int = 0
    curve: Mapping[str, Any] = field(default_factory=dict)
    outcome: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        sides = f"{self.a} and {self.b}"
        return f"<Comparison {self.arm} · seed {self.seed}, {sides}: {self.verdict}>"

    @property
    def arm(self) -> str:
        """Name of the arm that was compared."""
        return self.arms[0]

    @property
    def a(self) -> str:
        """Backend of the first trial."""
        return self.sides[0]

    @property
    def b(self) -> str:
        """Backend of the second trial."""
        return self.sides[1]

    @property
    def first_divergence(self) -> JsonMapping | None:
        """The first divergence as in ``parity.json``; None if there is none."""
        found: JsonMapping | None = nonfinite_to_none(self._describe_first())
        return found

    @property
    def ratio(self) -> float | None:
        """Largest ratio of a distance to its envelope among the judged updates; None without."""
        ratio: float | None = self.evidence.get("worst_ratio")
        return ratio

    @property
    def worst(self) -> float | None:
        """Largest ratio of a distance to its envelope over all phases, or None."""
        ratios = (p.get("ratio") for p in self.phases.values())
        return max((float(r) for r in ratios if r is not None), default=None)

    def describe(self) -> JsonObject:
        """Return the entry of ``parity.json``, with the names of what was compared, as JSON values;
        infinities stay numbers."""
        key = {"arm": self.arm, "seed": self.seed, "a": self.a, "b": self.b}
        return {**key, **self.describe_result()}

    def describe_result(self) -> JsonObject:
        """Return the entry of ``parity.json`` without the names of what was compared; without
        distances if none was measured. Infinities stay numbers."""
        result: JsonObject = {
            "verdict": self.verdict or None,
            "reason": self.reason,
            "evidence": dict(self.evidence),
        }
        if self.steps:
            result |= {
                "steps": self.steps,
                "phases": dict(self.phases),
                "first_divergence": self._describe_first(),
                "curve": dict(self.curve),
                "outcome": dict(self.outcome),
            }
        return result

    def _describe_first(self) -> JsonObject | None:
        """Return the first divergence as ``parity.json`` has it."""
        names = ("step", "after", "phase", "tensor", "distance", "envelope")
        return None if self.first is None else self.first.describe(*names)


@dataclass(frozen=True, kw_only=True, repr=False)
class Serial(TrialComparison):
    """Comparison of n workers (``arm``) with one (``against``) on one backend, which is both ``a``
    and ``b``; or of a low-precision method with dualml's own training in that precision.

    ``verdict`` is empty if the arm follows another rule on purpose; ``reason`` then names it.
    """

    @property
    def against(self) -> str:
        """Name of the arm that the compared one must equal."""
        return self.arms[1]

    @property
    def backend(self) -> str:
        """The backend on which both arms ran."""
        return self.a

    def describe(self) -> JsonObject:
        """Return the entry of ``parity.json``, with ``backend`` and ``against`` in place of two
        backends, as JSON values; infinities stay numbers."""
        key = {"arm": self.arm, "seed": self.seed, "backend": self.a, "against": self.against}
        return {**key, **self.describe_result()}


def convert_comparison(found: TrialComparison, kind: type[C], **values: Any) -> C:
    """Return a copy of ``found`` as a comparison of type ``kind``, with other values of some
    attributes."""
    return kind(**{**vars(found), **values})


@dataclass(frozen=True)
class RunVerdicts:
    """All verdicts of a run, the content of ``parity.json``.

    Attributes:
        comparisons: every pair of backends, by arm and seed.
        serial: arms with the arm that they must equal, on one backend; None if no arm has one.
        lowered: methods in low precision with dualml's own training in that precision.
        settings: settings of the comparison.
    """

    comparisons: tuple[TrialComparison, ...] = ()
    serial: tuple[Serial, ...] | None = None
    lowered: tuple[Serial, ...] = ()
    settings: JsonMapping = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The worst verdict of `comparisons` and `serial`; ``equal`` if they have none. Methods in
        low precision (`lowered`) do not count."""
        every = (*self.comparisons, *(self.serial or ()))
        return worst_verdict(one.verdict for one in every) or "equal"

    def select(self, wanted: Callable[[TrialComparison], bool]) -> RunVerdicts:
        """Return a copy with only those comparisons of `comparisons` and `serial` for which
        ``wanted`` is true; `lowered` stays."""
        serial = None if self.serial is None else tuple(filter(wanted, self.serial))
        return replace(self, comparisons=tuple(filter(wanted, self.comparisons)), serial=serial)

    def describe(self) -> JsonObject:
        """Return the content of ``parity.json``, as JSON values; infinities stay numbers."""
        content: JsonObject = {
            "format": PARITY.version,
            "settings": dict(self.settings),
            "comparisons": [one.describe() for one in self.comparisons],
        }
        if self.serial is not None:
            content["serial"] = [one.describe() for one in self.serial]
        if self.lowered:
            content["lowered"] = [one.describe() for one in self.lowered]
        return content


def restore_verdicts(record: ParityRecord) -> RunVerdicts:
    """Return the verdicts that the record of ``parity.json`` holds."""
    return RunVerdicts(
        tuple(
            TrialComparison(arms=(c.arm, c.arm), sides=(c.a, c.b), **result_fields(c))
            for c in record.comparisons
        ),
        tuple(map(restore_serial, record.serial)),
        tuple(map(restore_serial, record.lowered)),
        record.settings.describe(),
    )


def restore_serial(record: SerialRecord) -> Serial:
    """Return the comparison of two arms that a record holds."""
    sides = record.backend, record.backend
    return Serial(arms=(record.arm, record.against), sides=sides, **result_fields(record))


def result_fields(record: ComparisonRecord | SerialRecord) -> dict[str, Any]:
    """Return the attributes of a comparison, as keyword arguments of its class, that records of
    both kinds have."""
    content = record.describe()
    tables = {key: content.get(key) or {} for key in ("evidence", "phases", "curve", "outcome")}
    return {
        "seed": record.seed,
        "verdict": record.verdict or "",
        "reason": record.reason,
        "steps": record.steps,
        "first": restore_divergence(record.first_divergence),
        **tables,
    }


def restore_divergence(record: Divergence | None) -> FirstDivergence | None:
    """Return the first divergence that a record holds, in which null is infinity."""
    if record is None:
        return None
    numbers = (record.distance, record.envelope)
    far, width = (math.inf if number is None else float(number) for number in numbers)
    return FirstDivergence(record.step, record.phase, record.tensor or "", far, width, record.after)
