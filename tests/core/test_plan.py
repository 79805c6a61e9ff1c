"""Equal experiments, data and seeds give equal plans; otherwise the difference is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.experiment.batches import partition_key
from dualml.experiment.data import load as load_data
from dualml.experiment.freeze import freeze
from dualml.experiment.load import load
from dualml.experiment.plan import Plan
from dualml.experiment.store.folder import RunFolder
from dualml.experiment.store.manifest import Options
from dualml.experiment.store.plan import restore_plan, save_plan
from dualml.parity.judge import judge_run

DIGITS = load_data("digits", explicit=True)


def plan_of(*overrides: str, seeds: tuple[int, ...] = (0,)) -> Plan:
    return freeze(load("lab1", overrides=overrides, seeds=seeds, data="digits"), DIGITS)


def test_every_epoch_deals_every_sample_once() -> None:
    plan = plan_of()
    arm = plan.experiment.arms["sgd"]
    per_epoch = plan.batch_sampler(arm, 0).per_epoch
    n = len(plan.order["train"])
    for epoch in range(3):
        batches = [
            plan.batch_sampler(arm, 0).batch(epoch * per_epoch + i + 1) for i in range(per_epoch)
        ]
        assert [len(b) for b in batches[:-1]] == [64] * (per_epoch - 1)
        assert sorted(np.concatenate(batches)) == list(range(n))
    first, second = (
        plan.batch_sampler(arm, 0).batch(1),
        plan.batch_sampler(arm, 0).batch(per_epoch + 1),
    )
    assert not np.array_equal(first, second)


def test_gd_sees_its_whole_pool_in_every_update() -> None:
    plan = plan_of("arms.gd.samples=100")
    arm = plan.experiment.arms["gd"]
    batch = plan.batch_sampler(arm, 0).batch(1)
    assert len(set(batch)) == 100
    assert np.array_equal(batch, plan.batch_sampler(arm, 0).batch(7))
    assert plan.batch_sampler(arm, 0).count_sample_gradients(7) == 700


def test_sample_gradients_counts_the_short_last_batch() -> None:
    plan = plan_of()
    arm = plan.experiment.arms["sgd"]
    n, per_epoch = len(plan.order["train"]), plan.batch_sampler(arm, 0).per_epoch
    dealt = 0
    for step in range(1, 2 * per_epoch + 1):
        dealt += len(plan.batch_sampler(arm, 0).batch(step))
        assert plan.batch_sampler(arm, 0).count_sample_gradients(step) == dealt
    assert dealt == 2 * n


def test_all_arms_share_one_order() -> None:
    plan = plan_of()
    sgd, adam = plan.experiment.arms["sgd"], plan.experiment.arms["adam"]
    assert np.array_equal(plan.batch_sampler(sgd, 0).batch(5), plan.batch_sampler(adam, 0).batch(5))


def test_the_same_inputs_give_the_same_hash_and_any_change_names_its_part() -> None:
    base = plan_of()
    assert plan_of().hash == base.hash

    def changed(other: Plan) -> set[str]:
        return {part for part in base.parts if base.parts[part] != other.parts[part]}

    assert changed(plan_of("arms.adam.optimizer.lr=0.002")) == {"experiment"}
    assert changed(plan_of(seeds=(1,))) == {"experiment", "weights", "order"}
    assert changed(plan_of("data.train=500")) == {"experiment", "data", "order"}
    assert changed(plan_of("limits.trial=9", "parity.margin=9")) == set()


def test_schedule_looks_at_the_start_and_the_end() -> None:
    plan = plan_of()
    for arm in plan.experiment.arms.values():
        s = plan.schedule(arm, 0)
        assert s.evaluate[0] == 0
        assert s.evaluate[-1] == s.updates
        assert s.trace[0] == 1
        assert s.evaluate == sorted(set(s.evaluate))


@pytest.mark.parametrize(
    ("updates", "share", "trace"),
    [
        # 20 updates and 6 looks, which take as long as 2 each, in 3 draws: 3 · (20 + 2·6) = 96.
        (100, 1.0, [1, 2, 3, 5, 10, 20]),
        (100, 0.5, [1, 2, 3, 5, 6]),
        (100, 0, [1, 2, 3, 5, 10, 20, 50, 100]),
        (10, 1.0, [1, 2, 3, 5]),  # five are judged in any case
        (3, 1.0, [1, 2, 3]),
        (900, 1.0, [1, 2, 3, 5, 10, 20, 50, 100, 150]),
    ],
)
def test_draws_take_no_more_than_their_share(updates: int, share: float, trace: list[int]) -> None:
    plan = plan_of(f"arms.adam.updates={updates}", f"parity.share={share}")
    assert plan.schedule(plan.experiment.arms["adam"], 0).trace == trace


def test_seeds_that_an_arm_leaves_out_are_nowhere(tmp_path: Path) -> None:
    few = (
        "arms.sgd.seeds=1",
        "arms.sgd.samples=100",
        "arms.adam.seeds=2",
        "arms.adam.partition.name=round_robin",
    )
    plan = plan_of(*few, seeds=(5, 3, 4))
    told = plan.experiment.arms
    pools = [seed for seed in (5, 3, 4) if f"seed{seed}/pool100" in plan.order]
    orders = [seed for seed in (5, 3, 4) if f"seed{seed}/pool100/epoch0" in plan.order]
    dealt = [seed for seed in (5, 3, 4) if partition_key(told["adam"], seed) in plan.deals]
    assert (pools, orders, dealt) == ([5], [5], [5, 3])
    assert plan.hash != plan_of(*few[1:], seeds=(5, 3, 4)).hash

    folder = RunFolder.create(tmp_path / "run", plan, ["torch", "mindspore"], "en", Options())
    wanted = [
        (arm, seed)
        for arm, seeds in (("gd", (5, 3, 4)), ("sgd", (5,)), ("adam", (5, 3)))
        for seed in seeds
    ]
    trials = [(arm, seed, backend) for arm, backend, seed in folder.trials]
    assert trials == [(*one, backend) for one in wanted for backend in ("torch", "mindspore")]
    judged = judge_run(tmp_path / "run").describe()["comparisons"]
    assert [(c["arm"], c["seed"]) for c in judged] == wanted


def test_restored_plan_equals_the_saved_one(tmp_path: Path) -> None:
    plan = plan_of()
    save_plan(plan, tmp_path)
    again = restore_plan(tmp_path)
    assert again.hash == plan.hash
    arm = plan.experiment.arms["sgd"]
    assert np.array_equal(again.batch_sampler(arm, 0).batch(3), plan.batch_sampler(arm, 0).batch(3))
    for name, w in plan.initial(0).items():
        assert np.array_equal(again.initial(0)[name], w)


def test_a_changed_plan_is_refused(tmp_path: Path) -> None:
    save_plan(plan_of(), tmp_path)
    told = json.loads((tmp_path / "plan.json").read_text())
    told["experiment"]["arms"]["adam"]["optimizer"]["lr"] = 0.5
    (tmp_path / "plan.json").write_text(json.dumps(told))
    with pytest.raises(UserError, match="changed after it was made: experiment"):
        restore_plan(tmp_path)


def test_a_newer_plan_is_refused(tmp_path: Path) -> None:
    save_plan(plan_of(), tmp_path)
    told = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps({**told, "format": 99}))
    with pytest.raises(UserError, match="newer"):
        restore_plan(tmp_path)
