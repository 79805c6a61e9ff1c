"""Random partitions and the distributions they must show."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dualml.parallel.partition import (
    Bootstrap,
    DirichletLabels,
    DirichletSizes,
    LabelClasses,
    RandomPartition,
    RandomSampling,
    verify_partition,
)

MNIST_LIKE = np.random.default_rng(0).integers(0, 10, 6000)


@pytest.mark.parametrize("rule", [LabelClasses, DirichletLabels])
def test_chance_decides_which_samples_of_a_label_a_rank_gets(rule: type[LabelClasses]) -> None:
    fields = {"classes": 1} if rule is LabelClasses else {"alpha": 100.0}
    parts = rule(**fields, shuffle=False).partition(np.zeros(61, int), 3)
    assert all(np.diff(part).max() > 1 for part in parts)
    longest = {
        np.argmax([len(p) for p in rule(**fields).partition(np.zeros(61, int), 3, seed)])
        for seed in range(20)
    }
    assert longest == {0, 1, 2}


def mean_emd(alpha: float) -> float:
    rule = DirichletLabels(alpha=alpha, least=0)
    told = [
        verify_partition(rule, rule.partition(MNIST_LIKE, 5, seed), MNIST_LIKE)
        for seed in range(12)
    ]
    return float(np.mean([e for t in told for e in t.emd or () if e is not None]))


def test_dirichlet_labels_are_the_more_skewed_the_smaller_alpha_is() -> None:
    found = [mean_emd(alpha) for alpha in (1000, 10, 1, 0.1, 0.01)]
    assert found == sorted(found)
    assert found[0] < 0.02
    assert found[-1] > 0.6


@pytest.mark.parametrize("alpha", [0.05, 0.5, 5.0])
def test_dirichlet_shares_have_the_variance_of_the_distribution(alpha: float) -> None:
    """Var p = (1/k)(1 - 1/k)/(kα + 1), of sizes and of the shares of one label."""
    n, k = 1000, 4
    expected = (1 / k) * (1 - 1 / k) / (k * alpha + 1)
    for rule, samples in (
        (DirichletSizes(alpha=alpha, least=0), n),
        (DirichletLabels(alpha=alpha, least=0), np.zeros(n, int)),
    ):
        sizes = np.array(
            [[len(p) for p in rule.partition(samples, k, seed)] for seed in range(400)]
        )
        assert (sizes.sum(1) == n).all()
        squares = ((sizes / n - 1 / k) ** 2).mean(1)
        error = squares.std() / math.sqrt(len(squares))
        assert abs(squares.mean() - expected) < 4 * error


@pytest.mark.parametrize("rule", [DirichletSizes, DirichletLabels])
def test_alphas_at_the_ends_of_float64(rule: type[DirichletSizes]) -> None:
    labels = np.arange(60) % 3
    assert [len(p) for p in rule(alpha=1e308).partition(labels, 4)] == [15] * 4
    sizes = [len(p) for p in rule(alpha=1e-320, least=0).partition(labels, 4)]
    assert sorted(sizes)[-1] == 60 or rule is DirichletLabels
    assert set(sizes) <= {0, 20, 40, 60}


def test_dirichlet_draws_again_until_every_rank_has_enough() -> None:
    once, patient = (DirichletSizes(alpha=0.5, least=least) for least in (0, 8))
    scarce = [seed for seed in range(30) if min(map(len, once.partition(60, 3, seed))) < 8]
    assert len(scarce) > 10
    assert all(min(map(len, patient.partition(60, 3, seed))) >= 8 for seed in scarce)


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("ranks", [1, 3])
def test_random_sampling_misses_as_many_as_expected(replacement: bool, ranks: int) -> None:
    n, rule = 200, RandomSampling(replacement=replacement)
    missed = []
    for epoch in range(300):
        told = verify_partition(rule, rule.partition(n, ranks, 3, epoch), n)
        missed.append(told.missed / n)
        assert replacement or told.repeated == 0
    error = np.std(missed) / math.sqrt(len(missed))
    assert abs(np.mean(missed) - rule.expected_missed_share(n, ranks)) <= 4 * error
    known = {(False, 1): 0, (False, 3): 0.2963}.get((replacement, ranks), 0.3670)
    assert rule.expected_missed_share(n, ranks) == pytest.approx(known, abs=2e-4)


def test_every_sample_is_as_likely_as_every_other() -> None:
    n, deals = 30, 600
    for rule in (RandomPartition(), RandomSampling(), Bootstrap()):
        counts = np.zeros((3, n))
        for seed in range(deals):
            for rank, part in enumerate(rule.partition(n, 3, seed)):
                np.add.at(counts[rank], part, 1)
        chi = ((counts - deals / 3) ** 2 / (deals / 3)).sum()
        assert chi < 3 * n + 6 * math.sqrt(2 * 3 * n)  # about χ² with 3n degrees of freedom


def test_a_whole_bootstrap_has_63_percent_of_the_samples() -> None:
    parts = Bootstrap(whole=True).partition(5000, 3)
    assert [len(p) for p in parts] == [5000] * 3
    assert [len(np.unique(p)) / 5000 for p in parts] == pytest.approx(
        [1 - 1 / math.e] * 3, abs=0.02
    )
