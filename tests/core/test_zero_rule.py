"""ZeRO sharding over data-parallel ranks: units, schedules, closed forms, settings, and a run."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import page_parts
import pytest
from command import goes_on_when_interrupted, run
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from test_aggregation import carried_out, check

from dualml.algorithms.communicator.parts import part_start
from dualml.algorithms.model import model
from dualml.algorithms.model.layers import Branch
from dualml.algorithms.model.recompute import recompute_groups
from dualml.experiment.arm import make_arm
from dualml.experiment.config_diff import ConfigDiff
from dualml.experiment.exactness import inexactness_reason, single_process_arm
from dualml.experiment.load import load
from dualml.experiment.store.load import load as load_run
from dualml.parallel.aggregation import CollectiveSchedule, Ring
from dualml.parallel.memory import estimate_sharded_memory
from dualml.parallel.zero import Sharding, units_of
from dualml.parallel.zero.collectives import (
    all_gather_schedule,
    all_reduce_schedule,
    broadcast_schedule,
    reduce_scatter_schedule,
)
from dualml.parallel.zero.units import (
    communication_volume,
    find_shared_layer,
    make_segments,
    unsplittable_reason,
)
from dualml.report.closed_memory import closed_form

SGD = {"name": "sgd", "lr": 0.1}
RANKS = [2, 3, 4, 5]
MODELS = ["softmax", "mlp", "lenet", "vit", "rnn_lm_dropout", "gpt_llama"]


def spec_of(name: str) -> Any:
    return model(name, words=24, length=6) if name.startswith("rnn") else model(name)


# --- units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("limit", [0, 1000, 100_000, 2**25])
def test_every_layer_is_in_one_unit(name: str, limit: int) -> None:
    spec = spec_of(name)
    for n in RANKS:
        units = units_of(spec, limit, n)
        assert units[0].layers.start == 0
        assert units[-1].layers.stop == len(spec.layers)
        assert all(a.layers.stop == b.layers.start for a, b in pairwise(units))
        shapes = {name: shape for unit in units for name, shape in unit.shapes.items()}
        assert shapes == spec.parameters()
        assert list(shapes) == list(spec.parameters())
        for unit in units:
            assert unit.length % n == 0
            assert 0 <= unit.length - unit.size < n
            assert not isinstance(spec.layers[unit.layers.stop - 1][1], Branch)
            layers = {key.rpartition(".")[0] for key in unit.shapes}
            assert 4 * unit.size <= limit or len(layers) == 1
    assert limit or len(units) == len({key.rpartition(".")[0] for key in spec.parameters()})
    assert limit < 2**25 or len(units) == 1


@given(st.integers(2, 7), st.integers(0, 9000))
def test_what_goes_into_a_vector_comes_out(n: int, limit: int) -> None:
    spec = spec_of("lenet")
    draw = np.random.default_rng(n)
    named = {key: draw.normal(size=shape) for key, shape in spec.parameters().items()}
    out: dict[str, Any] = {}
    for unit in units_of(spec, limit, n):
        vector = unit.flatten(named, np.float64)
        assert len(vector) == unit.length
        assert not vector[unit.size :].any()
        out |= unit.unflatten(vector)
    assert list(out) == list(named)
    assert all(np.array_equal(out[key], named[key]) for key in named)


def test_segments_know_how_many_values_come_to_them() -> None:
    spec = spec_of("vit")
    cuts = [unit.layers for unit in units_of(spec, 0, 2)]
    depths, after = [s.depth for s in make_segments(spec, cuts, lower=False)], spec.open_branches()
    names = [name for name, _ in spec.layers]
    assert depths == [1] + [1 + after[names[cut.start - 1]] for cut in cuts[1:]]
    assert max(depths) == 2
    lower = make_segments(spec, cuts, lower=True)
    assert all(len(segment.low_precision) == segment.depth for segment in lower)
    assert any(any(segment.low_precision) for segment in lower)


# --- what travels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", RANKS)
def test_each_rank_gets_the_sum_of_its_part(n: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(n, 4 * n))
    after = carried_out(reduce_scatter_schedule(n), vectors)
    for rank in range(n):
        part = slice(part_start(4 * n, n, rank), part_start(4 * n, n, rank + 1))
        np.testing.assert_allclose(after[rank, part], vectors[:, part].sum(axis=0))


@pytest.mark.parametrize("n", RANKS)
@pytest.mark.parametrize("kind", [all_gather_schedule, broadcast_schedule])
def test_every_rank_gets_all_parts(n: int, kind: Any) -> None:
    vectors = np.random.default_rng(0).normal(size=(n, 4 * n))
    whole = np.concatenate([vectors[r, 4 * r : 4 * r + 4] for r in range(n)])
    assert np.array_equal(carried_out(kind(n), vectors), np.tile(whole, (n, 1)))


@pytest.mark.parametrize("n", RANKS)
def test_what_each_rank_sends_is_counted(n: int) -> None:
    """Each half of an all-reduce, and the broadcasts, send (n − 1) / n of the vector."""
    for kind, times in (
        (reduce_scatter_schedule, 1),
        (all_gather_schedule, 1),
        (broadcast_schedule, 1),
        (all_reduce_schedule, 2),
    ):
        schedule: CollectiveSchedule = kind(n)
        check(schedule)
        for rank in range(n):
            assert schedule.sent_volume(rank, 12 * n)[1] == times * 12 * (n - 1)
            assert schedule.received_volume(rank, 12 * n)[1] == times * 12 * (n - 1)
    assert all_reduce_schedule(n).grid() == Ring().schedule(n).grid()


# --- closed forms ---------------------------------------------------------------------------------


def test_the_forms_of_the_paper() -> None:
    """Bytes of float32 with Adam, and elements sent: Rajbhandari et al. 2020, sections 5 and 7."""
    n = 4
    units = units_of(spec_of("lenet"), 0, n)
    ends = [u.length for u in units]
    psi, most = sum(ends), max(ends)
    want = {1: 8 * psi + 8 * psi // n, 2: 4 * psi + 12 * psi // n, 3: 16 * psi // n}
    for stage, nbytes in want.items():
        form = estimate_sharded_memory(units, n, stage, state_slots=2)
        assert 4 * (form.weights + form.gradients + form.state) == nbytes
        assert form.gathered == (stage - 1) * most
    part, first, last = (length * (n - 1) // n for length in (psi, ends[0], ends[-1]))
    sent = {stage: communication_volume(units, n, Sharding(stage)) for stage in (1, 2, 3)}
    assert sent == {1: 2 * part, 2: 2 * part, 3: 3 * part - last}
    wrong = {
        stage: communication_volume(units, n, Sharding(stage, "all_reduce")) for stage in (1, 2, 3)
    }
    assert wrong == {1: 3 * part, 2: 3 * part, 3: 4 * part - last}
    in_chunks = {
        stage: communication_volume(units, n, Sharding(stage), chunks=5) for stage in (1, 2, 3)
    }
    assert in_chunks == {1: 2 * part, 2: 6 * part, 3: 15 * part - 5 * last - 4 * first}


def test_two_units_are_there_while_one_travels() -> None:
    """Two units are resident while a third is gathered; units in the two buffer slots are not sent
    again."""
    n = 2
    units = units_of(spec_of("lenet"), 0, n)
    a, b, c, d = (unit.length for unit in units)
    form = estimate_sharded_memory(
        units, n, 3, state_slots=2, buffer_slots=Sharding(3, overlap=True).buffer_slots
    )
    assert form.gathered == 2 * (max(a, c) + max(b, d))
    assert (
        communication_volume(units, n, Sharding(3, overlap=True))
        == (3 * (a + b + c + d) - c - d) // 2
    )
    (whole,) = units_of(spec_of("lenet"), 2**25, n)
    assert (
        estimate_sharded_memory([whole], n, 3, state_slots=2, buffer_slots=2).gathered
        == 2 * whole.length
    )
    assert communication_volume([whole], n, Sharding(3), chunks=3) == (3 + 1) * whole.length // 2


def test_where_nobody_says_a_unit_is_an_eighth() -> None:
    spec = model("gpt_llama", sizes={"width": 32, "blocks": 8})
    units = units_of(spec, None, 2)
    assert len(units) >= 6
    assert all(
        8 * u.size <= spec.nbytes() // 4 + 8 or u.layers.stop - u.layers.start < 5 for u in units
    )
    for name in ("gpt", "text_classifier"):
        assert len(units_of(model(name), None, 2)) == 1
        assert unsplittable_reason(model(name), units_of(model(name), 0, 2))
    assert not unsplittable_reason(
        model("text_classifier"), units_of(model("text_classifier"), None, 2)
    )


def test_what_may_be_computed_again_is_in_one_unit_where_nobody_says() -> None:
    spec = model("gpt_llama", words=100, length=16, sizes={"width": 32, "heads": 4})
    apart = {
        name: i for i, u in enumerate(units_of(spec, None, 2)) for name, _ in spec.layers[u.layers]
    }
    assert len(set(apart.values())) == 6
    for block in recompute_groups(spec, "full"):
        assert len({apart[name] for name in block if name != "embedding"}) == 1
    assert len(units_of(spec, 0, 2)) > 6


def test_padding_counts() -> None:
    spec = spec_of("softmax")  # 7,850 numbers
    (unit,) = units_of(spec, 0, 4)
    assert (unit.size, unit.length) == (7850, 7852)
    assert estimate_sharded_memory([unit], 4, 3, state_slots=2).state == 2 * 7852 // 4
    assert math.prod(spec.parameters()["fc.weight"]) == 7840


def test_a_tied_table_is_held_once() -> None:
    spec = model("gpt")
    several, (whole,) = units_of(spec, 0, 2), units_of(spec, spec.nbytes(), 2)
    assert sum(unit.size for unit in several) == whole.size == spec.nbytes() // 4
    assert find_shared_layer(spec, several) == ("head", "embedding")
    assert find_shared_layer(spec, [whole]) is None


# --- what arms may ask for ------------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "words"), [
    ({"zero": 4, "world_size": 2}, "zero"),
    ({"zero": True, "world_size": 2}, "Input should be 0, 1, 2 or 3"),
    ({"zero": 1}, "world_size is 1: set 2 or more"),
    ({"zero": 2, "world_size": 2, "aggregation": {"strategy": "parameter_server_async"}},
     "strategy = parameter_server_async is not; use ring"),
    ({"zero": 1, "world_size": 2, "aggregation": {"strategy": "native"}}, "strategy = native"),
    ({"zero": 1, "world_size": 2, "aggregation": {"of": "parameters", "every": 4}},
     "leave out aggregation.target = parameters"),
    ({"zero": 3, "world_size": 2, "aggregation": {"compress": "topk"}}, "compress = topk"),
    ({"zero": 1, "world_size": 2, "aggregation": {"overlap": True}}, "overlap = true"),
    ({"zero": 2, "world_size": 2, "split": {"data": 2}}, "with split use zero = 1"),
    ({"zero": 1, "world_size": 2, "split": {}}, "set split.data = 2 or more"),
    ({"zero": 1, "world_size": 3, "split": {"trainers": 2, "place": [0, 1], "micro_batches": 2,
                                            "arrival": "asynchronous"}},
     "leave out update_mode = asynchronous"),
    ({"zero": 1, "world_size": 2, "method": "ddp", "batch_size": 8}, "leave out method"),
    ({"zero": 1, "world_size": 2, "kind": "collectives", "sizes": [8], "strategies": ["ring"]},
     "leave out kind"),
    ({"zero_reduce": "all_reduce", "world_size": 2}, "set zero = 1, 2 or 3, or leave it out"),
    ({"zero": 1, "zero_reduce": "ring", "world_size": 2}, "all_reduce"),
    ({"zero_lower": True, "precision": "bf16", "world_size": 2},
     "zero_param_dtype = precision keeps float32"),
    ({"zero": 1, "zero_lower": True, "world_size": 2}, "precision is fp32: set fp16 or bf16"),
    ({"zero": 1, "zero_lower": True, "precision": "bf16", "world_size": 2, "split": {"data": 2}},
     "leave out zero_param_dtype or split"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        make_arm(optimizer=SGD, **settings)


def test_the_rule_is_that_of_one_rank() -> None:
    one = make_arm(optimizer=SGD)
    arms = {
        "one": one,
        **{
            f"zero{stage}": make_arm(
                optimizer=SGD,
                world_size=2,
                zero=stage,
                zero_reduce="all_reduce",
                aggregation={"strategy": "ring"},
            )
            for stage in (1, 2, 3)
        },
    }
    contrast = ConfigDiff(arms)
    for name in ("zero1", "zero2", "zero3"):
        assert inexactness_reason(arms[name], 100) is None
        assert single_process_arm(name, contrast) == "one"
    assert arms["zero2"].sharding == Sharding(2, "all_reduce", None)
    beside = make_arm(optimizer=SGD, world_size=2, zero=3, aggregation={"overlap": True})
    assert beside.sharding.overlap
    assert arms["zero2"].sharding.bucket_bytes is None
    native = make_arm(
        optimizer=SGD, world_size=2, zero=1, aggregation={"strategy": "reduce_scatter_all_gather"}
    )
    assert native.sharding.native
    lower = make_arm(optimizer=SGD, world_size=2, zero=1, zero_lower=True, precision="bf16")
    assert lower.sharding.lower
    assert inexactness_reason(lower, 100) == "precision"


TOML = """
name = "zero"
model = "softmax"
title = { en = "Zero" }
[data]
name = "digits"
train = 203
test = 50
[arms.single]
optimizer = { name = "adam", lr = 0.01 }
batch_size = 20
epochs = 2
[arms.zero1]
world_size = 3
zero = 1
optimizer = { name = "adam", lr = 0.01 }
batch_size = 20
epochs = 2
[arms.zero2]
world_size = 3
zero = 2
optimizer = { name = "adam", lr = 0.01 }
batch_size = 20
epochs = 2
[arms.zero3]
world_size = 3
zero = 3
optimizer = { name = "adam", lr = 0.01 }
batch_size = 20
epochs = 2
[arms.chunks]
world_size = 2
zero = 3
zero_reduce = "all_reduce"
optimizer = { name = "adam", lr = 0.01 }
batch_size = 20
accumulation_batch = 4
epochs = 2
[arms.dealt]
world_size = 2
zero = 2
partition = { name = "contiguous" }
optimizer = { name = "adam", lr = 0.01 }
batch_size = 20
epochs = 2
[arms.slow]
world_size = 2
zero = 1
straggler = { rank = 1, latency_s = 0.005 }
optimizer = { name = "adam", lr = 0.01 }
batch_size = 20
updates = 4
"""


def test_it_is_described_only_where_it_was_said(tmp_path: Path) -> None:
    (tmp_path / "z.toml").write_text(TOML)
    arms = load(str(tmp_path / "z.toml")).describe()["arms"]
    assert not {"zero", "zero_reduce", "zero_lower"} & set(arms["single"])
    assert arms["chunks"]["zero"] == 3
    assert arms["chunks"]["zero_reduce"] == "all_reduce"
    assert "zero_reduce" not in arms["dealt"]


@pytest.mark.whole
def test_a_run_gives_the_trajectory_of_one_rank(tmp_path: Path) -> None:
    (tmp_path / "z.toml").write_text(TOML)
    code, summary = run(tmp_path / "z.toml", tmp_path / "o")
    assert code == 0, summary
    trials = {t["arm"]: t for t in summary["trials"]}
    assert all(t["status"] == "ok" for t in trials.values()), trials
    place = tmp_path / "o" / "trials"
    one = load_file(place / "single/numpy/seed0/weights.safetensors")
    for arm in trials:
        if arm in ("dealt", "slow"):  # other samples, or fewer updates
            continue
        own = load_file(place / f"{arm}/numpy/seed0/weights.safetensors")
        assert all(np.abs(own[key] - one[key]).max() < 1e-6 for key in one), arm
    psi, padded, n = 7850, 7851, 3
    for stage in (1, 2, 3):
        memory = trials[f"zero{stage}"]["device_memory"]
        assert len(memory) == n
        for rank in memory:
            assert rank["parameters"] == psi
            assert rank["state"] == 8 * 2 * padded // n
            assert rank["gradients"] == 8 * padded // (n if stage > 1 else 1)
            assert rank["weights"] == 8 * padded // (n if stage > 2 else 1)
    folder = load_run([tmp_path / "o"])
    for name, text in (
        ("zero1", "(8 + 8 + 16/3)"),
        ("zero2", "(8 + 8/3 + 16/3)"),
        ("zero3", "(8/3 + 8/3 + 16/3)"),
    ):
        (trial,) = folder.select(name, "numpy")
        form = closed_form(folder, name, "numpy", trial.device_memory)
        assert form is not None
        assert form.differences == {}
        assert form.text.startswith(f"{text}(Ψ + 1) = ")
        assert round(form.nbytes) == form.max_counted_bytes
    said = page_parts.findings_by_key(tmp_path / "o")
    assert "device_memory.off" not in said
    assert [s.verdict for s in folder.serial if s.arm.startswith("zero")] == ["equal"] * 3


@pytest.mark.whole
@pytest.mark.parametrize("arm", ["zero1", "zero3"])
def test_a_trial_that_is_interrupted_goes_on(tmp_path: Path, arm: str) -> None:
    (tmp_path / "z.toml").write_text(TOML)
    more = ["--set", f"arms.{arm}.epochs=12", "--set", "evaluation.per_epoch=1"]
    goes_on_when_interrupted(tmp_path / "z.toml", tmp_path, arm, *more)
