"""The pages on the run folder name every key of its main files; the site's reference lists all
keys."""

from __future__ import annotations

import re

import pytest
from command import DOCS

from dualml.experiment.store.best import BestRecord
from dualml.experiment.store.costs import CollectiveRow, CollectivesRecord, CostRecord
from dualml.experiment.store.envelope import EnvelopeRecord
from dualml.experiment.store.findings import FindingRecord, FindingsRecord
from dualml.experiment.store.jsonfile import Record
from dualml.experiment.store.manifest import DataRecord, RunRecord, TrialRecord
from dualml.experiment.store.plan_record import PlanRecord
from dualml.experiment.store.sessions import Announcement, RankFailure
from dualml.experiment.store.trial import TrialJob
from dualml.experiment.store.usage import DeviceSample, Sample
from dualml.experiment.store.verdicts import (
    ComparisonRecord,
    ParityRecord,
    ParitySettings,
    SerialRecord,
)

MAIN = (
    RunRecord,
    DataRecord,
    TrialRecord,
    TrialJob,
    PlanRecord,
    BestRecord,
    EnvelopeRecord,
    ParityRecord,
    ParitySettings,
    ComparisonRecord,
    SerialRecord,
    FindingsRecord,
    FindingRecord,
    CollectivesRecord,
    CollectiveRow,
    CostRecord,
    Announcement,
    RankFailure,
    Sample,
    DeviceSample,
)


@pytest.mark.parametrize("record", MAIN)
@pytest.mark.parametrize("page", ["run-folder.md", "run-folder.zh.md"])
def test_every_key_is_named(record: type[Record], page: str) -> None:
    words = set(re.findall(r"[A-Za-z_]\w*", (DOCS / page).read_text("utf-8"), re.A))
    assert set(record.model_fields) - words == set()
