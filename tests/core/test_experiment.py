"""Experiment files: what is accepted, and the one-line error for what is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import dualml

from dualml.common.errors import UserError
from dualml.experiment.load import load
from dualml.experiment.schema import Experiment

GOOD = """
name = "tiny"
model = "softmax"
title = { en = "Tiny" }
[data]
name = "digits"
[arms.a]
optimizer = { name = "sgd", lr = 0.1 }
[arms.b]
group = "extra"
optimizer = { name = "adam", lr = 1 }
[quick]
arms.a = { epochs = 1 }
"""


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    path = tmp_path / "tiny.toml"
    path.write_text(GOOD)
    return str(path)


@pytest.mark.parametrize("most", ["true", "0", "1.5", '"2"'])
def test_quick_updates_are_a_whole_number(tmp_path: Path, most: str) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(GOOD.replace("[quick]", f"[quick]\nupdates = {most}"))
    with pytest.raises(UserError, match=r"quick\.updates must be a whole number of at least 1"):
        load(str(path), quick=True)


def test_shipped_experiments_are_valid_also_quick() -> None:
    for quick in (False, True):
        lab1 = load("lab1", arms=["all"], quick=quick)
        assert {"gd", "sgd", "adam"} <= set(lab1.arms)
        assert set(lab1.title) == {"en", "zh"}


def test_describe_is_read_back_unchanged() -> None:
    lab1 = load("lab1", arms=["all"], quick=True)
    assert Experiment.model_validate(lab1.describe()).describe() == lab1.describe()


def test_main_group_is_the_default_and_groups_can_be_named(tiny: str) -> None:
    assert list(load(tiny).arms) == ["a"]
    assert list(load(tiny, arms=["extra"]).arms) == ["b"]
    assert list(load(tiny, arms=["all"]).arms) == ["a", "b"]


def test_settings_of_models_that_were_not_selected_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "sized.toml"
    path.write_text(
        GOOD.replace("[arms.b]", "[sizes]\nwidth = 8\nheads = 2\n[recurrent]\nlayers = 1\n[arms.b]")
        + "[arms.g]\nmodel = 'gpt'\nupdates = 1\noptimizer = { name = 'sgd', lr = 1 }\n"
        "[arms.r]\nmodel = 'rnn_lm'\nupdates = 1\noptimizer = { name = 'sgd', lr = 1 }\n"
    )
    for arm, left in (("a", set()), ("g", {"sizes"}), ("r", {"recurrent"})):
        described = load(str(path), arms=[arm]).describe()
        assert set(described) & {"sizes", "recurrent"} == left
        assert Experiment.model_validate(described).describe() == described


def test_quick_selects_the_same_arms_with_other_numbers_of_ranks() -> None:
    for lab in ("lab2", "lab3"):
        names = [name.replace("-n2", "-n4") for name in load(lab, quick=True).arms]
        arms = load(lab, quick=True, world_size=4).arms
        assert list(arms) == names
        shares = {name: arm for name, arm in arms.items() if name == "fractions"}
        assert {a.world_size for n, a in arms.items() if n not in shares} == {1, 4}
        assert all(arm.world_size == 2 for arm in shares.values()), "a share for each of two ranks"


@pytest.mark.parametrize("quick", [True, False])
def test_every_partition_of_lab3_fits_other_numbers_of_ranks(quick: bool) -> None:
    for arm in load("lab3", quick=quick, world_size=8).arms.values():
        if partition := arm.plan_partition:
            partition.sizes(960, arm.partition_rank_count)
    arms = load("lab3", arms=["all"], quick=quick, world_size=8).arms
    assert arms["random-partition-one"].partition_rank_count == 8, "else it is no counterpart"


def test_a_partition_that_lists_the_labels_of_each_rank_keeps_its_ranks(tmp_path: Path) -> None:
    path = tmp_path / "labels.toml"
    labels = "partition = { name = 'label_classes', assigned = [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]] }"
    arm = "updates = 1\noptimizer = { name = 'sgd', lr = 1 }\nworld_size = 2\n"
    own = f"[arms.labels]\n{arm}{labels}\n[arms.ring]\n{arm}"
    path.write_text(re.split(r"^\[arms", GOOD, maxsplit=1, flags=re.M)[0] + own)
    arms = load(str(path), world_size=5).arms
    assert {name: arm.world_size for name, arm in arms.items()} == {"labels": 2, "ring": 5}


def test_quick_makes_no_arm_longer_than_it_says(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    path.write_text(
        GOOD.replace(
            "[quick]",
            "updates = 90\n[arms.c]\nupdates = 5\n"
            "optimizer = { name = 'sgd', lr = 1 }\n[quick]\nupdates = 30",
        )
    )
    quick = load(str(path), arms=["all"], quick=True)
    updates = {name: arm.updates for name, arm in quick.arms.items()}
    assert updates == {"a": 0, "b": 30, "c": 5}
    assert load(str(path), arms=["b"]).arms["b"].updates == 90
    path.write_text(path.read_text().replace("updates = 30", "updates = 0"))
    with pytest.raises(UserError, match=r"quick\.updates must be a whole number of at least 1"):
        load(str(path), quick=True)


def test_overrides_beat_quick_and_quick_beats_the_file(tiny: str) -> None:
    assert load(tiny).arms["a"].epochs == 3.0
    assert load(tiny, quick=True).arms["a"].epochs == 1.0
    assert load(tiny, quick=True, overrides=["arms.a.epochs=2"]).arms["a"].epochs == 2.0


def test_seeds_and_data_replace_the_files(tiny: str) -> None:
    found = load(tiny, seeds=[3, 4], data="mnist")
    assert (found.seeds, found.data.name) == ([3, 4], "mnist")


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (1, [3]),
        (2, [3, 4]),
        (3, [3, 4, 5]),
        (9, [3, 4, 5]),
        (0, [3, 4, 5]),
    ],
)
def test_an_arm_may_take_the_first_seeds_alone(tiny: str, told: int, wanted: list[int]) -> None:
    set_so = [f"arms.a.seeds={told}"]
    found = load(tiny, arms=["all"], seeds=[3, 4, 5], overrides=set_so)
    assert {arm: found.seeds_of(arm) for arm in found.arms} == {"a": wanted, "b": [3, 4, 5]}
    described = found.describe()
    assert described["seeds"] == [3, 4, 5]
    # Said only where it was said.
    assert [arm.get("seeds") for arm in described["arms"].values()] == [told or None, None]
    assert Experiment.model_validate(described).seeds_of("a") == wanted


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("arms.a.optimizer.lrr=1", "did you mean 'lr'"),
        ("arms.a.optimizer.lr=-1", "0 < lr"),
        ("arms.a.optimizer.lr=abc", "lr='abc'"),
        ("arms.a.optimizer.nesterov=yes", "true or false"),
        ("arms.a.optimizer.name=sdg", "did you mean 'sgd'"),
        ("arms.a.optimizer=3", "name one of its keys"),
        ("arms.aa.epochs=1", "no arm 'aa'; did you mean 'a'"),
        ("arms.a.batchsize=1", "did you mean 'batch_size'"),
        ("arms.a.batch_size=-1", "greater than or equal to 0; received -1"),
        ("arms.a.batch_size=1.5", "valid integer"),
        ("arms.a.epochs=0", "greater than 0"),
        ("arms.a.seeds=-1", "arms.a.seeds: .*greater than or equal to 0; received -1"),
        ("arms.a.seeds=1.5", "arms.a.seeds: .*valid integer; received 1.5"),
        ("arms.a.seeds=true", "arms.a.seeds: .*valid integer"),
        ("arms.a.seeds=[0]", "arms.a.seeds: .*valid integer"),
        ("arms.a.seed=1", "did you mean 'seeds'"),
        ("arms.a.schedule.kind=cosin", "constant, step or cosine"),
        ("arms.a.schedule.knd=1", "knd"),
        ("arms.b.optimizer.betas=3", "two numbers"),
        ("arms.b.optimizer.betas=[0.9, 1.0]", r"\[0, 1\)"),
        ("arms.b.optimizer.eps=inf", "eps < inf"),
        ("data.nam=1", "did you mean 'name'"),
        ("data=1", "data.name"),
        ("model=lenett", "did you mean 'lenet'"),
        ("loss=crossentropy", "cross_entropy"),
        ("seeds=[]", "at least 1"),
        ("seeds=[1, 1]", "differ"),
        ("parity.margin=0.5", "greater than or equal to 1"),
        ("nonsense", "KEY=VALUE"),
        (".a=1", "KEY=VALUE"),
        ("name.x=1", "is a value, not a table"),
    ],
)
def test_wrong_overrides_are_one_clear_line(tiny: str, override: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        load(tiny, overrides=[override])
    assert "\n" not in str(error.value)


def test_gd_needs_the_full_batch(tiny: str) -> None:
    with pytest.raises(UserError, match="batch_size = 0"):
        load(tiny, overrides=["arms.a.optimizer={name='gd', lr=1}"])


@pytest.mark.parametrize(
    ("lab", "words"),
    [
        ("lap1", "did you mean 'lab1'"),
        ("nowhere.toml", "no experiment file"),
    ],
)
def test_unknown_labs(lab: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        load(lab)


def test_an_arm_and_a_group_of_one_name_are_refused(tiny: str) -> None:
    with pytest.raises(UserError, match="'main' names an arm and a group"):
        load(tiny, overrides=["arms.main = { optimizer = { name = 'sgd', lr = 0.1 } }"])


def test_unknown_arm_names_the_nearest(tiny: str) -> None:
    with pytest.raises(UserError, match="did you mean 'extra'"):
        load(tiny, arms=["extrra"])


def test_invalid_toml_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text('name = "x"\nmodel = = 3\n')
    with pytest.raises(UserError, match=r"broken\.toml: not valid TOML: .*line 2") as error:
        load(str(path))
    assert "\n" not in str(error.value)


def test_missing_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "short.toml"
    path.write_text(GOOD.replace('model = "softmax"', ""))
    with pytest.raises(UserError, match="model is missing"):
        load(str(path))


def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(b'name = "\xff"')
    with pytest.raises(UserError, match="cannot be read"):
        load(str(path))


def test_quick_without_a_quick_table(tmp_path: Path) -> None:
    path = tmp_path / "slow.toml"
    path.write_text(GOOD.partition("[quick]")[0])
    with pytest.raises(UserError, match="no \\[quick\\] table"):
        load(str(path), quick=True)


def test_show_tells_arms_apart_by_what_varies_in_their_group() -> None:
    done = dualml("show", "lab3", env={"COLUMNS": "160"})
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert lines["weak-2"] == ["2", "2048"]
    assert lines["batch-1024-warm-up"] == ["0.32", "1024", "constant(warmup=20)"]
    assert lines["skew-dirichlet-01"][:3] == ["4", "2", "dirichlet_labels(alpha=0.1)"]
    heads = [line.split() for line in done.stdout.splitlines() if line.startswith("arm ")]
    assert ["arm", "optimizer.lr", "samples", "schedule"] in [
        ["arm", "optimizer.lr", "samples", "schedule"] if "schedule" in h else h for h in heads
    ]
    assert "weak (weak scaling): optimizer.lr 0.1, updates 120" in done.stdout
    assert "optimizer sgd" in done.stdout.splitlines()[1]  # what all of them have


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_folds_settings_and_loses_none(width: int) -> None:
    for lab in ("lab2", "lab3", "lab4"):
        done = dualml("show", lab, env={"COLUMNS": str(width)})
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert max(map(len, lines)) <= width
        for arm in load(lab, arms=["all"]).arms:
            assert any(line.startswith(arm) for line in lines), arm
        assert "…" not in done.stdout
        assert lab != "lab4" or re.search(r"^rpc-3 .* rp?", done.stdout, re.M)


def test_show_speaks_chinese() -> None:
    assert "弱扩展" in dualml("show", "lab3", "--lang", "zh").stdout
