"""The table of methods: the time of an update next to its closed form."""

from __future__ import annotations

from pathlib import Path

import fake_run
import pytest

from dualml.common.words import Messages
from dualml.experiment.store.load import load
from dualml.experiment.store.run import RunData
from dualml.report.methods import MethodResult
from dualml.report.topics.methods import evidence

PLAIN = fake_run.MAIN["adam"]
ARMS = {
    "single": PLAIN,
    "again": {**PLAIN, "method": "recompute"},
    "shared": {**PLAIN, "method": "ddp", "world_size": 2},
    "lower": {**PLAIN, "method": "amp_bf16"},
}


@pytest.fixture
def run(tmp_path: Path) -> RunData:
    """A run: one process has two threads; two processes each have what the trial recorded."""

    def change(content: dict) -> None:
        for trial in content["trials"]:
            trial["step_s"] = [0.01, 0.02, 0.03]
            if trial["arm"] == "shared":
                trial |= {"world_size": 2, "threads": 1}

    folder = fake_run.make_run(
        tmp_path / "run",
        arms=ARMS,
        backends=("torch",),
        seeds=(0,),
        failed=None,
        different=None,
        parity=False,
        change=change,
    )
    return load([folder])


@pytest.mark.parametrize(
    ("arm", "ratio"),
    [("again", 4 / 3), ("shared", 1.0), ("lower", None), ("single", None)],
)
def test_an_update_by_its_passes_and_threads(run: RunData, arm: str, ratio: float | None) -> None:
    found = MethodResult(run, arm, "torch").closed_form_ratio
    assert found == (ratio if ratio is None else pytest.approx(ratio))


def test_threads_of_more_cores_share_the_work(run: RunData) -> None:
    trial = next(t for t in run.trials if t.arm == "shared")
    object.__setattr__(trial, "threads", 2)
    assert MethodResult(run, "shared", "torch").closed_form_ratio == pytest.approx(0.5)


@pytest.mark.parametrize(("lang", "said"), [("en", "closed form"), ("zh", "理论值")])
def test_the_table_shows_it_beneath_the_measured(run: RunData, lang: str, said: str) -> None:
    assert f"{said} 1.33" in str(list(evidence(run, Messages(lang))))
