"""Wherever its state and weights are offloaded, a model trains as it does without offloading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import offload, split, zero
from conformance.backends import create, tolerance
from conformance.group_results import GroupResults, make_group_results
from conformance.test_split import assert_same
from conformance.test_split_precision import assert_alike, assert_near
from conformance.test_training import small_trial
from conformance.test_zero import SPLITTING, case, without_trace_loss

from dualml.backend.reference.communicator import run_threads
from dualml.common.errors import TrialError
from dualml.parallel.offload.disk import DiskRecords
from dualml.parallel.offload.model import OffloadedModel
from dualml.parallel.offload.shard import OffloadedShard
from dualml.runner.worker.trial import TrialRunner

# The first test of a group waits for all that its ranks have to find out.
pytestmark = pytest.mark.timeout(900)

PLACES = {
    "host": {"state": "host"},
    "disk": {"state": "disk"},
    "slow disk": {"state": "disk", "overlap": False},
    "all host": {"state": "host", "weights": "host"},
    "all disk": {"state": "disk", "weights": "disk"},
    "all slow disk": {"state": "disk", "weights": "disk", "overlap": False},
    "host, weights disk": {"state": "host", "weights": "disk"},
    "weights disk": {"weights": "disk"},
}


def offload_case(where: str, ranks: int, stage: int, *more: str, **options: Any) -> dict[str, Any]:
    """Return a case with the offload settings of one place."""
    return {**case(ranks, stage, *more, **options), "offload": PLACES[where]}


def stages_of(where: str) -> tuple[int, ...]:
    """Return the ZeRO stages that can offload to this place."""
    return (3,) if "weights" in PLACES[where] else (1, 2, 3)


VARIANTS = ("sgd-momentum", "adamw", "adagrad-all", "rmsprop-all")
CASES = {
    **{f"alone {t}": offload_case(t, 1, stages_of(t)[0]) for t in PLACES},
    **{
        f"{t}, stage {s} of {n}": offload_case(t, n, s)
        for t in PLACES
        for s in stages_of(t)
        for n in (2, 3)
    },
    **{f"alone {v}": offload_case("all disk", 1, 3, "deep", v) for v in VARIANTS},
    "alone chunks": offload_case("all disk", 1, 3, "deep", chunk=2),
    "alone one unit": offload_case("all disk", 1, 3, "vit", bucket_bytes=2**20),
    "alone layers": offload_case("all disk", 1, 3, "vit", bucket_bytes=0),
    "alone text": offload_case("all disk", 1, 3, "rnn", sizes=[6, 5]),
    "alone masks": offload_case("all host", 1, 3, "dropout", "sgd", sizes=[6, 5], chunk=2),
    "alone gpt": offload_case("disk", 1, 1, "gpt", "sgd", sizes=[6, 5], bucket_bytes=0),
    "alone llama": {**offload_case("all disk", 1, 3, "llama", sizes=[6, 5]), "recompute": "full"},
    "alone rates": {**offload_case("disk", 1, 1, "deep"), "rates": {"kind": "cosine", "warmup": 2}},
    "chunks of 3": offload_case("all disk", 3, 3, "deep", chunk=2),
    "native": offload_case("all disk", 2, 3, "deep", native=True),
}
LOWER = {
    f"{kind} of {n}": {
        **offload_case("all disk", n, 3, model, sizes=[8, 7]),
        "precision": precision,
    }
    for n in (1, 2)
    for kind, precision, model in [("bf16", ("bf16",), "vit"), ("fp16", ("fp16", 256.0), "lenet")]
}
#: See `conformance.test_zero.OVERFLOWING`.
OVERFLOWING = {
    f"overflow of {n}": {
        **offload_case("all disk", n, 3, sizes=[8] * 9),
        "enlarged": 100.0,
        "precision": ("fp16", "dynamic"),
        "rates": {"kind": "cosine", "warmup": 3},
    }
    for n in (1, 2)
}
KNOWN = {**CASES, **LOWER, **OVERFLOWING}
#: Cases for a framework that compiles every unit of every case and every chunk size.
FEW = {
    "alone host": [4, 1],
    "alone disk": [4, 4],
    "alone all disk": [4, 4],
    "alone chunks": [6],
    "alone weights disk": [4],
    "alone rmsprop-all": [4, 4],
    "alone rates": [4, 4],
    "host, stage 1 of 2": [8, 4],
    "disk, stage 2 of 2": [8],
    "all disk, stage 3 of 2": [8],
    "overflow of 1": [8] * 9,
    "fp16 of 1": [8],
}


def cases_of(name: str) -> dict[str, dict[str, Any]]:
    """Return the cases that a backend runs."""
    return split.cases_of(name, KNOWN, FEW)


def all_cases(among: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, title) for name in SPLITTING for title in cases_of(name) if title in among]


@pytest.fixture(scope="module")
def group_results(tmp_path_factory: pytest.TempPathFactory) -> GroupResults:
    return make_group_results(tmp_path_factory, cases_of, "conformance.offload:train", timeout=180)


@pytest.mark.parametrize(("name", "title"), all_cases(CASES))
def test_what_is_kept_elsewhere_is_trained_as_if_it_were_not(
    group_results: GroupResults, name: str, title: str
) -> None:
    """Losses, gradients, activations, weights and optimizer state are right on every rank."""
    ranks = group_results(name, title)
    whole = without_trace_loss(zero.expected(cases_of(name)[title]))
    for rank in ranks:
        assert_same(without_trace_loss(rank["arrays"]), whole, tolerance(create(name)))
    assert_alike([rank["arrays"] for rank in ranks])


@pytest.mark.parametrize(("name", "title"), all_cases(LOWER))
def test_so_it_is_in_a_lower_precision(group_results: GroupResults, name: str, title: str) -> None:
    asked, ranks = cases_of(name)[title], group_results(name, title)
    assert_near(
        without_trace_loss(ranks[0]["arrays"]), without_trace_loss(zero.expected(asked)), asked
    )
    assert_alike([rank["arrays"] for rank in ranks])


@pytest.mark.parametrize(("name", "title"), all_cases(OVERFLOWING))
def test_a_skipped_update_leaves_all_as_it_is(
    group_results: GroupResults, name: str, title: str
) -> None:
    ranks = [rank["arrays"] for rank in group_results(name, title)]
    assert_alike(ranks)
    skipped = float(ranks[0]["state loss_scale skipped"])
    assert 1 <= skipped < len(KNOWN[title]["sizes"]) - 1
    start = zero.recipe_of(KNOWN[title]).weights
    assert any(not np.array_equal(ranks[0][f"weight {n}"], w) for n, w in start.items())


@pytest.mark.parametrize(("name", "title"), all_cases(CASES))
def test_what_is_kept_where_is_the_closed_form(
    group_results: GroupResults, name: str, title: str
) -> None:
    """Memory on the device, in host memory and on disk equals the closed form to the byte, with
    padding."""
    asked, width = cases_of(name)[title], np.dtype(create(name).dtype).itemsize
    sharding, n = zero.sharding_of(asked), asked["ranks"]
    elsewhere, _, _ = offload.forms(asked, n)
    form, _ = zero.forms(asked, n)
    away = asked["offload"]
    for rank in group_results(name, title):
        memory = {part: b for part, b in rank["memory"].items() if part != "activations"}
        assert memory == {
            "weights": 0 if "weights" in away else width * form.weights,
            "gradients": width * form.gradients,
            "state": 0 if "state" in away else width * form.state,
            "buckets": width * (form.gathered + elsewhere.device_buffer),
        }, sharding
        assert list(rank["elsewhere"]) == [width * elsewhere.host, width * elsewhere.disk]


@pytest.mark.parametrize(("name", "title"), all_cases({**CASES, **OVERFLOWING}))
def test_what_is_moved_is_the_closed_form(
    group_results: GroupResults, name: str, title: str
) -> None:
    """Traffic equals the closed form: evaluations do not count, and skipped updates move what they
    compute with."""
    asked, width = cases_of(name)[title], np.dtype(create(name).dtype).itemsize
    for rank in group_results(name, title):
        moved = rank["traffic"]
        _, form, rounds = offload.forms(asked, asked["ranks"], moved["made"])
        assert (moved["updates"], moved["rounds"]) == (2, 2 * rounds)
        assert moved["to_device"] == width * form.to_device
        assert moved["to_host"] == width * form.to_host
        assert (moved["read"], moved["written"]) == (width * form.read, width * form.written)
        if title in OVERFLOWING:
            assert moved["made"] < 2
            continue
        assert moved["made"] == 2
        assert moved["copy_ns"] > 0
        on_disk = "disk" in asked["offload"].values()
        assert all((moved[key] > 0) == on_disk for key in ("read_ns", "write_ns", "wait_ns"))


@pytest.mark.parametrize(("name", "title"), all_cases(CASES))
def test_files_have_no_names(group_results: GroupResults, name: str, title: str) -> None:
    """Offload files have no directory entry, checked while they are open."""
    assert all(rank["left"] == [] for rank in group_results(name, title))


# --- planted faults -------------------------------------------------------------------------------


def skip_write(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: written records are dropped."""
    patch.setattr(DiskRecords, "release", lambda self: None)


