"""Single partition rules with results known in advance."""

from __future__ import annotations

import doctest
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualml.parallel.partition import (
    Contiguous,
    DistributedSampler,
    FeatureNoise,
    Fractions,
    LabelClasses,
    LabelShards,
    PowerLawSizes,
    RoundRobin,
    base,
    verify_partition,
)
from dualml.parallel.partition.base import apportion
from dualml.parallel.partition.distributed_sampler import torch_permutation

MNIST_LIKE = np.random.default_rng(0).integers(0, 10, 6000)


def lists(parts: list[np.ndarray]) -> list[list[int]]:
    return [part.tolist() for part in parts]


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(base).attempted >= 1
    assert doctest.testmod(base).failed == 0


def test_blocks_and_cards() -> None:
    assert lists(Contiguous(shuffle=False).partition(8, 3)) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert lists(RoundRobin(shuffle=False).partition(8, 3)) == [[0, 3, 6], [1, 4, 7], [2, 5]]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9).filter(any), st.integers(0, 10**9))
def test_rounded_shares_add_up_and_are_off_by_less_than_one(shares: list[float], n: int) -> None:
    exact = np.array(shares) / math.fsum(shares) * n
    sizes = apportion(np.array(shares) / math.fsum(shares), n)
    assert sum(sizes) == n
    assert np.abs(sizes - exact).max() < 1 + 1e-6


def test_fractions_are_rounded_by_the_largest_remainder() -> None:
    rule = Fractions(fractions=(0.7, 0.2, 0.1))
    assert [len(p) for p in rule.partition(60_000, 3)] == [42_000, 12_000, 6_000]
    assert [len(p) for p in rule.partition(11, 3)] == [8, 2, 1]  # 7.7, 2.2, 1.1
    assert [len(p) for p in Fractions(fractions=(0, 1, 0)).partition(9, 3)] == [0, 9, 0]


@pytest.mark.parametrize("shares", [(0.5, 0.5000009), (0.3333331,) * 3, (0.5, 0.4999991)])
def test_fractions_that_nearly_add_up_still_deal_every_one_of_many(shares: tuple[float]) -> None:
    """Fractions that nearly add up assign every one of 10⁷ samples: nine fall into the allowed
    millionth."""
    assert sum(Fractions(fractions=shares).sizes(10**7, len(shares))) == 10**7


@given(st.integers(1, 9), st.integers(1, 10), st.integers(0, 99))
def test_label_classes_go_round(ranks: int, classes: int, seed: int) -> None:
    labels = np.arange(300) % 10
    parts = LabelClasses(classes=classes).partition(labels, ranks, seed)
    told = verify_partition(LabelClasses(classes=classes), parts, labels)
    table = np.array(told.histogram)
    assert ((table > 0).sum(1) == classes).all()
    owners = (table > 0).sum(0)
    assert owners.max() - owners.min() <= 1
    for column in table.T[owners > 0]:  # the owners share a label's 30 samples nearly equally
        mine = column[column > 0]
        assert mine.sum() == 30
        assert mine.max() - mine.min() <= 1
    assert told.covering == (ranks * classes >= 10)


