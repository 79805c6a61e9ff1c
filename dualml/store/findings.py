"""``findings.json``: where and why backends differ, stored beside the verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dualml.store.jsonfile import Count, JsonFile, Name, Number, Record, Scalar


class Text(Record):
    """A paragraph in both languages."""

    en: str
    zh: str


class Element(Record):
    """One element of a tensor: its index, its value and the expected one."""

    index: list[Count]
    found: Number | None
    expected: Number | None


class Elements(Record):
    """The elements of a tensor that differ most."""

    shape: list[list[Count]]
    share: Number | None
    largest: list[Element]


class Cause(Record):
    """A possible cause; ``score`` is the share of the difference that it explains, ``detail`` its
    numbers."""

    cause: str
    score: Number | None
    detail: dict[str, Scalar | list[Scalar]] = {}


class Nearest(Record):
    """The compared tensor nearest to the limit, where none exceeds it."""

    backend: str
    step: Count
    phase: str
    tensor: str
    ratio: Number | None


class Finding(Record):
    """One difference, or the reason why it could not be analysed; see docs/run-folder.md."""

    arm: Name
    seed: Count
    a: Name
    b: Name
    status: str
    reason: str | None = None
    backend: Name | None = None
    guilty: list[str] = []
    steps: list[Count] = []
    step: Count = 0
    first_steps: list[Count] = []
    phase: str = ""
    tensor: str = ""
    layer: str | None = None
    tensors: list[str] = []
    of_tensors: Count = 0
    ranks: list[Count] = []
    world_size: Count = 1
    owners: list[Count] | None = None
    collective: str | None = None
    distance: Number | None = None
    envelope: Number | None = None
    margin: Number | None = None
    others: dict[str, Number | None] = {}
    elements: Elements | None = None
    causes: list[Cause] = []
    worst: Nearest | None = None
    text: Text


class FindingsRecord(Record):
    """The content of ``findings.json``."""

    findings: list[Finding]


FINDINGS = JsonFile("findings.json", FindingsRecord, version=1)


def write_findings(folder: Path, findings: Sequence[Mapping[str, Any]]) -> None:
    """Write the findings of a run in place of earlier ones."""
    if findings:
        FINDINGS.write(folder, FINDINGS.made({"findings": list(findings)}))
    else:
        FINDINGS.remove(folder)


def read_findings(folder: Path) -> list[Finding]:
    """Read the findings of a run; empty if there is no file."""
    record = FINDINGS.read_if_there(folder)
    return [] if record is None else record.findings
