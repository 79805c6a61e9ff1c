"""Whole runs with several ranks, as threads of the reference (no framework needed)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import goes_on_when_interrupted, run, strict
from safetensors.numpy import load_file

from dualml.experiment.store.times import TIMES
from dualml.runner.worker.collectives import interface_counts

pytestmark = pytest.mark.whole

TOML = """
name = "ranks"
model = "softmax"
title = { en = "Ranks", zh = "多进程" }
[data]
name = "digits"
train = 203
test = 50
[arms.single]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 20
epochs = 2
[arms.ring]
world_size = [2, 3]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 20
epochs = 2
aggregation = { strategy = "ring" }
[arms.mean]
world_size = 3
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 20
epochs = 2
aggregation = { reduce = "mean" }
[arms.local]
world_size = 2
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 20
epochs = 2
aggregation = { target = "parameters", sync_period = 4 }
[arms.async]
world_size = 3
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 20
epochs = 2
aggregation = { strategy = "parameter_server_async" }
[arms.top]
world_size = 3
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 20
epochs = 2
aggregation = { compress = "topk", fraction = 0.05 }
[arms.slow]
world_size = 2
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 20
epochs = 2
aggregation = { strategy = "ring" }
straggler = { rank = 1, latency_s = 0.02 }
[arms.times]
kind = "collectives"
world_size = 2
sizes = [1024, 65536, 262144]
strategies = ["all_reduce", "ring", "neighbour"]
seconds = 0.02
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "ranks.toml"
    path.write_text(TOML)
    return path


