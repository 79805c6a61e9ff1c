"""Arms that are compared agree in everything except what is said to vary."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualml.experiment.arm import Arm, make_arm
from dualml.experiment.config_diff import ConfigDiff, flat_config, is_covered_key
from dualml.experiment.exactness import single_process_arm
from dualml.experiment.find import experiment_files
from dualml.experiment.lenient import read_arm
from dualml.experiment.load import load
from dualml.experiment.schema import Experiment

SGD = {"name": "sgd", "lr": 0.1}


def arm(**more: Any) -> Arm:
    return make_arm({"optimizer": SGD, **more})


def split(**more: Any) -> Arm:
    return arm(world_size=2, split={"stages": 2, **more})


#: Changes of a single setting.
CHANGES: tuple[dict[str, Any], ...] = (
    {"optimizer": {**SGD, "lr": 0.2}},
    {"optimizer": {**SGD, "momentum": 0.9}},
    {"optimizer": {"name": "adam", "lr": 0.1}},
    {"batch_size": 32},
    {"batch_size": 128},
    {"epochs": 1.0},
    {"updates": 10},
    {"samples": 100},
    {"chunk": 8},
    {"cores": 1},
    {"model": "deep_mlp"},
    {"world_size": 2},
    {"world_size": 4},
    {"schedule": {"kind": "cosine", "total": 10}},
    {"schedule": {"warmup": 5}},
)
#: Further changes, for arms with several ranks.
WAYS: tuple[dict[str, Any], ...] = (
    {"aggregation": {"strategy": "ring"}},
    {"aggregation": {"reduce": "mean"}},
    {"aggregation": {"strategy": "ring", "of": "parameters"}},
    {"group": "other"},
    {"seeds": 1},
    {"slow": {"compute": 2.0}},
    {"slow": {"compute": 2.0, "rank": 1}},
    {"slow": {"latency_s": 0.1}},
)


@st.composite
def arms_of(draw: st.DrawFn) -> Arm:
    """Return the plain arm with a few changes, so that many arms have much in common."""
    made: dict[str, Any] = {"world_size": 2}
    for change in draw(st.lists(st.sampled_from((*CHANGES, *WAYS)), max_size=3)):
        made |= change
    return arm(**made)


def differing(a: Any, b: Any, prefix: str = "") -> set[str]:
    """Return the dotted keys in which two validated tables differ, found without `contrast`."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = a.keys() | b.keys()
        return {x for k in keys for x in differing(a.get(k), b.get(k), f"{prefix}{k}.")}
    return set() if a == b else {prefix.rstrip(".")}


VARIED = (
    ("world_size",),
    ("optimizer.lr",),
    ("optimizer",),
    ("batch_size", "optimizer.lr"),
    ("aggregation",),
    ("aggregation.strategy",),
    ("slow",),
    ("slow", "epochs", "updates"),
    ("schedule.warmup",),
    ("chunk", "cores"),
    (),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(arms_of(), min_size=2, max_size=8), st.sampled_from(VARIED))
def test_arms_of_a_group_differ_in_what_varies_and_in_nothing_else(
    made: list[Arm], vary: tuple[str, ...]
) -> None:
    arms = {f"arm{k}": each for k, each in enumerate(made)}
    contrast = ConfigDiff(arms)
    groups = contrast.groups(vary=vary)
    assert sorted(name for group in groups for name in group) == sorted(arms)
    place = {name: k for k, group in enumerate(groups) for name in group}
    dumps = {name: each.model_dump() for name, each in arms.items()}
    for a in arms:
        for b in arms:
            keys = differing(dumps[a], dumps[b])
            beyond = {
                k for k in keys if k not in ("group", "seeds") and not is_covered_key(k, vary)
            }
            assert (place[a] == place[b]) == (not beyond), (a, b, beyond)
        assert contrast.partners(a, vary=vary) == [n for n in groups[place[a]] if n != a]
    for group in groups:
        assert all(is_covered_key(key, vary) for key in contrast.varying_keys(group))


@settings(max_examples=50, deadline=None)
@given(arms_of())
def test_a_run_folder_says_the_same_as_the_experiment(made: Arm) -> None:
    """A run folder describes the arm as the experiment does, although it omits unset keys and a
    number may have lost its decimal point."""
    experiment = Experiment(
        name="x", title={}, data={"name": "mnist"}, model="mlp", arms={"a": made}
    )  # type: ignore[arg-type]
    stored = json.loads(json.dumps(experiment.describe()))["arms"]["a"]
    assert flat_config(stored) == flat_config(made)
    assert read_arm(stored) == made