def skip_read(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: read records are not copied to the device."""
    patch.setattr(OffloadedShard, "_copy_to_device", lambda self, places, record: None)


def next_unit_state(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: the optimizer uses the state of the next unit."""
    right = OffloadedShard.offloaded_records

    def planted(self: OffloadedShard, number: int) -> Any:
        return right(self, (number + 1) % len(self.shards)) if self.state_records else []

    patch.setattr(OffloadedShard, "offloaded_records", planted)


def early(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: each record is read into the buffer that is still in use."""
    right = DiskRecords._read

    def planted(self: DiskRecords, number: int) -> Any:
        reading = right(self, number)
        self.buffers.rotate()
        return reading

    patch.setattr(DiskRecords, "_read", planted)


def test_a_trial_that_fails_while_it_is_made_gives_back_what_it_took(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker continues with the next trial, so a failed one must not keep its file and thread."""
    made = list[OffloadedModel]()

    def fails(trial: TrialRunner, _: Any) -> None:
        assert trial.offloaded_model is not None
        made.append(trial.offloaded_model)
        raise TrialError("as planted")

    monkeypatch.setattr(TrialRunner, "restart", fails)
    with pytest.raises(TrialError, match="as planted"):
        small_trial(create("numpy"), tmp_path, 2, offload={"state": "disk"})
    (model,) = made
    assert model.thread is not None
    with pytest.raises(RuntimeError, match="shutdown"):
        model.thread.submit(print)
    (records,) = model.unit_records.values()
    assert isinstance(records, DiskRecords)
    assert records.scratch.file.closed


@pytest.mark.parametrize("plant", [skip_write, skip_read, next_unit_state, early])
def test_planted_faults_are_seen(
    plant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path
) -> None:
    asked = offload_case("all disk", 1, 3)
    argument = {"cases": [asked], "folder": str(tmp_path)}
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        try:
            run_threads(1, lambda comm: offload.train(comm, argument), 10)
        except (ValueError, AssertionError):  # units of other lengths
            return
    own = dict(np.load(tmp_path / "case0.rank0.npz"))
    with pytest.raises(AssertionError):
        assert_same(without_trace_loss(own), without_trace_loss(zero.expected(asked)), 1e-3)
