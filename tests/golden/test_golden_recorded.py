"""Run folders that version 0.1.0 wrote with both frameworks stay readable; and the check can
fail."""

from __future__ import annotations

import json
from pathlib import Path

import golden_recorded
import pytest
from golden_check import NAMES

RECORDED = [name.partition("/")[2] for name in NAMES if name.startswith("recorded/")]


@pytest.mark.parametrize("name", RECORDED)
def test_verdicts_and_pages_are_made_from_what_was_recorded(name: str) -> None:
    assert golden_recorded.check(name) == []


def test_another_verdict_and_a_damaged_file_are_seen(tmp_path: Path) -> None:
    out = golden_recorded.unpacked("lab1", tmp_path)
    parity = json.loads((out / "parity.json").read_text("utf-8"))
    parity["comparisons"][0]["verdict"] = "different"
    assert any("verdict" in line for line in golden_recorded.verdicts(out, parity))
    (out / "parity.json").write_bytes(b"nothing")
    assert golden_recorded.unreadable(out)
