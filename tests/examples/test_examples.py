"""Every script of examples/ runs and prints correct results."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance.backends import require
from sklearn.datasets import load_digits

from dualml.parallel.partition import DirichletLabels, partition_stats
from dualml.parity.diffs.load import catalogue

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
#: Tolerance of two orders of the same additions in float32.
ROUNDING = 1e-5


def optimizer(rows: list[str]) -> None:
    """Check that optimizers agree, or that the catalogue explains the difference."""
    assert len(rows) > 4
    alike = [float(row.split()[-1]) < ROUNDING for row in rows[1:] if "dualml diffs" not in row]
    assert len(alike) > 1
    assert all(alike)
    named = [row for row in rows if "dualml diffs" in row]
    assert {row.split()[-1] for row in named} <= set(catalogue())


def sampler(rows: list[str]) -> None:
    """Check that every digit comes once in each epoch, in the order that the rule assigns."""
    y = load_digits().target
    table = [[int(word) for word in row.split()] for row in rows[2:6]]
    assert [row[:2] for row in table] == [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert table[0][3:] == table[1][3:]
    assert sum(row[2] for row in table) == 2 * len(y)
    parts = DirichletLabels(alpha=0.3).partition(y, 2, seed=0, epoch=1)
    assert rows[6] == "assigned to nobody: 0, to both: 0"
    assert rows[7].endswith(partition_stats(parts, y).sha256)


def communicator(rows: list[str]) -> None:
    """Check that the mean over the ranks is the gradient of the whole batch."""
    largest = float(rows[0].split()[7].rstrip(","))
    assert largest > 1e-3
    for row in rows[2:]:
        assert float(row.split()[1]) < ROUNDING * largest, row
    assert rows[3].split()[0] == "ring"
    assert int(rows[3].split()[2]) == 2


def loss_guard(rows: list[str]) -> None:
    """Check that a change that only rounds is equal, and that another training is reported by
    name."""
    assert rows[2].split()[-1] == "equal"
    assert rows[3].split()[-1] == "different"
    assert "optimizer.eps_form outside → hat" in rows[4]


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "optimizer": optimizer,
    "sampler": sampler,
    "communicator": communicator,
    "loss_guard": loss_guard,
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_runs_and_is_right(script: Path) -> None:
    topic, _, framework = script.stem.rpartition("_")
    require(framework)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    CHECKS[topic](done.stdout.splitlines())


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_can_fail(check: str) -> None:
    wrong = ["a gradient of 2 numbers up to 1.00, 2 ranks", "", "0 0 9", "ring 1e-3 2", *[""] * 9]
    with pytest.raises((AssertionError, ValueError, IndexError)):
        CHECKS[check](wrong)
