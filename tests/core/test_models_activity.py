"""A comparison that takes long says every few seconds what it is doing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dualml.common.words import Messages
from dualml.interface.cli.compare import print_activity
from dualml.parity.models.activity import LINE_S, Activity, begin_phase, tell_activity
from dualml.parity.patches.trials import Trials


def test_lines_come_while_a_comparison_works_and_end_with_it(tmp_path: Path) -> None:
    told: list[tuple[str, int, float]] = []
    heard = {phase: threading.Event() for phase in ("run", "search", "patch")}

    def tell(activity: Activity, seconds: float) -> None:
        told.append((activity.phase, activity.trials, seconds))
        heard[activity.phase].set()

    with tell_activity(tell, 0.01):
        assert heard["run"].wait(10)
        begin_phase("search")
        assert heard["search"].wait(10)
        trials = Trials(tmp_path, {"sides": {"b": {}}, "path": []}, (), tmp_path / "home")
        trials.prepare({})
        assert heard["patch"].wait(10)
    count = len(told)
    assert [row[2] for row in told] == sorted(row[2] for row in told)
    assert ("patch", 1) in {row[:2] for row in told}
    assert LINE_S <= 5.0
    threading.Event().wait(0.05)
    assert len(told) == count


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("phase", ["run", "search", "patch"])
def test_a_line_goes_to_standard_error(
    phase: str, lang: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_activity(Messages(lang), Activity(phase, 7), 12.4)
    said = capsys.readouterr()
    assert not said.out
    assert "12" in said.err
    assert ("7" in said.err) == (phase == "patch")