def test_the_plain_arm_written_out_is_the_plain_arm() -> None:
    bare: dict[str, Any] = {"optimizer": SGD, "split": {"stages": 2}, "world_size": 2}
    whole = make_arm(bare).model_dump(mode="json")
    assert flat_config(bare) == flat_config(whole)
    assert flat_config({"optimizer": SGD, "epochs": 3}) == flat_config(arm())


@pytest.mark.parametrize("more", [{"seeds": 1}, {"group": "extra"}])
def test_how_often_and_in_which_group_an_arm_runs_makes_no_difference(more: dict) -> None:
    assert ConfigDiff({"a": arm(), "b": arm(**more)}).partner("a", vary=()) == "b"


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_planted_difference_is_noticed(change: dict) -> None:
    """A planted difference is noticed: nothing that is said to vary covers it."""
    contrast = ConfigDiff({"a": arm(), "b": arm(**change)})
    assert contrast.partner("a", vary=("slow", "aggregation", "split")) is None
    assert contrast.varying_keys(["a", "b"])


def test_a_newer_key_counts_and_does_no_harm() -> None:
    old = {"optimizer": SGD, "world_size": 2}
    new = {**old, "sharding": {"stage": 3}}
    contrast = ConfigDiff({"old": old, "new": new, "again": new, "slow": {**new, "slow": {}}})
    assert contrast.groups(vary=("slow",)) == [["old"], ["new", "again", "slow"]]
    assert contrast.varying_keys(["old", "new"]) == ["sharding.stage"]
    assert read_arm(new) == read_arm(old)


def test_a_newer_arm_is_read_as_far_as_it_is_known() -> None:
    made = read_arm(
        {
            "optimizer": {"name": "lion", "lr": 0.1},
            "world_size": "two",
            "batch_size": 8,
            "aggregation": {"strategy": "gossip", "every": [2], "topology": "star"},
            "slow": {"rank": 1, "cause": "disk"},
            "split": 3,
        }
    )
    assert (made.optimizer["name"], made.world_size, made.batch_size) == ("lion", 1, 8)
    assert (made.aggregation.strategy, made.aggregation.every) == ("gossip", 1)
    assert made.slow is not None
    assert made.slow.rank == 1
    assert made.slow.compute == 1.0
    assert made.split is None
    assert read_arm({}).optimizer["name"] == "sgd"


@pytest.mark.parametrize("name", ["split.micro_batch", "slowness", "chunk.size", "schedule.gama"])
def test_what_no_arm_has_cannot_vary(name: str) -> None:
    with pytest.raises(ValueError, match=name.rpartition(".")[2]):
        ConfigDiff({"a": arm()}).groups(vary=(name,))


# --- splits ---------------------------------------------------------------------------------------


def test_a_cut_counts_not_how_its_place_was_chosen() -> None:
    arms = {
        "even": split(),
        "by-hand": arm(world_size=2, split={"cut": ["fc3"]}),
        "by-time": split(balance="time"),
        "later": arm(world_size=2, split={"cut": ["fc4"]}),
    }
    cuts = {"even": ["fc3"], "by-hand": ["fc3"], "by-time": ["fc4"], "later": ["fc4"]}
    planned = ConfigDiff(arms, cuts)
    assert planned.groups(vary=()) == [["even", "by-hand"], ["by-time", "later"]]
    assert planned.groups(vary=("split.cut",)) == [list(arms)]
    # Without a plan nobody knows where a balance cuts.
    assert len(ConfigDiff(arms).groups(vary=())) == 4
    assert ConfigDiff(arms).groups(vary=("split.cut",)) == [list(arms)]


def test_micro_batches_and_schedules_vary_inside_a_split() -> None:
    arms = {
        "m4": split(micro_batches=4),
        "m8": split(micro_batches=8),
        "gpipe": split(micro_batches=4, schedule="gpipe"),
        "wide": arm(world_size=2, split={"tensor": 2}),
    }
    contrast = ConfigDiff(arms)
    assert contrast.groups(vary=("split.micro_batches",)) == [["m4", "m8"], ["gpipe"], ["wide"]]
    assert contrast.varying_keys(["m4", "m8", "gpipe"]) == ["split.schedule", "split.micro_batches"]
    assert contrast.varying_keys(["m4", "wide"]) == [
        "split.stages",
        "split.micro_batches",
        "split.tensor",
    ]


