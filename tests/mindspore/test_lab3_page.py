"""The arms that lab 3's page calls PyTorch-only are those that MindSpore cannot run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dualml.backend import CommOverlap, DeviceReplication, FrameworkDataParallel
from dualml.experiment.load import load
from dualml.parallel.aggregation import NATIVE, REPLICAS
from dualml_ms.parallel.parallel import MindSporeParallel

ROOT = Path(__file__).parents[2]


def lacking() -> set[str]:
    """Return the arms of lab 3 that need a capability which MindSpore's training lacks."""
    lacks = MindSporeParallel.missing_reasons
    needs = {
        CommOverlap: lambda a: a.overlap,
        DeviceReplication: lambda a: a.strategy == REPLICAS,
        FrameworkDataParallel: lambda a: a.strategy == NATIVE,
    }
    arms = load("lab3", arms=["all"]).arms
    return {
        name
        for name, arm in arms.items()
        if any(ability in lacks and asks(arm.aggregation) for ability, asks in needs.items())
    }


@pytest.mark.parametrize(
    ("language", "sentence"),
    [("en", r"^(.*) run on PyTorch only"), ("zh", r"^(.*)只能在 PyTorch 上运行")],
)
def test_the_page_names_exactly_those_arms(language: str, sentence: str) -> None:
    text = (ROOT / f"experiments/lab3.{language}.md").read_text("utf-8")
    found = re.search(sentence, text, re.MULTILINE)
    assert found is not None
    assert set(re.findall(r"`([\w-]+)`", found[1])) == lacking() != set()
