"""The samples that the ranks of an arm train on: none lost, none twice, the same on all
backends."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.experiment.batches import EpochBatches, partition_key
from dualml.experiment.data import load as load_data
from dualml.experiment.freeze import freeze
from dualml.experiment.plan import Plan
from dualml.experiment.sample_digest import SampleDigest, combined_digest
from dualml.experiment.schema import Experiment
from dualml.experiment.store.plan import restore_plan, save_plan
from dualml.runner.worker.evaluate import evaluate

SKEW = {"name": "fractions", "fractions": [0.7, 0.2, 0.1]}


def plan_of(**arm: Any) -> Plan:
    table = {
        "name": "deals",
        "title": {"en": "x"},
        "model": "softmax",
        "data": {"name": "digits", "train": 500, "test": 50},
        "arms": {
            "a": {"optimizer": {"name": "sgd", "lr": 0.1}, "batch_size": 30, "epochs": 2, **arm}
        },
    }
    return freeze(Experiment.model_validate(table), load_data("digits", explicit=True))


def test_an_epoch_ends_when_the_last_rank_is_through() -> None:
    course = EpochBatches([np.arange(10), np.arange(10, 14), np.zeros(0, int)], batch_size=6)
    assert course.per_rank_sizes == [2, 2, 2]
    assert course.updates == 5
    assert [[len(p) for p in course.parts(i)] for i in (0, 1, 2, 4)] == [
        [2, 2, 0],
        [2, 2, 0],
        [2, 0, 0],
        [2, 0, 0],
    ]
    assert [course.consumed(i) for i in range(6)] == [0, 4, 8, 10, 12, 14]


@pytest.mark.parametrize(
    "partition",
    [
        SKEW,
        {"name": "power_law_sizes", "exponent": 2.0},
        {"name": "contiguous"},
        {"name": "dirichlet_labels", "alpha": 0.3, "least": 0},
        {"name": "label_shards"},
    ],
    ids=lambda p: p["name"],
)
def test_no_sample_is_lost_or_counted_twice(partition: dict[str, Any]) -> None:
    plan = plan_of(world_size=3, partition=partition)
    arm = plan.experiment.arms["a"]
    feed = plan.batch_sampler(arm, 0)
    owners: list[set[int]] = [set(), set(), set()]
    for epoch in range(2):
        seen: Counter[int] = Counter()
        for step in range(epoch * feed.per_epoch + 1, (epoch + 1) * feed.per_epoch + 1):
            parts = feed.parts(step)
            assert all(len(p) <= 10 for p in parts)
            for rank, part in enumerate(parts):
                owners[rank] |= set(part.tolist())
                seen.update(part.tolist())
            assert np.array_equal(feed.batch(step), np.concatenate(parts))
        assert set(seen) == set(range(500))
        assert set(seen.values()) == {1}
    assert not owners[0] & owners[1]  # every rank keeps its samples
    assert feed.count_sample_gradients(feed.per_epoch) == 500
    assert feed.count_sample_gradients(1) == sum(len(p) for p in feed.parts(1))
    assert feed.count_sample_gradients(feed.per_epoch + 2) == 500 + sum(
        len(feed.batch(s)) for s in (1, 2)
    )


def test_one_rank_trains_on_what_several_would_have() -> None:
    several, one = (
        plan_of(partition=SKEW, **more) for more in ({"world_size": 3}, {"dealt_to": 3})
    )
    arms = [p.experiment.arms["a"] for p in (several, one)]
    assert partition_key(arms[0], 0) == partition_key(arms[1], 0)
    for step in (1, 5, 20):
        assert np.array_equal(
            several.batch_sampler(arms[0], 0).batch(step), one.batch_sampler(arms[1], 0).batch(step)
        )


def test_typical_updates_show_every_rank_every_size() -> None:
    plan = plan_of(world_size=3, partition=SKEW)
    feed = plan.batch_sampler(plan.experiment.arms["a"], 0)
    wanted = {
        (rank, len(part))
        for step in range(1, feed.per_epoch + 1)
        for rank, part in enumerate(feed.parts(step))
    }
    apart, together = (
        feed.representative_steps(False, updates=100),
        feed.representative_steps(True, updates=100),
    )
    assert {(r, len(p)) for s in apart for r, p in enumerate(feed.parts(s))} == wanted
    assert len(apart) <= 6
    totals = {len(feed.batch(s)) for s in range(1, feed.per_epoch + 1)}
    assert {len(feed.batch(s)) for s in together} == totals
    assert max(apart) > 1
    assert feed.representative_steps(False, updates=max(apart) - 1) == apart[:-1]


def test_the_plan_states_what_was_dealt_and_comes_back(tmp_path: Path) -> None:
    plan = plan_of(world_size=3, partition={"name": "random_sampling"})
    arm = plan.experiment.arms["a"]
    told = plan.deals[partition_key(arm, 0)]
    assert len(told) == 2
    assert told[0]["sha256"] != told[1]["sha256"]
    for epoch in range(2):
        lists = [plan.order[f"{partition_key(arm, 0)}/epoch{epoch}/rank{r}"] for r in range(3)]
        assert told[epoch]["missed"] == 500 - len(set(np.concatenate(lists).tolist()))
    save_plan(plan, tmp_path)
    again = restore_plan(tmp_path)
    assert again.deals == plan.deals
    assert again.hash == plan.hash
    assert np.array_equal(again.batch_sampler(arm, 0).batch(7), plan.batch_sampler(arm, 0).batch(7))


def test_other_settings_are_another_plan() -> None:
    hashes = {
        plan_of(world_size=3, partition=p).hash
        for p in (
            {"name": "round_robin"},
            {"name": "contiguous"},
            {"name": "contiguous", "shuffle": False},
        )
    }
    assert len(hashes) == 3


def test_noise_is_the_same_for_whoever_looks() -> None:
    plan = plan_of(world_size=3, partition={"name": "feature_noise", "sigma": 0.6})
    arm = plan.experiment.arms["a"]
    x = np.zeros((500, 1, 28, 28), np.float32)
    a, b = plan.features(arm, 0, x), plan.features(arm, 0, x)
    assert np.array_equal(a, b)
    assert not x.any()
    for rank, level in enumerate((0.2, 0.4, 0.6)):
        mine = plan.order[f"{partition_key(arm, 0)}/epoch0/rank{rank}"]
        assert a[mine].std() == pytest.approx(level, rel=0.02)
    other = plan_of(world_size=3, partition=SKEW)
    assert other.features(other.experiment.arms["a"], 0, x) is x


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        ({"partition": {"name": "dirichlet"}}, ["unknown partition 'dirichlet'", "did you mean"]),
        ({"partition": {"alpha": 1.0}}, ["a partition needs a name"]),
        ({"partition": {"name": "dirichlet_labels"}}, ["needs alpha"]),
        ({"partition": {"name": "contiguous", "alpha": 1.0}}, ["no setting 'alpha'"]),
        ({"partition": {"name": "dirichlet_labels", "alpha": -1.0}}, ["above 0", "-1"]),
        ({"partition": SKEW, "world_size": 2}, ["arms.a.partition", "3 shares for 2 ranks"]),
        ({"partition": {"name": "contiguous"}, "world_size": 40}, ["batch_size = 30", "40 ranks"]),
        ({"partition": {"name": "label_classes", "classes": 11}}, ["11 classes", "10"]),
        (
            {"partition": {"name": "label_classes", "assigned": [[0, 1], [12]]}, "world_size": 2},
            ["no sample has the label 12"],
        ),
        (
            {"partition": {"name": "dirichlet_sizes", "alpha": 1.0, "least": 400}, "world_size": 2},
            ["need 800", "there are 500"],
        ),
        ({"partition": {"name": "file", "path": "nowhere.npz"}, "world_size": 2}, ["nowhere.npz"]),
        ({"dealt_to": 4}, ["partition_ranks = 4 needs a partition"]),
        (
            {"dealt_to": 4, "world_size": 2, "partition": {"name": "contiguous"}},
            ["there are 2 ranks"],
        ),
        ({"aggregation": {"strategy": "native", "compress": "fp16"}, "world_size": 2}, ["native"]),
        ({"aggregation": {"strategy": "ring", "overlap": True}, "world_size": 2}, ["overlap"]),
        ({"aggregation": {"strategy": "replicas"}, "world_size": 2}, ["one process", "2"]),
        (
            {"aggregation": {"strategy": "native"}, "world_size": 2, "slow": {"latency_s": 0.1}},
            ["sends these messages itself"],
        ),
    ],
    ids=lambda v: str(v)[:60],
)
def test_wrong_settings_are_one_clear_line(arm: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((UserError, ValueError)) as caught:
        plan_of(**arm)
    for word in words:
        assert word in str(caught.value)


def test_the_chain_tells_order_ranks_and_samples_apart() -> None:
    def chain(*parts: tuple[int, list[int]]) -> str:
        seen = SampleDigest()
        for rank, part in parts:
            seen.add(rank, np.array(part, np.int64))
        return combined_digest(seen.rank_digests)

    first = chain((0, [1, 2]), (1, [3]), (0, [4]), (1, []))
    assert first == chain((1, [3]), (0, [1, 2]), (1, []), (0, [4]))  # of ranks: each has its own
    others = [
        chain((0, [2, 1]), (1, [3]), (0, [4]), (1, [])),
        chain((0, [1, 2]), (1, [3]), (0, [4])),
        chain((0, [1, 2, 4]), (1, [3]), (0, []), (1, [])),
        chain((1, [1, 2]), (0, [3]), (1, [4]), (0, [])),
    ]
    assert len({first, *others}) == 5
    again = SampleDigest(SampleDigest({0: "ab" * 32}).rank_digests)  # goes on from a checkpoint
    again.add(0, np.array([5]))
    assert again.rank_digests[0] != "ab" * 32


def test_ranks_evaluate_what_one_would_to_the_last_bit() -> None:
    from dualml.backend.reference.communicator import run_threads

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((1234, 3)).astype(np.float32), rng.integers(0, 4, 1234)

    class Model:
        def evaluate(self, x: Any, y: Any) -> tuple[float, Any]:
            return float(np.square(x, dtype=np.float64).mean()), (x[:, 0] > 0).astype(np.int64)

    model: Any = Model()
    index = rng.permutation(1234)[:1111]
    one = evaluate(model, x, y, index, 5)
    assert one.counts.sum() == 1111
    assert one.by_class[4] is None
    predicted = (x[:, 0] > 0).astype(np.int64)
    assert one.accuracy == pytest.approx((predicted == y)[index].mean())
    for n in (2, 3, 6):
        for other in run_threads(n, lambda comm: evaluate(model, x, y, index, 5, comm), 10):
            assert other.loss == one.loss
            assert np.array_equal(other.hits, one.hits)
