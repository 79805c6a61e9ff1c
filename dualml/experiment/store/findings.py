"""``findings.json``: where and why backends differ, stored beside the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dualml.common.json_types import JsonMapping
from dualml.experiment.store.jsonfile import Count, JsonFile, Name, Number, Record, Scalar


class TranslatedText(Record):
    """A paragraph in both languages."""

    en: str
    zh: str


class ElementRecord(Record):
    """One element of a tensor: its index, its value and the expected one."""

    index: list[Count]
    found: Number | None
    expected: Number | None


class ElementsRecord(Record):
    """The elements of a tensor that differ most."""

    shape: list[list[Count]]
    share: Number | None
    largest: list[ElementRecord]


class CauseRecord(Record):
    """A possible cause; ``score`` is the share of the difference that it explains, ``detail`` its
    numbers."""

    cause: str
    score: Number | None
    detail: dict[str, Scalar | list[Scalar]] = {}
    fits: list[Count] = []


class NearestPoint(Record):
    """The compared tensor nearest to the limit, where none exceeds it."""

    backend: str
    step: Count
    phase: str
    tensor: str
    ratio: Number | None


class FindingRecord(Record):
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
    elements: ElementsRecord | None = None
    causes: list[CauseRecord] = []
    worst: NearestPoint | None = None
    text: TranslatedText


class FindingsRecord(Record):
    """The content of ``findings.json``."""

    findings: list[FindingRecord]


FINDINGS = JsonFile("findings.json", FindingsRecord, version=1)


def write_findings(folder: Path, findings: Sequence[JsonMapping]) -> None:
    """Write the findings of a run, each with the fields of a `FindingRecord`, in place of earlier
    ones; remove the file if there are none."""
    if findings:
        FINDINGS.write(folder, FINDINGS.make_record({"findings": list(findings)}))
    else:
        FINDINGS.remove(folder)


def read_findings(folder: Path) -> list[FindingRecord]:
    """Read the findings of a run; empty if there is no file. Raise `UserError` if it is damaged."""
    record = FINDINGS.read_if_present(folder)
    return [] if record is None else record.findings
