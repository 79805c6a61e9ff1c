"""``findings.json``: where and why backends differ, kept beside the verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dualml.store.jsonfile import Count, JsonFile, Name, Number, Record, Scalar


class Text(Record):
    """The paragraph."""

    en: str
    zh: str


class Element(Record):
    index: list[Count]
    found: Number | None
    expected: Number | None


class Elements(Record):
    """The elements of a tensor that are farthest off."""

    shape: list[list[Count]]
    share: Number | None
    largest: list[Element]


class Cause(Record):
    """``score``: share of the difference explained; ``detail``: the numbers of the cause."""

    cause: str
    score: Number | None
    detail: dict[str, Scalar | list[Scalar]] = {}


class Nearest(Record):
    """The point nearest to the limit, where none is beyond it."""

    backend: str
    step: Count
    phase: str
    tensor: str
    ratio: Number | None


class Finding(Record):
    """One difference, or why it could not be looked at; see docs/run-folder.md."""

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
    findings: list[Finding]


FINDINGS = JsonFile("findings.json", FindingsRecord, version=1)


def write_findings(folder: Path, findings: Sequence[Mapping[str, Any]]) -> None:
    """Keep the findings of a run; nothing is left of earlier ones."""
    if findings:
        FINDINGS.write(folder, FINDINGS.made({"findings": list(findings)}))
    else:
        FINDINGS.remove(folder)


def read_findings(folder: Path) -> list[Finding]:
    """The findings of a run, none where there is no file."""
    record = FINDINGS.read_if_there(folder)
    return [] if record is None else record.findings
