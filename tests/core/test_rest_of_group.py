"""The remaining trials of a group whose ranks cannot be restarted after one of them failed."""

from __future__ import annotations

from typing import Any

import pytest

from dualml.runner.session import trials


def test_what_a_failure_leaves_of_a_group_goes_on_with_resume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = ("first", "mindspore", 0), ("second", "mindspore", 0)
    asked: list[tuple[Any, str]] = []

    class FakeLaunch:
        size = 2

        def __init__(self, *_: Any) -> None: ...

        def run_group(self, keys: Any, status: str) -> int:
            asked.append((list(keys), status))
            return 1

    class Folder:
        def pending(self) -> list[Any]:
            return []

    monkeypatch.setattr(trials, "RankGroupLaunch", FakeLaunch)
    monkeypatch.setattr(trials, "group_trials", lambda pending, plan: [[first, second]])
    trials.run_trials(Folder(), None, {}, {}, lambda trial, event: None)  # type: ignore[arg-type]
    assert asked == [([first, second], "unsupported"), ([second], "interrupted")]
