"""Partial schemas of ``run.json`` and ``parity.json`` for the list of runs: checking the complete
records takes longer than reading them."""

from __future__ import annotations

from dualml.store.jsonfile import JsonFile, Number, Record
from dualml.store.manifest import RUN
from dualml.store.verdicts import PARITY


class TrialHead(Record):
    """The fields of a trial that the list of runs shows."""

    status: str
    backend: str = ""
    wall_s: Number | None = None


class RunHead(Record):
    """The fields of ``run.json`` that the list of runs shows."""

    name: str
    created: str = ""
    trials: list[TrialHead]


class VerdictHead(Record):
    """The fields of a comparison that the list of runs shows."""

    verdict: str | None = None
    reason: str = ""


class ParityHead(Record):
    """The fields of ``parity.json`` that the list of runs shows."""

    comparisons: list[VerdictHead] = []
    serial: list[VerdictHead] = []


HEAD = JsonFile(RUN.name, RunHead, version=RUN.version)
VERDICTS = JsonFile(PARITY.name, ParityHead, version=PARITY.version)