def test_label_classes_are_drawn_and_can_be_assigned() -> None:
    labels = np.arange(300) % 10
    seen = {tuple(np.unique(labels[LabelClasses().partition(labels, 3, s)[0]])) for s in range(20)}
    assert len(seen) > 10
    rule = LabelClasses(assigned=((0, 1), (1, 9), ()))
    found = [Counter(labels[p].tolist()) for p in rule.partition(labels, 3)]
    assert found == [{0: 30, 1: 15}, {1: 15, 9: 30}, {}]
    assert verify_partition(rule, rule.partition(labels, 3), labels).empty == [2]
    assert rule.guarantees(labels, 3).covering is False
    halves = LabelClasses(assigned=((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)))
    assert halves.guarantees(labels, 2).covering
    assert verify_partition(halves, halves.partition(labels, 2), labels).sizes == [150, 150]


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 99))
def test_label_shards_are_runs_of_the_samples_sorted_by_label(
    ranks: int, shards: int, seed: int
) -> None:
    labels = np.random.default_rng(seed).integers(0, 5, 200)
    place = np.argsort(np.argsort(labels, kind="stable"))  # of each sample in the sorted dataset
    parts = LabelShards(shards=shards, shuffle=False).partition(labels, ranks, seed)
    for part in parts:
        runs = np.split(place[part], np.flatnonzero(np.diff(place[part]) != 1) + 1)
        assert len(runs) <= shards  # neighbouring shards are one run
        assert abs(len(part) - 200 / ranks) < shards
    # A shard has one label, and one more for each of the 4 borders between labels inside it.
    assert sum(len(np.unique(labels[p])) for p in parts) <= ranks * shards + 4
    if 200 % (ranks * shards) == 0:
        assert {len(p) for p in parts} == {200 // ranks}


def test_two_shards_of_mnist_have_at_most_four_labels() -> None:
    parts = LabelShards().partition(MNIST_LIKE, 100)
    kinds = [len(np.unique(MNIST_LIKE[p])) for p in parts]
    assert max(kinds) <= 4
    assert np.mean(kinds) < 2.3


def test_power_law_sizes() -> None:
    assert PowerLawSizes(exponent=0).sizes(10, 4) == [3, 3, 2, 2]
    for exponent in (0.5, 1.0, 2.0):
        sizes = np.array(PowerLawSizes(exponent=exponent).sizes(10**6, 8))
        assert sizes / sizes[0] == pytest.approx(np.arange(1, 9) ** -exponent, abs=2e-5)
    rule = PowerLawSizes(exponent=50)
    assert verify_partition(rule, rule.partition(10, 4), 10).empty == [1, 2, 3]


def test_distributed_sampler_fills_up_or_leaves_out() -> None:
    plain = DistributedSampler(shuffle=False).partition(11, 4)
    assert lists(plain) == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 0]]
    short = DistributedSampler(shuffle=False, drop_last=True).partition(11, 4)
    assert lists(short) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    order = torch_permutation(11, 5 + 2)
    for drop in (False, True):
        parts = DistributedSampler(drop_last=drop).partition(11, 4, seed=5, epoch=2)
        dealt = np.stack(parts).T.ravel()  # as the cards were dealt
        assert dealt.tolist() == ([*order[:8]] if drop else [*order, order[0]])


def test_the_permutation_of_pytorch() -> None:
    """The permutation equals ``torch.randperm(10,
    generator=torch.Generator().manual_seed(seed))``."""
    assert torch_permutation(10, 0).tolist() == [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]
    assert torch_permutation(10, 2**32).tolist() == torch_permutation(10, 0).tolist()
    assert torch_permutation(1, 0).tolist() == [0]


def test_feature_noise_has_its_owners_deviation_and_ignores_the_epoch() -> None:
    x = np.random.default_rng(1).standard_normal((3000, 1, 4, 4)).astype(np.float32)
    kept, rule = x.copy(), FeatureNoise(sigma=0.9)
    first, second = rule.partition(3000, 3, 7, 0), rule.partition(3000, 3, 7, 1)
    noisy = rule.features(x, first, 7)
    assert np.array_equal(x, kept)
    assert noisy.dtype == np.float32
    assert not np.shares_memory(noisy, x)
    for part, level in zip(first, (0.3, 0.6, 0.9), strict=True):
        noise = (noisy - x)[part]
        assert noise.std() == pytest.approx(level, rel=0.03)
        assert abs(noise.mean()) < 4 * level / math.sqrt(noise.size)
    assert rule.levels(3) == pytest.approx([0.3, 0.6, 0.9])
    assert np.array_equal(rule.features(x, second, 7), noisy)
    assert not np.array_equal(rule.features(x, first, 8), noisy)
    clean = FeatureNoise(sigma=0).features(x, first, 7)
    assert np.array_equal(clean, x)
    assert not np.shares_memory(clean, x)
