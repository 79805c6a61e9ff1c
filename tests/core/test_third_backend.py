"""A third backend is one new package: discovered by its entry point, run, compared, explained.

Mistakes planted into a copy of it show that the verdict notices them and names the right phase.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from backend_package import Edit, install, path_with
from command import dualml

pytestmark = pytest.mark.whole

TOML = """
name = "third"
model = "mlp"
title = { en = "Third" }
data = { name = "digits", train = 200, test = 50 }
parity = { draws = 2, horizon = 12, trace = [1, 2, 3, 5, 12] }
[arms.adam]
optimizer = { name = "adam", lr = 0.001, eps = 0.001 }
batch_size = 20
updates = 12
"""
#: Two ranks that share a batch.
RANKS = """
name = "ranks"
model = "softmax"
title = { en = "Ranks" }
data = { name = "digits", train = 40, test = 10 }
[arms.two]
optimizer = { name = "sgd", lr = 0.1 }
batch_size = 20
updates = 2
world_size = 2
"""
#: Mistake → its edit, and how it shows.
FAULTS: dict[str, Edit] = {
    "epsilon": ("optim.py", 'if r.eps_form == "outside"', 'if r.eps_form == "hat"'),
    "labels": ("training.py", "self.recipe.y[batch]", "np.roll(self.recipe.y, 1)[batch]"),
    "sum": ("training.py", "(value, np.float32(share))", "(value, np.float32(len(part)))"),
    "stale": (
        "training.py",
        "        self.update(gradients, step)\n",
        "        if step != 4:\n            self.update(gradients, step)\n",
    ),
}
#: A backend with the required parts only.
MINIMAL: list[Edit] = [
    (
        "backend.py",
        "SingleBackend(Backend, ProcessGroups, PipelineStages)",
        "SingleBackend(Backend, ProcessGroups)",
    ),
    (
        "training.py",
        "SingleTraining(Training, ActivationCapture, GradientAccess)",
        "SingleTraining(Training)",
    ),
]


def folder_with(folder: Path, edits: Sequence[Edit] = ()) -> Path:
    """Return a folder with the backend in ``site``, and an experiment."""
    install(folder, edits)
    (folder / "third.toml").write_text(TOML)
    return folder


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return folder_with(tmp_path)


def run(package: Path, lab: str = "third.toml") -> tuple[int, dict[str, Any]]:
    done = dualml(
        "run",
        package / lab,
        "--backend",
        "single,numpy",
        "--out",
        package / "out",
        "--no-report",
        "--no-find",
        "--json",
        env={"PYTHONPATH": path_with(package / "site")},
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def compared(package: Path) -> tuple[int, dict[str, Any]]:
    code, summary = run(package)
    assert [t["status"] for t in summary["trials"]] == ["ok", "ok"], summary["trials"]
    (comparison,) = summary["parity"]
    return code, comparison


def test_a_correct_backend_is_equal(package: Path) -> None:
    code, comparison = compared(package)
    assert (code, comparison["verdict"]) == (0, "equal")
    assert comparison["phases"]["update"]["max"] > 0, "float32 must differ from float64 somewhere"


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        ("epsilon", {(1, "update")}),
        ("labels", {(1, "data")}),
        ("sum", {(1, "gradient")}),
        ("stale", {(5, "loss"), (5, "forward")}),
    ],
)
def test_a_planted_fault_is_different_and_its_phase_named(
    tmp_path: Path, fault: str, seen: set[tuple[int, str]]
) -> None:
    code, comparison = compared(folder_with(tmp_path, [FAULTS[fault]]))
    assert (code, comparison["verdict"]) == (3, "different")
    first = comparison["first_divergence"]
    assert (first["step"], first["phase"]) in seen


def test_the_minimum_is_enough_for_one_rank(tmp_path: Path) -> None:
    code, comparison = compared(folder_with(tmp_path, MINIMAL))
    assert (code, comparison["verdict"]) == (0, "equal")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("", "this backend cannot take an update apart, which ranks that share a batch need"),
        ("aggregation = { overlap = true }", "this backend cannot send gradients while others are"),
        (
            "aggregation = { strategy = 'native' }",
            "this backend cannot train in parallel by itself",
        ),
        ("split = { cut = ['fc'] }", "this backend cannot train a part of a model"),
    ],
)
def test_what_it_leaves_out_is_unsupported_for_a_reason(
    tmp_path: Path, more: str, reason: str
) -> None:
    package = folder_with(tmp_path, MINIMAL)
    (package / "ranks.toml").write_text(f"{RANKS}{more}\n")
    _, summary = run(package, "ranks.toml")
    (trial,) = (t for t in summary["trials"] if t["backend"] == "single")
    assert trial["status"] == "unsupported"
    assert reason in trial["reason"]