@pytest.fixture(scope="module")
def finished_run(
    lab: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("run") / "out"
    code, told = run(lab, out)
    assert code == 0, told
    return out, told


def trial(told: dict[str, Any], arm: str) -> dict[str, Any]:
    return next(t for t in told["trials"] if t["arm"] == arm)


def test_a_list_of_world_sizes_makes_an_arm_of_each(
    finished_run: tuple[Path, dict[str, Any]],
) -> None:
    _, told = finished_run
    assert [t["arm"] for t in told["trials"]] == [
        *("single", "ring-n2", "ring-n3", "mean", "local", "async", "top", "slow", "times"),
    ]
    assert [t["status"] for t in told["trials"]] == ["ok"] * 9
    assert [t.get("world_size", 1) for t in told["trials"]] == [1, 2, 3, 3, 2, 3, 3, 2, 2]


def test_n_workers_are_held_against_one(finished_run: tuple[Path, dict[str, Any]]) -> None:
    """n workers are compared with one; 203 samples in batches of 20 leave three for the last batch,
    fewer than the largest groups have ranks."""
    out, _ = finished_run
    serial = strict((out / "parity.json").read_text())["serial"]
    found = {c["arm"]: (c["verdict"], c["reason"]) for c in serial}
    assert found == {
        "ring-n2": ("equal", "inside_envelope"),
        "ring-n3": ("equal", "inside_envelope"),
        "slow": ("equal", "inside_envelope"),
        "mean": (None, "uneven"),
        "local": (None, "local_updates"),
        "async": (None, "asynchronous"),
        "top": (None, "compressed"),
    }
    assert {c["against"] for c in serial} == {"single"}
    one = load_file(out / "trials/single/numpy/seed0/weights.safetensors")
    three = load_file(out / "trials/ring-n3/numpy/seed0/weights.safetensors")
    mean = load_file(out / "trials/mean/numpy/seed0/weights.safetensors")
    for name, w in one.items():
        np.testing.assert_allclose(three[name], w, rtol=0, atol=1e-12)
        assert np.abs(mean[name] - w).max() > 1e-6


def test_where_the_time_went_adds_up(finished_run: tuple[Path, dict[str, Any]]) -> None:
    out, told = finished_run
    ranks = trial(told, "slow")["ranks"]
    for r in ranks:
        assert r["compute_s"] + r["wait_s"] + r["transfer_s"] == pytest.approx(r["step_s"])
    # Two steps of the ring, each 20 ms late on rank 1: rank 0 is in the aggregation meanwhile.
    assert ranks[0]["transfer_s"] > 0.035
    assert (
        trial(told, "slow")["communication_share"] > trial(told, "ring-n2")["communication_share"]
    )
    times = TIMES.read(out / "trials/slow/numpy/seed0", 1)
    assert {len(moments) for moments in times.values()} == {trial(told, "slow")["updates"]}


def test_collectives_are_timed_counted_and_have_no_verdict(
    finished_run: tuple[Path, dict[str, Any]],
) -> None:
    out, told = finished_run
    found = strict((out / "trials/times/numpy/seed0/collectives.json").read_text())
    assert [(r["strategy"], r["bytes"]) for r in found["rows"]] == [
        (s, b) for b in (1024, 65536, 262144) for s in ("all_reduce", "ring", "neighbour")
    ]
    ring = next(r for r in found["rows"] if (r["strategy"], r["bytes"]) == ("ring", 65536))
    assert [t["bytes_sent"] for t in ring["traffic"]] == [65536, 65536]
    assert [t["sent"] for t in ring["traffic"]] == [2, 2]
    assert 0 < ring["low"] <= ring["seconds"] <= ring["high"]
    assert trial(told, "times")["measurements"] == 9
    parity = strict((out / "parity.json").read_text())
    assert "times" not in {c["arm"] for c in [*parity["comparisons"], *parity["serial"]]}


def test_what_it_cost_is_fitted_and_predicted(finished_run: tuple[Path, dict[str, Any]]) -> None:
    out, _ = finished_run
    cost = strict((out / "cost.json").read_text())
    assert {f["strategy"] for f in cost["fits"]} >= {"all_reduce", "ring", "neighbour"}
    [slow] = cost["slowdowns"]
    assert (slow["arm"], slow["base"]) == ("slow", "ring-n2")
    assert slow["measured"] > 5
    assert slow["predicted"] > 1
    assert (out / "cost.numpy-n2.json").is_file()


def test_asynchronous_updates_in_the_planned_order_repeat(
    finished_run: tuple[Path, dict[str, Any]], lab: Path, tmp_path: Path
) -> None:
    out, told = finished_run
    stale = trial(told, "async")["staleness"]
    assert 0 < stale["mean"] <= stale["max"] <= 4  # each of three once per batch
    run(lab, tmp_path / "again", "--arm", "async")
    name = "trials/async/numpy/seed0/weights.safetensors"
    assert (out / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize("arm", ["top", "async", "local"])
def test_an_interrupted_trial_goes_on_as_if_nothing_had_been(
    lab: Path, tmp_path: Path, arm: str
) -> None:
    more = ["--set", f"arms.{arm}.epochs=12", "--set", "evaluation.per_epoch=1"]
    goes_on_when_interrupted(lab, tmp_path, arm, *more)


@pytest.mark.skipif(not os.path.exists("/proc/net/dev"), reason="no counters of interfaces")
def test_the_loopback_counter_counts() -> None:
    import socket

    before = interface_counts("")
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        other, _ = server.accept()
        client.sendall(b"x" * 100_000)
        got = 0
        while got < 100_000:
            got += len(other.recv(65536))
        client.close()
        other.close()
    after = interface_counts("")
    assert before is not None
    assert after is not None
    sent, packets, received, _ = after - before
    assert sent == received >= 100_000
    assert packets >= 1
    assert interface_counts("nonesuch0") is None


def test_ranks_with_other_initial_weights_are_named() -> None:
    """Ranks with other initial weights are named: the weights that rank 0 broadcasts must be
    planned by all."""
    from dualml.backend.reference.communicator import run_threads
    from dualml.common.errors import CommunicationError
    from dualml.runner.worker.join import agree_on_weights

    def work(comm: Any, wrong: int) -> None:
        w = np.arange(6, dtype=np.float32) + (comm.rank == wrong)
        agree_on_weights(comm, {"fc.weight": w}, "test")

    run_threads(3, lambda comm: work(comm, -1))
    with pytest.raises(CommunicationError, match="differ from rank 0's on rank 2"):
        run_threads(3, lambda comm: work(comm, 2))


def test_a_server_that_waits_for_nobody_tells_the_memory_of_every_rank(tmp_path: Path) -> None:
    """A server that waits for nobody still reports the memory of every rank, after all have caught
    up."""
    lab = tmp_path / "free.toml"
    planned = "parameter_server_async"
    lab.write_text(TOML.replace(f'"{planned}"', f'"{planned}", arrival_order = "nondeterministic"'))
    code, told = run(lab, tmp_path / "out", "--arm", "async")
    assert code == 0, told
    [free] = told["trials"]
    assert free["status"] == "ok", free["reason"]
    assert [m["weights"] for m in free["device_memory"]] == [8 * 7850] * 3
