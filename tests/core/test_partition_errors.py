"""Refused partitions: a one-line error with the numbers and the remedy."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from partition_cases import LABELS, deal_to_file, fixed, refusal_of

from dualml.parallel.partition import (
    PARTITIONS,
    Contiguous,
    DirichletLabels,
    DirichletSizes,
    Fractions,
    LabelClasses,
    LabelShards,
    partition_from,
    partition_stats,
    verify_partition,
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    deal_to_file(LABELS, 3)


# --- settings ------------------------------------------------------------------------------------

#: Settings in an experiment file, and the error.
SPECS: list[tuple[dict[str, Any], str]] = [
    ({}, "a partition needs a name; known: bootstrap, contiguous"),
    ({"name": 3}, "unknown partition 3; known: "),
    ({"name": "label_shard"}, "unknown partition 'label_shard'; did you mean 'label_shards'?"),
    ({"name": "bootstrap", "hole": 1}, "'bootstrap' has no setting 'hole'; did you mean 'whole'?"),
    ({"name": "contiguous", "x": 1}, "'contiguous' has no setting 'x'; known: shuffle"),
    ({"name": "dirichlet_labels"}, "partition 'dirichlet_labels' needs alpha"),
    ({"name": "fractions"}, "partition 'fractions' needs fractions"),
    ({"name": "file"}, "partition 'file' needs path"),
    ({"name": "file", "path": 3}, "file: path must be a str; received path = 3"),
    ({"name": "contiguous", "shuffle": 1}, "shuffle must be a bool; received shuffle = 1"),
    ({"name": "label_shards", "shards": 2.0}, "shards must be a int; received shards = 2.0"),
    ({"name": "label_shards", "shards": True}, "shards must be a int; received shards = True"),
    ({"name": "label_shards", "shards": 0}, "at least one shard; received shards = 0"),
    ({"name": "label_classes", "classes": 0}, "at least one class; received classes = 0"),
    ({"name": "power_law_sizes", "exponent": -1}, "0 or more; received exponent = -1.0"),
    ({"name": "power_law_sizes", "exponent": float("inf")}, "received exponent = inf"),
    ({"name": "feature_noise", "sigma": -0.5}, "sigma must be 0 or more; received sigma = -0.5"),
    ({"name": "feature_noise", "sigma": float("nan")}, "received sigma = nan"),
    *(
        ({"name": f"dirichlet_{what}", "alpha": 1, **fields}, told)
        for what in ("labels", "sizes")
        for fields, told in (
            ({"alpha": 0}, "alpha must be above 0; received alpha = 0.0"),
            ({"alpha": -0.1}, "alpha must be above 0; received alpha = -0.1"),
            ({"alpha": float("nan")}, "alpha must be above 0; received alpha = nan"),
            ({"alpha": float("inf")}, "alpha must be above 0; received alpha = inf"),
            ({"alpha": True}, "alpha must be a float; received alpha = True"),
            ({"alpha": "0.1"}, "alpha must be a float; received alpha = '0.1'"),
            ({"alpha": [1]}, "alpha must be a float; received alpha = (1,)"),
            ({"least": -1}, "least must be 0 or more; received least = -1"),
            ({"tries": 0}, "at least one try; received tries = 0"),
        )
    ),
    *(
        ({"name": "fractions", "fractions": value}, f"fractions: {told}; received fractions = ")
        for value, told in (
            ([], "give a share for each rank"),
            (0.5, "give a share for each rank"),
            ("0.5", "give a share for each rank"),
            ({"a": 1}, "give a share for each rank"),
            ([0.5, "0.5"], "give a share for each rank"),
            ([True], "give a share for each rank"),
            ([[1.0]], "give a share for each rank"),
            ([1.5, -0.5], "a share is from 0 to 1"),
            ([float("nan"), 1], "a share is from 0 to 1"),
            ([float("inf")], "a share is from 0 to 1"),
            ([0.5, 0.4], "shares add up to 0.9 instead of 1"),
            ([0.7, 0.7], "shares add up to 1.4 instead of 1"),
        )
    ),
    *(
        ({"name": "label_classes", "assigned": value}, "give a list of labels for each rank; rece")
        for value in (3, "01", [0, 1], [["a"], [1]], [[1.5]], [[[1]]], {"0": [1]})
    ),
]


@pytest.mark.parametrize(("spec", "told"), SPECS, ids=lambda v: None if isinstance(v, str) else "")
def test_settings_that_cannot_be_meant(spec: dict[str, Any], told: str) -> None:
    assert told in refusal_of(partition_from, spec)


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_rule_and_its_description_are_the_same(name: str) -> None:
    rule = fixed(name)
    told = json.loads(json.dumps(rule.describe()))
    assert partition_from(told) == rule
    assert type(rule) is PARTITIONS[name]


def test_lists_of_labels_survive_the_description() -> None:
    rule = LabelClasses(assigned=((0, 1), (2,)))
    assert rule.describe()["assigned"] == [[0, 1], [2]]
    assert partition_from(rule.describe()) == rule


# --- samples and ranks ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize(("n", "ranks"), [(5, 6), (5, 0), (5, -1), (0, 1)])
def test_ranks_that_the_samples_do_not_suffice_for(name: str, n: int, ranks: int) -> None:
    text = refusal_of(fixed(name).partition, LABELS[:n], ranks)
    assert text == f"{name}: {ranks} ranks cannot share {n} samples; use 1 to {n} ranks"


def test_rules_that_need_labels_say_so() -> None:
    asked = [name for name in PARTITIONS if fixed(name).needs_labels]
    assert asked == ["label_shards", "label_classes", "dirichlet_labels", "file"]
    for name in asked:
        told = refusal_of(fixed(name).partition, 60, 3)
        assert (
            told == f"{name} partitions by label; give the labels of the 60 samples instead of "
            "their number"
        )


def test_settings_for_another_number_of_ranks() -> None:
    told = refusal_of(Fractions(fractions=(0.5, 0.5)).partition, 9, 3)
    assert told == "fractions: 2 shares for 3 ranks; give one for each"
    told = refusal_of(LabelClasses(assigned=((0,), (1,))).partition, LABELS, 3)
    assert told == "label_classes: assigned has 2 lists of labels for 3 ranks; give one for each"


def test_labels_that_no_sample_has() -> None:
    told = refusal_of(LabelClasses(assigned=((0, 7), (-1, 1))).partition, LABELS, 2)
    assert told == "label_classes: no sample has the label -1, 7; labels are 0, 1, 2, 3, 4, 5"
    told = refusal_of(LabelClasses(classes=7).partition, LABELS, 2)
    assert told == "label_classes: 7 classes for each rank, but the samples have only 6"


def test_more_shards_than_samples() -> None:
    told = refusal_of(LabelShards(shards=21).partition, LABELS, 3)
    assert told == "label_shards: 3 ranks with 21 shards each need 63 samples; there are 60"


@pytest.mark.parametrize("rule", [DirichletLabels, DirichletSizes])
def test_least_that_cannot_be_met_is_refused_before_drawing(rule: type[DirichletSizes]) -> None:
    patient = rule(alpha=1, least=21, tries=10**9)
    told = refusal_of(patient.partition, LABELS, 3)
    assert told.endswith("3 ranks with least = 21 samples each need 63; there are 60")


@pytest.mark.parametrize("rule", [DirichletLabels, DirichletSizes])
def test_least_that_no_draw_met(rule: type[DirichletSizes]) -> None:
    begin = time.process_time()
    told = refusal_of(rule(alpha=0.01, least=12).partition, LABELS, 5)
    assert time.process_time() - begin < 5
    assert f"{rule.name}: in 1000 draws with alpha = 0.01 the smallest of 5 ranks never had" in told
    assert "12 of 60 samples (at best " in told
    assert told.endswith("set least = 0 to allow ranks without samples")


def test_ranks_without_samples() -> None:
    for rule in (
        DirichletLabels(alpha=0.01, least=0),
        DirichletSizes(alpha=0.01, least=0),
        partition_from({"name": "power_law_sizes", "exponent": 40}),
        Fractions(fractions=(0.5, 0.0, 0.5, 0.0)),
    ):
        labels = LABELS % 2
        parts = rule.partition(labels, 4)
        told = verify_partition(rule, parts, labels)
        assert told.empty == [rank for rank in range(4) if not len(parts[rank])] != []
        assert all(told.emd[r] is None for r in told.empty)  # type: ignore[index]


# --- statements ----------------------------------------------------------------------------------


def test_a_list_with_a_number_that_is_no_sample() -> None:
    told = refusal_of(partition_stats, [np.array([0, 1]), np.array([2, 9, -1])], 9)
    assert told == "rank 1 has sample 9, but there are only 9, from 0"
    assert "rank 0 has sample -1" in refusal_of(partition_stats, [np.array([-1])], 9)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([[0, 1], [1, 2]], "promises disjoint parts; 0 samples are repeated and 1 shared"),
        ([[0, 0], [2, 3]], "promises disjoint parts; 1 samples are repeated and 0 shared"),
        ([[0, 1], [2]], "promises every sample to a rank; 1 of 4 are missing"),
        ([[0], [1, 2, 3]], "promises parts of [2, 2] samples; found [1, 3]"),
    ],
)
def test_a_broken_promise(parts: list[list[int]], told: str) -> None:
    arrays = [np.array(p, np.int64) for p in parts]
    assert refusal_of(verify_partition, Contiguous(), arrays, 4) == f"contiguous {told}"
