"""Messages staged in host memory: the copies at both ends, and the results of each primitive."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dualml.launch.ranks import run_ranks  # noqa: E402

HERE = Path(__file__).resolve().parent
#: Bytes that a rank sends to the other one and receives from it: before fc3 there are 12 numbers of
#: 4 bytes for each of 8 + 7 samples.
BYTES = 12 * 4 * (8 + 7)


def on_two(function: str, argument: Any) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        path = os.environ.get("PYTHONPATH")
        folders = [str(HERE), str(HERE.parent), *([path] if path else [])]
        patch.setenv("PYTHONPATH", os.pathsep.join(folders))
        return run_ranks("torch", 2, f"staged_cases:{function}", argument, timeout=30, limit=120)


def test_a_pipeline_copies_what_it_sends_and_computes_the_same() -> None:
    for found in on_two("train", False):
        assert found["apart"] < 1e-6
        assert found["moved"] == [BYTES, BYTES]
        assert found["how"].endswith("gloo, by host memory")


def test_messages_that_do_not_reach_the_device_are_seen() -> None:
    assert all(found["apart"] > 1e-3 for found in on_two("train", True))


def test_every_primitive_gives_the_same() -> None:
    for found in on_two("collectives", None):
        assert found["staged"] == found["plain"]
        assert found["device"] == "cpu"
