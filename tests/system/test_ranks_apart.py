"""Separate training, planted in every lab: the trial fails and reports that its ranks diverged.

The plants are in `apart/sitecustomize.py`, which every process of such a run imports first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.backends import require
from running import LaunchedRun, dualml, settings, trials

pytestmark = [pytest.mark.system, pytest.mark.timeout(400)]

PLANTS = Path(__file__).parent / "apart"
BACKENDS = ["numpy", "torch", "mindspore"]
SOME = "the reference runs every case; a framework tries one of each kind of splitting"
#: (lab, plant) → its arms, and what the failure names: weights that differ, or bytes.
CASES: dict[tuple[str, str], tuple[list[str], str]] = {
    ("lab2", "nothing"): (["all-reduce-n2", "ring-n2"], "after update 1 the 2 ranks"),
    ("lab2", "a-part"): (["ring-n2"], "after update 1 the 2 ranks"),
    ("lab2", "short"): (["all-reduce-n2", "ring-n2"], "bytes between 2 ranks, and"),
    ("lab2", "later"): (["ring-n2"], "after update 12 the 2 ranks"),
    ("lab2", "averages"): (["local-sgd-4"], "after update 4 the 2 ranks"),
    ("lab2", "server"): (["server-async"], "bytes between 2 ranks, and"),
    ("lab3", "nothing"): (["nodes-n2", "random-partition"], "after update 1 the 2 ranks"),
    ("lab4", "slices"): (["inside"], "after update"),
    ("lab4", "stages"): (["by-layer"], "bytes between 2 ranks, and"),
    ("memory", "shards"): (["zero2-n2", "zero3-n2"], "bytes between 2 ranks, and"),
    ("rnn_ps", "slices"): (["two-trainers"], "after update 1 the 3 ranks"),
    ("rnn_ps", "stages"): (["server"], "bytes between 2 ranks, and"),
}
#: Cases that the frameworks run without --slow.
CHOSEN = [("lab2", "a-part"), ("lab4", "slices"), ("memory", "shards")]
#: Cases that engines run.
DRIVEN = {
    "torch": [
        ("methods", "engine-torch", "ddp", "after update 1 the 2 ranks"),
        ("lab3", "engine-torch", "native-n2", "after update 1 the 2 ranks"),
        ("lab4", "calls", "rpc-2", "bytes between 2 ranks, and"),
        ("rnn_ps", "calls", "rpc", "bytes between 2 ranks, and"),
    ],
    "mindspore": [
        ("methods", "engine-mindspore", "ms-reducer", "after update 1 the 2 ranks"),
        ("lab3", "engine-mindspore", "native-n2", "after update 1 the 2 ranks"),
    ],
}
FEW = {
    "data__train": 320,
    "data__test": 40,
    "evaluation__train_samples": 40,
    "parity__draws": 1,
    "parity__horizon": 2,
    "parity__trace": [1, 2],
    "evaluation__early": [],
}
UPDATES = 12
BY_EPOCHS = ["random-partition"]


def run(lab: str, plant: str, backend: str, arms: list[str], folder: Path) -> Path:
    """Run some quick arms with a plant and return the run folder."""
    require(backend)
    folder.mkdir(exist_ok=True)
    out, path = folder / "out", os.environ.get("PYTHONPATH")
    few = FEW | ({"data__validation": 40} if lab == "methods" else {})
    for arm in arms:
        if arm not in BY_EPOCHS:
            few[f"arms__{arm.removesuffix('-n2')}__updates"] = UPDATES
    words = ["run", lab, "--quick", "--backend", backend, "--seed", 0, "--out", out]
    words += [word for arm in arms for word in ("--arm", arm)]
    environ = {
        "PYTHONPATH": os.pathsep.join([str(PLANTS), *([path] if path else [])]),
        "DUALML_TEST_APART": plant,
    }
    with LaunchedRun(dualml(*words, *settings(**few)), folder, environ) as started:
        code = started.end(380)
        assert code == (1 if plant else 0), started.text()
    return out


def check(out: Path, arms: list[str], said: str) -> None:
    found = trials(out)
    assert set(arms) <= set(found)
    for arm in arms:
        assert found[arm]["status"] == "failed", found[arm]
        reason = found[arm]["reason"]
        assert "ranks trained apart: arm " in reason, reason
        assert said in reason
        assert "see that every parameter takes part" in reason
    page = (out / "report.md").read_text()
    assert "ranks trained apart" in page
    assert "They have no verdict" in page or "It has no verdict" in page


def all_cases() -> Iterator[Any]:
    """Yield every case on every backend; most cases of the frameworks are marked slow."""
    for backend in BACKENDS:
        for lab, plant in CASES:
            slow = backend != "numpy" and (lab, plant) not in CHOSEN
            marks = [pytest.mark.slow(SOME)] if slow else []
            yield pytest.param(backend, lab, plant, marks=marks, id=f"{backend}-{lab}-{plant}")


@pytest.mark.parametrize(("backend", "lab", "plant"), list(all_cases()))
def test_separate_training_fails(backend: str, lab: str, plant: str, tmp_path: Path) -> None:
    arms, said = CASES[lab, plant]
    check(run(lab, plant, backend, arms, tmp_path), arms, said)


@pytest.mark.parametrize(
    ("backend", "case"),
    [pytest.param(b, case, id=f"{b}-{case[0]}-{case[2]}") for b in DRIVEN for case in DRIVEN[b]],
)
def test_separate_training_by_an_engine_fails(
    backend: str, case: tuple[str, str, str, str], tmp_path: Path
) -> None:
    lab, plant, arm, said = case
    check(run(lab, plant, backend, [arm], tmp_path), [arm], said)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_without_a_plant_the_record_says_what_was_seen(backend: str, tmp_path: Path) -> None:
    arms = ["all-reduce-n2", "local-sgd-4", "server-async"]
    out = run("lab2", "", backend, arms, tmp_path)
    found = {arm: trial["agreement"] for arm, trial in trials(out).items()}
    assert {arm: seen["promise"] for arm, seen in found.items()} == {
        "all-reduce-n2": "replicas",
        "local-sgd-4": "averaged",
        "server-async": "served",
    }
    assert [check["update"] for check in found["all-reduce-n2"]["checks"]] == [1, UPDATES]
    assert [check["update"] for check in found["local-sgd-4"]["checks"]] == [4, UPDATES]
    for arm, seen in found.items():
        assert all(check["apart"] <= check["limit"] < 1e-3 for check in seen["checks"]), arm
        assert len({check["sha256"] for check in seen["checks"]}) == 2
        assert 0.98 < seen["sent_bytes"] / seen["closed_bytes"] < 1.1, arm
    content = json.loads((out / "run.json").read_text())
    assert all("agreement" in trial for trial in content["trials"])
    assert "were seen to train one model" in (out / "report.md").read_text()
