"""The plan of an experiment on a text, and that plans for images are unchanged by texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.experiment.data import Dataset, load_planned
from dualml.experiment.data import load as load_data
from dualml.experiment.freeze import freeze
from dualml.experiment.load import load
from dualml.experiment.plan import Plan
from dualml.experiment.samples import load_samples
from dualml.experiment.store.plan import restore_plan, save_plan

#: Hashes of the parts of lab1's plan (--quick --data digits) before texts were supported.
EXPERIMENT = "f91875e38eb03d7be7d62f1c6c8d3109c19344a79a0ec06ae733bb5c3bd5741e"
DATA = "e0b9b5fb1f6bf1d2d5fbd23acda11da67ccde67cb644c9ce485b0baf6e29b774"

TOML = """
name = "tiny-text"
model = "rnn_lm"
title = { en = "Tiny", zh = "小" }
[data]
name = "sentences"
train = 60
test = 20
length = 8
[arms.sgd]
optimizer = { name = "sgd", lr = 0.5 }
batch_size = 20
epochs = 2
[arms.two]
group = "ranks"
optimizer = { name = "sgd", lr = 0.5 }
batch_size = 20
world_size = 2
updates = 3
partition = { name = "random_partition" }
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TOML)
    return path


def plan_of(lab: Path, *overrides: str, data: Dataset | None = None) -> Plan:
    experiment = load(str(lab), overrides=overrides, arms=["all"])
    sizes = {"words": experiment.data.words, "length": experiment.data.length}
    return freeze(experiment, data or load_data(experiment.data.name, explicit=True, **sizes))


def test_the_model_is_made_for_the_vocabulary_and_the_windows(lab: Path, tmp_path: Path) -> None:
    plan = plan_of(lab)
    assert (plan.spec.name, plan.spec.input_shape, plan.spec.takes_tokens) == ("rnn_lm", (8,), True)
    assert list(plan.spec.shapes().values())[-1] == (8, 120)
    small = plan_of(lab, "data.words=50", "data.length=5").spec
    assert (small.input_shape, list(small.shapes().values())[-1]) == ((5,), (5, 50))
    told = {k: plan.data[k] for k in ("kind", "words", "length", "vocabulary", "train", "test")}
    assert told == {
        "kind": "text",
        "words": 2000,
        "length": 8,
        "vocabulary": 120,
        "train": 60,
        "test": 20,
    }
    save_plan(plan, tmp_path / "plan")
    again = restore_plan(tmp_path / "plan")
    assert (again.hash, again.spec, again.data) == (plan.hash, plan.spec, plan.data)


def test_words_and_length_are_part_of_the_plan_also_where_the_arrays_are_the_same(
    lab: Path,
) -> None:
    base = plan_of(lab)

    def changed(*overrides: str) -> set[str]:
        other = plan_of(lab, *overrides)
        return {part for part in base.parts if base.parts[part] != other.parts[part]}

    assert plan_of(lab).hash == base.hash
    assert changed("data.words=1999") == {"experiment", "data"}  # there are 120 words
    assert {"data", "experiment"} < changed("data.length=9")


def test_samples_are_tokens_as_they_are(lab: Path) -> None:
    plan = plan_of(lab)
    data = load_planned(plan.data)
    samples = load_samples(plan)
    assert (samples.classes, samples.is_text, samples.train_x.dtype) == (0, True, np.int32)
    assert np.array_equal(samples.train_x, data.train_x[plan.order["train"]])
    assert np.array_equal(samples.train_y, data.train_y[plan.order["train"]])
    assert samples.test_y.shape == (20, 8)


def test_a_file_is_found_again_from_anywhere(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.txt").write_text("a b c d e\n" * 400)
    plan = plan_of(lab, "data.name=my.txt")
    assert (plan.data["name"], plan.data["path"]) == ("my.txt", str(tmp_path.resolve() / "my.txt"))
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "my.txt").write_text("a b c d e\n" * 400)
    assert plan_of(lab, "data.name=moved/my.txt").hash == plan.hash, "the same text elsewhere"
    monkeypatch.chdir("/")
    assert load_samples(plan).train_x.shape == (60, 8)
    (tmp_path / "my.txt").write_text("a b c d f e\n" * 400)
    with pytest.raises(UserError, match=r"dataset my\.txt is not the one of the plan: SHA-256"):
        load_planned(plan.data)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model=lenet"], r"model 'lenet' takes \(1, 28, 28\) images; sentences is a text: use a"),
        (["data.name=digits", "data.length=32"], "'rnn_lm' takes tokens of a text; digits has ima"),
        (["data.name=digits", "model=lenet"], "data.length = 8 is for texts; digits has images"),
        (["data.name=digits", "model=lenet", "data.length=32", "data.words=9"], "data.words = 9"),
        (["loss=mse"], "loss = mse is for images; a text needs cross_entropy"),
        (["data.words=2"], "data.words"),
        (["data.length=0"], "data.length"),
    ],
)
def test_what_does_not_go_together(lab: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        plan_of(lab, *overrides)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "rule", ["label_shards", "label_classes", "feature_noise", "dirichlet_labels"]
)
def test_partitions_by_label_are_refused(lab: Path, rule: str) -> None:
    extra = ["arms.two.partition.alpha=0.5"] if rule == "dirichlet_labels" else []
    needs = "images" if rule == "feature_noise" else "labels"
    with pytest.raises(UserError, match=f"arms.two.partition: {rule} needs {needs}, and a text"):
        plan_of(lab, f"arms.two.partition.name={rule}", *extra)


@pytest.mark.parametrize(
    "rule",
    [
        "contiguous",
        "round_robin",
        "random_partition",
        "bootstrap",
        "random_sampling",
        "distributed_sampler",
        "power_law_sizes",
    ],
)
def test_partitions_by_number_deal_windows(lab: Path, rule: str) -> None:
    plan = plan_of(lab, f"arms.two.partition.name={rule}")
    (stated,) = plan.deals.values()
    assert stated[0]["samples"] == 60
    assert "histogram" not in stated[0]
    assert len(plan.batch_sampler(plan.experiment.arms["two"], 0).batch(1)) == 20


def test_plans_of_images_are_what_they_were() -> None:
    digits = load_data("digits", explicit=True)
    plan = freeze(load("lab1", data="digits", quick=True), digits)
    assert plan.parts["experiment"] == EXPERIMENT
    assert plan.parts["data"] == DATA
    assert set(plan.experiment.describe()["data"]) == {"name", "train", "test"}
    assert not {"kind", "words", "length", "path"} & set(plan.data)


def test_settings_of_a_text_are_described_only_where_they_were_set(lab: Path) -> None:
    assert set(load(str(lab)).describe()["data"]) == {"name", "train", "test", "length"}
