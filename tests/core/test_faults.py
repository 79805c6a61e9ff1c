"""The list of planted faults matches the code and the tests."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAULTS = tomllib.loads((ROOT / "tests/faults/faults.toml").read_text("utf-8"))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_its_place_and_its_test(name: str) -> None:
    fault = FAULTS[name]
    assert (ROOT / fault["file"]).read_text("utf-8").count(fault["find"]) == 1
    file, test = fault["test"].partition("[")[0].split("::")
    assert f"def {test}(" in (ROOT / file).read_text("utf-8")
