"""Differences planted in the frameworks are found: the verdict, the side, the phase, the cause."""

from __future__ import annotations

import importlib
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conformance.backends import require
from running import MARK, LaunchedRun

pytestmark = pytest.mark.system
FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def planted() -> Iterator[Any]:
    """The benchmark module, with both frameworks installed."""
    for framework in ("torch", "mindspore"):
        require(framework)
    kept = list(sys.path)
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("planted.run")
    sys.path[:] = kept


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run per arm in which nothing is planted."""
    return tmp_path_factory.mktemp("planted")


@pytest.mark.parametrize(
    ("name", "backend", "detail"),
    [
        ("ignored-class", "mindspore", {"class": 0}),
        pytest.param(
            "unsynchronised",
            "torch",
            {"ranks": [1]},
            marks=pytest.mark.slow("the same way on the other framework, half a minute"),
        ),
    ],
)
def test_what_is_planted_is_found(
    name: str,
    backend: str,
    detail: dict[str, Any],
    planted: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    row = planted.trial(planted.PLANTS[name], backend, folder)
    told = {key: row[key] for key in ("detected", "right_side", "right_phase", "right_cause")}
    assert all(told.values()), row
    assert (row["verdict"], row["finding"], row["step"]) == ("different", "found", 1)
    assert row["score"] >= 0.9
    assert row["detail"] == detail
    assert f"{backend} leaves the rule at update 1" in row["text"]
    left = LaunchedRun.marked_processes(SimpleNamespace(mark=mark))  # type: ignore[arg-type]
    assert [p.cmdline() for p in left] == []
