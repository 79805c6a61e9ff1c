"""A search whose process was killed restarts without the candidate that killed it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dualml.backend import backends
from dualml.launch.supervise import GroupResult
from dualml.parity.models import side_processes
from dualml.parity.models.sides import ResolvedSide


@pytest.mark.parametrize(("codes", "found"), [([-11, 0], True), ([-11, -11, -11], False)])
def test_a_search_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: list[int], found: bool
) -> None:
    left = iter(codes)
    seen: list[list[str]] = []

    def supervise(launches: Any, tell: Any, **limits: Any) -> GroupResult:
        fatal = tmp_path / side_processes.FATAL
        seen.append(fatal.read_text().splitlines() if fatal.exists() else [])
        (tmp_path / side_processes.TRYING).write_text(f"number {len(seen)}")
        code = next(left)
        if not code:
            (tmp_path / side_processes.RESULT).write_text(json.dumps({"equal": True}))
        return GroupResult(results={}, code=code, rank=0, reason=None)

    monkeypatch.setattr(side_processes, "supervise", supervise)
    explanation = side_processes.search_causes(
        tmp_path, ResolvedSide("a", backends()["torch"], {}), 10.0
    )
    assert (explanation is not None) == found
    assert seen == [[f"number {n}" for n in range(1, i + 1)] for i in range(len(codes))]
