"""What a list of many runs shows of ``run.json`` and ``parity.json``: to check the whole records
takes longer than to read them."""

from __future__ import annotations

from dualml.store.jsonfile import JsonFile, Number, Record
from dualml.store.manifest import RUN
from dualml.store.verdicts import PARITY


class TrialHead(Record):
    status: str
    backend: str = ""
    wall_s: Number | None = None


class RunHead(Record):
    """Of ``run.json`` what the list of runs shows."""

    name: str
    created: str = ""
    trials: list[TrialHead]


class VerdictHead(Record):
    verdict: str | None = None
    reason: str = ""


class ParityHead(Record):
    """The same of ``parity.json``."""

    comparisons: list[VerdictHead] = []
    serial: list[VerdictHead] = []


HEAD = JsonFile(RUN.name, RunHead, version=RUN.version)
VERDICTS = JsonFile(PARITY.name, ParityHead, version=PARITY.version)
