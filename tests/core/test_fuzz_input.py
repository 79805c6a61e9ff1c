"""Thousands of fuzzed inputs in separate processes: each gives a result or a one-line error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
#: Entry → number of cases by default, and with ``--slow``.
CASES = {
    "experiments": (80, 4500),
    "overrides": (80, 3500),
    "run_folders": (80, 5000),
    "archives": (60, 2000),
    "model_traces": (60, 2500),
    "checkpoints": (60, 2500),
    "idx_files": (40, 1500),
    "grids": (40, 1000),
    "options": (40, 1500),
}
MOST_S, MOST_MB = 10.0, 1000


def figures(entry: str, cases: int, seed: int) -> dict[str, object]:
    """Run `fuzz.py` for an entry and return its figures."""
    done = subprocess.run(
        [sys.executable, str(HERE / "fuzz.py"), entry, str(cases), str(seed)],
        capture_output=True,
        text=True,
        timeout=1700,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def check(entry: str, cases: int, seed: int) -> None:
    measured = figures(entry, cases, seed)
    print(json.dumps(measured))
    assert measured["faults"] == {}
    assert measured["cases"] == cases
    assert float(str(measured["longest_s"])) < MOST_S
    assert int(str(measured["peak_mb"])) < MOST_MB


@pytest.mark.whole
@pytest.mark.parametrize("entry", CASES)
def test_whatever_is_read_ends_in_a_result_or_in_one_line(entry: str) -> None:
    check(entry, CASES[entry][0], seed=0)


@pytest.mark.slow("24,000 cases more of the same kind, a quarter of an hour")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("entry", CASES)
def test_the_same_twenty_thousand_times(entry: str) -> None:
    check(entry, CASES[entry][1], seed=1)


def test_a_traceback_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    import fuzz

    def broken(draw: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setitem(fuzz.ENTRIES, "broken", broken)
    measured = fuzz.run("broken", 5)
    assert measured["cases"] >= 1
    assert list(measured["faults"]) == ["? TypeError"]
