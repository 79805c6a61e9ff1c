"""Partial schemas of ``run.json`` and ``parity.json`` for the list of runs: checking the complete
records takes longer than reading them."""

from __future__ import annotations

from dualml.experiment.store.jsonfile import JsonFile, Number, Record
from dualml.experiment.store.manifest import RUN
from dualml.experiment.store.verdicts import PARITY


class TrialSummaryRecord(Record):
    """The fields of a trial that the list of runs shows."""

    status: str
    backend: str = ""
    wall_s: Number | None = None


class RunSummaryRecord(Record):
    """The fields of ``run.json`` that the list of runs shows."""

    name: str
    created: str = ""
    trials: list[TrialSummaryRecord]


class VerdictSummaryRecord(Record):
    """The fields of a comparison that the list of runs shows."""

    verdict: str | None = None
    reason: str = ""


class ParitySummaryRecord(Record):
    """The fields of ``parity.json`` that the list of runs shows."""

    comparisons: list[VerdictSummaryRecord] = []
    serial: list[VerdictSummaryRecord] = []


HEAD = JsonFile(RUN.name, RunSummaryRecord, version=RUN.version)
VERDICTS = JsonFile(PARITY.name, ParitySummaryRecord, version=PARITY.version)
