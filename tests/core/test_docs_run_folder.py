"""The pages on the run folder name every key of its main files; the site's reference lists all
keys."""

from __future__ import annotations

import re

import pytest
from command import DOCS

from dualml.store.best import Best
from dualml.store.costs import CollectiveRow, CollectivesRecord, CostRecord
from dualml.store.envelope import EnvelopeRecord
from dualml.store.findings import Finding, FindingsRecord
from dualml.store.jsonfile import Record
from dualml.store.manifest import DataRecord, RunRecord, TrialRecord
from dualml.store.planned import PlanRecord
from dualml.store.sessions import Announcement, Failure
from dualml.store.trial import Job
from dualml.store.usage import DeviceSample, Sample
from dualml.store.verdicts import ComparisonRecord, ParityRecord, SerialRecord, Settings

MAIN = (
    RunRecord, DataRecord, TrialRecord, Job, PlanRecord, Best, EnvelopeRecord, ParityRecord,
    Settings, ComparisonRecord, SerialRecord, FindingsRecord, Finding, CollectivesRecord,
    CollectiveRow, CostRecord, Announcement, Failure, Sample, DeviceSample,
)  # fmt: skip


@pytest.mark.parametrize("record", MAIN)
@pytest.mark.parametrize("page", ["run-folder.md", "run-folder.zh.md"])
def test_every_key_is_named(record: type[Record], page: str) -> None:
    words = set(re.findall(r"[A-Za-z_]\w*", (DOCS / page).read_text("utf-8"), re.A))
    assert set(record.model_fields) - words == set()
