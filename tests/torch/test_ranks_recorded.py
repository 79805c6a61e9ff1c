"""Two ranks record, and their traces are compared with those of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dualml.common.errors import UserError
from dualml.parity import ModelComparison, compare_traces

if "torch" in os.environ.get("DUALML_REQUIRE", "").split(","):
    import torch
else:
    torch = pytest.importorskip("torch")
from dualml_torch.record import Recorder

pytestmark = pytest.mark.system

HERE = Path(__file__).resolve().parent
#: Seconds for all cases together.
LIMIT_S = 280


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which two processes have recorded all cases."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, str(HERE / "rank_cases.py")]
    logs = [(folder / f"rank{rank}.log").open("wb") for rank in range(2)]
    ranks = [
        subprocess.Popen([*command, str(rank), str(folder)], stdout=log, stderr=log)
        for rank, log in enumerate(logs)
    ]
    try:
        codes = [rank.wait(LIMIT_S) for rank in ranks]
        texts = [(folder / f"rank{rank}.log").read_text("utf-8") for rank in range(2)]
        assert codes == [0, 0], "\n".join(texts)
        yield folder
    finally:
        for rank, log in zip(ranks, logs, strict=True):
            rank.kill()
            rank.wait(10)
            log.close()


def compare(traces: Path, case: str) -> ModelComparison:
    return compare_traces(traces / f"{case}-one", traces / case)


@pytest.mark.parametrize(
    "case",
    ["data_parallel", "fully_sharded", "zero", "tensor_parallel", "pipeline", "accumulated"],
)
def test_right_training_on_two_ranks_equals_one_process(traces: Path, case: str) -> None:
    found = compare(traces, case)
    assert found.equal, found.paragraph()
    assert found.steps == 2
    counts = {phase: row["arrays"] for phase, row in found.phases.items()}
    assert counts["gradient"] == counts["update"] == 8  # every parameter, in both steps
    assert counts["loss"] == 2
    assert counts["forward"] >= 4


@pytest.mark.parametrize(
    ("case", "cause", "phase"),
    [
        ("mean_of_means", "mean_of_means", "gradient"),
        ("sharded_mean_of_means", "mean_of_means", "gradient"),
        ("never_synchronised", "not_reduced", "gradient"),
        ("local_norm", "clipped_by_own_norm", "gradient"),
        ("schedule_per_process", "stepped_per_process", "update"),
        ("batch_statistics", "statistics_per_rank", "forward"),
        ("summed", "summed_over_ranks", "gradient"),
    ],
)
def test_a_known_mistake_is_named_first(traces: Path, case: str, cause: str, phase: str) -> None:
    found = compare(traces, case)
    assert found.verdict == "different", found.paragraph()
    assert found.first is not None
    assert found.first.phase == phase
    keys = [note.key for note in found.notes if note.key.startswith("ranks_")]
    assert keys[0] == f"ranks_{cause}", found.paragraph()


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("no_epoch", r"In step 2, torch B trains on its batch of step 1 again.*set_epoch"),
        ("seed_per_rank", r"Rank 0 of torch B begins with other weights than rank 1"),
    ],
)
def test_a_refusal_names_the_mistake(traces: Path, case: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compare(traces, case)


def test_a_rank_that_stops_is_named(traces: Path) -> None:
    text = (traces / "fewer_steps" / "error.txt").read_text("utf-8")
    assert "rank 1 of 2 has recorded 1 of 2 steps, and nothing more came within 1 s" in text
    with pytest.raises(UserError, match="rank 1 recorded 1, rank 0 recorded 2"):
        compare_traces(traces / "fewer_steps", traces / "fewer_steps")


def test_a_buffer_may_be_made_by_the_first_step(tmp_path: Path) -> None:
    class Lazy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not hasattr(self, "table"):
                self.register_buffer("table", torch.ones(2))
            return self.fc(x * self.table)

    model = Lazy()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    recorder = Recorder(model, tmp_path, optimizer, steps=2)

    def update(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss = model(x).mean()
        loss.backward()
        recorder.saw(loss=loss)
        optimizer.step()

    for _ in range(2):
        recorder.run(update, torch.ones(3, 2))
    assert recorder.trace.steps == 2


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 1)
    with pytest.raises(UserError, match="init_process_group"):
        Recorder(model, tmp_path, group=True)
    recorder = Recorder(model, tmp_path, steps=3)
    with (
        pytest.raises(UserError, match="being recorded already"),
        recorder.step(),
        recorder.step(),
    ):
        pass
    recorder = Recorder(model, tmp_path, steps=3)
    with recorder.step():
        pass
    model.weight = torch.nn.Parameter(torch.ones(1, 3))
    changed = r"weight was \(1, 2\) .* and is \(1, 3\) now"
    with pytest.raises(UserError, match=changed), recorder.step():
        pass
    later = Recorder(model, tmp_path, steps=3)
    with later.step():
        pass
    model.weight = torch.nn.Parameter(torch.ones(1, 2))
    claimed = "a later Recorder writes its trace to the same folder"
    with pytest.raises(UserError, match=claimed), recorder.step():
        pass
