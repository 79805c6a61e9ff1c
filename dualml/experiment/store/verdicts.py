"""``parity.json``: every pair of backends compared, and n ranks compared with one."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from dualml.common.errors import UserError
from dualml.experiment.store.jsonfile import Count, JsonFile, Name, Number, Record, Scalar
from dualml.experiment.verdict import Verdict

Pair = Annotated[list[Number | None], Field(min_length=2, max_length=2)]


class ParitySettings(Record):
    """Settings of the parity judgement."""

    draws: Count = 0
    horizon: Count = 0
    margin: Number = 0.0
    floor: Number = 0.0


class PhaseDistances(Record):
    """Relative distances in one phase of the updates."""

    max: Number | None = None
    final: Number | None = None
    envelope: Number | None = None
    ratio: Number | None = None
    step: Count = 0
    tensor: str | None = None


class Divergence(Record):
    """First step outside of the envelope, and last step inside."""

    step: Count
    after: Count
    phase: str
    tensor: str | None = None
    distance: Number | None = None
    envelope: Number | None = None


class Distances(Record):
    """Relative distance of the losses per update, and its envelope."""

    step: list[Count] = []
    loss: list[Number | None] = []
    envelope: list[Number | None] = []

    @model_validator(mode="after")
    def _columns_are_equally_long(self) -> Distances:
        """Raise `UserError` unless the three columns have equal lengths."""
        if len({len(self.step), len(self.loss), len(self.envelope)}) > 1:
            raise UserError("step, loss and envelope are not equally long")
        return self


class Equivalence(Record):
    """Equivalence test of the test accuracies over the seeds."""

    equivalent: bool
    mean: Number
    low: Number
    high: Number
    margin: Number
    seeds: Count


class Evidence(Record):
    """Numbers that support the reason; if a trial is missing, backend → its status."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Scalar]

    margin: Number | None = None
    chaotic_from: Count | None = None
    worst_ratio: Number | None = None
    judged_steps: Count = 0
    equivalence: Equivalence | None = None
    samples_sha256: list[str] = []


class Outcome(Record):
    """Results at the end of training, on both sides."""

    final_loss: Pair
    test_accuracy: Pair
    weights: Number | None = None


class BackendPair(Record):
    """The key of a comparison of two backends in one arm and seed."""

    arm: Name
    seed: Count
    a: Name
    b: Name


class RankPair(Record):
    """The key of a comparison of n ranks (``arm``) with one (``against``) on one backend."""

    arm: Name
    seed: Count
    backend: Name
    against: Name


class JudgedRecord(Record):
    """Result of the comparison of two trajectories; no verdict where they follow different
    rules."""

    verdict: Verdict | None
    reason: str
    evidence: Evidence = Evidence.model_validate({})
    steps: Count = 0
    phases: dict[str, PhaseDistances] = {}
    first_divergence: Divergence | None = None
    curve: Distances = Distances()
    outcome: Outcome | None = None


class ComparisonRecord(JudgedRecord, BackendPair):
    """Comparison of two backends, always with a verdict."""

    verdict: Verdict


class SerialRecord(JudgedRecord, RankPair):
    pass


class ParityRecord(Record):
    """The content of ``parity.json``."""

    settings: ParitySettings = ParitySettings()
    comparisons: list[ComparisonRecord] = []
    serial: list[SerialRecord] = []
    lowered: list[SerialRecord] = []


PARITY = JsonFile("parity.json", ParityRecord, version=1)