# --- ranks ----------------------------------------------------------------------------------------


def test_the_arm_without_the_slow_node() -> None:
    slow = {"compute": 4.0, "rank": 1}
    arms = {
        "slow": arm(world_size=2, slow=slow),
        "longer": arm(world_size=2, epochs=6.0),
        "other-rate": arm(world_size=2, optimizer={"name": "sgd", "lr": 1.0}),
        "also-slow": arm(world_size=2, slow={"latency_s": 0.1}),
        "four": arm(world_size=4),
    }
    assert ConfigDiff(arms).arm_without_straggler("slow") == "longer"
    arms["healthy"] = arm(world_size=2)
    assert ConfigDiff(arms).arm_without_straggler("slow") == "healthy"
    assert ConfigDiff(arms).arm_without_straggler("slow", where="longer".__eq__) == "longer"
    del arms["healthy"], arms["longer"]
    assert ConfigDiff(arms).arm_without_straggler("slow") is None


DEALT = {"partition": {"name": "label_shards", "shards": 2}}


def test_one_rank_against_several_on_the_same_deal() -> None:
    arms = {
        "four": arm(world_size=4, **DEALT),
        "two": arm(world_size=2, **DEALT),
        "one-for-four": arm(dealt_to=4, **DEALT),
        "said-twice": arm(world_size=4, dealt_to=4, **DEALT),
        "plain": arm(),
    }
    contrast = ConfigDiff(arms)
    assert (
        single_process_arm("four", contrast)
        == single_process_arm("said-twice", contrast)
        == "one-for-four"
    )
    assert single_process_arm("two", contrast) is None
    assert contrast.partner("four", vary=()) == "said-twice"
    assert (
        single_process_arm("four", ConfigDiff({"four": arm(world_size=4), "plain": arm()}))
        == "plain"
    )


@pytest.mark.parametrize(
    ("more", "same"),
    [
        ({"seeds": 1}, True),
        ({"cores": 1}, True),
        ({"chunk": 8}, True),
        ({"slow": {"compute": 2.0}}, True),
        ({"aggregation": {"strategy": "ring"}}, True),
        ({"sizes": [4], "strategies": ["ring"], "seconds": 1.0}, True),
        ({"split": {"stages": 2}}, True),
        ({"optimizer": {**SGD, "momentum": 0.9}}, False),
        ({"schedule": {"warmup": 3}}, False),
        ({"batch_size": 32}, False),
        ({"epochs": 1.0}, False),
        ({"updates": 5}, False),
        ({"samples": 100}, False),
        ({"model": "deep_mlp"}, False),
        (DEALT, False),
    ],
)
def test_what_makes_several_ranks_another_experiment_than_one(more: dict, same: bool) -> None:
    arms = {"one": arm(), "several": arm(world_size=2, **more)}
    assert (single_process_arm("several", ConfigDiff(arms)) == "one") is same


def test_the_arms_of_the_labs_find_the_same_partners_as_their_validated_selves() -> None:
    """The described experiment (as reports read it) and the validated one (as verdicts use it) find
    the same baseline for every arm of the labs."""
    for path in experiment_files():
        experiment = load(path, arms=["all"])
        typed = ConfigDiff(experiment.arms)
        stored = ConfigDiff(json.loads(json.dumps(experiment.describe()))["arms"])
        assert typed.flat_configs == stored.flat_configs
        for name, each in experiment.arms.items():
            if each.slow is not None:
                base = typed.arm_without_straggler(name)
                assert base is None or experiment.arms[base].slow is None


def test_an_unknown_rule_is_compared_as_it_is_written() -> None:
    lion = {"optimizer": {"name": "lion", "lr": 0.1}}
    contrast = ConfigDiff({"a": lion, "b": {"optimizer": {"name": "lion", "lr": 0.2}}, "c": lion})
    assert contrast.groups(vary=()) == [["a", "c"], ["b"]]
    assert contrast.groups(vary=("optimizer.lr",)) == [["a", "b", "c"]]
    with pytest.raises(ValueError, match="lion"):
        make_arm(lion)
