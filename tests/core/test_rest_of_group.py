"""The remaining trials of a group whose ranks cannot be restarted after one of them failed."""

from __future__ import annotations

from typing import Any

import pytest

from dualml.runner.session import trials


@pytest.mark.parametrize("starts", [1, 0])
def test_what_a_failure_leaves_of_a_group_goes_on_with_resume(
    monkeypatch: pytest.MonkeyPatch, starts: int
) -> None:
    first, second = ("first", "mindspore", 0), ("second", "mindspore", 0)
    refused: list[tuple[Any, str]] = []

    class FakeGroup:
        """A group that ends with its first trial, and can be started ``starts`` times."""

        size = 2

        def __init__(self, frozen: Any, environs: Any, records: Any, number: int, *more: Any):
            self.number, self.keys = number, records.keys
            records.trial_index = 1

        def unsupported_reason(self) -> str | None:
            return "served once" if self.number >= starts else None

    def note_refusal(self: trials.TrialRecords, status: str, why: str) -> None:
        refused.append((list(self.keys), status))

    class Frozen:
        plan = None

        class folder:
            @staticmethod
            def pending() -> list[Any]:
                return []

    monkeypatch.setattr(trials, "RankGroup", FakeGroup)
    monkeypatch.setattr(trials.TrialRecords, "refuse", note_refusal)
    monkeypatch.setattr(trials, "group_trials", lambda pending, plan: [[first, second]])
    frozen: Any = Frozen()
    begun = [group.keys for group in trials.iterate_groups(frozen, {}, lambda trial, event: None)]
    assert begun == [[first, second]] * starts
    left = [first, second][starts:]
    assert refused == [(left, "interrupted" if starts else "unsupported")]
