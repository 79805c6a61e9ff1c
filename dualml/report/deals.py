"""The partitions of a run: which arms share a deal, what was dealt, how its epochs go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dualml.report import ranks
from dualml.store.run import Run, key_of
from dualml.words import numbers
from dualml.words.numbers import plain

Statement = Mapping[str, Any]
#: Settings that go without saying where they have these values.
USUAL: Mapping[str, Any] = {
    "shuffle": True,
    "least": 1,
    "tries": 1000,
    "assigned": [],
    "replacement": True,
    "drop_last": False,
    "whole": False,
}
#: Rules after which the ranks' labels or features differ, by intention.
SKEWED = ("label_shards", "label_classes", "dirichlet_labels", "feature_noise")


@dataclass(frozen=True)
class Deal:
    """A partition for so many ranks, with the arms that train on it and what each seed dealt.

    ``stated``: seed → one statement for each epoch.
    """

    settings: Mapping[str, Any]
    ranks: int
    arms: tuple[str, ...]
    stated: Mapping[int, tuple[Statement, ...]]

    @property
    def text(self) -> str:
        return settings_text(self.settings)

    @property
    def seed(self) -> int:
        """The one that is shown where one is."""
        return min(self.stated)

    @property
    def first(self) -> Statement:
        """The first epoch of that seed."""
        return self.stated[self.seed][0]

    @property
    def all(self) -> list[Statement]:
        """Of every seed and epoch."""
        return [s for statements in self.stated.values() for s in statements]

    def mean(self, what: str) -> float | None:
        """Of a count, over epochs and seeds."""
        return numbers.mean([s.get(what) for s in self.all])

    def skew(self, what: str = "emd") -> tuple[float | None, float | None]:
        """Mean and largest over ranks, epochs and seeds; of ranks without samples nothing."""
        known = [v for s in self.all for v in s.get(what) or () if numbers.known(v)]
        return (sum(known) / len(known), max(known)) if known else (None, None)


def partition(run: Run, arm: str) -> Mapping[str, Any]:
    """The arm's rule with its settings; empty where batches of one order are shared."""
    return run.arms[arm].get("partition") or {}


def rule(run: Run, arm: str) -> str:
    return str(partition(run, arm).get("name") or "")


def settings_text(settings: Mapping[str, Any]) -> str:
    """``label_shards shards=2``; a setting with the rule's own name needs none."""
    name = str(settings.get("name"))
    kept = {k: v for k, v in settings.items() if k != "name" and USUAL.get(k, ...) != v}
    named = [plain(v) if k == name else f"{k}={plain(v)}" for k, v in kept.items()]
    return " ".join([name, *named])


def deals(run: Run) -> list[Deal]:
    """Every distinct deal of the run that the plan states, in the order of the arms."""
    by_key: dict[str, list[str]] = {}
    for arm in run.arms:
        by_key.setdefault(key_of(run.arms[arm], 0), []).append(arm)
    every = []
    for arms in (arms for key, arms in by_key.items() if key):
        # Of arms of different lengths the longest has every epoch; they share the statements.
        stated = {seed: each for seed in run.seeds if (each := run.deals(arms[0], seed))}
        n = int(run.arms[arms[0]].get("dealt_to") or ranks.size(run, arms[0]))
        if stated:
            every.append(Deal(partition(run, arms[0]), n, tuple(arms), stated))
    return every


def deal_of(run: Run, arm: str) -> Deal | None:
    return next((d for d in deals(run) if arm in d.arms), None)


def dealt(run: Run) -> list[str]:
    """Training arms with several ranks and a partition that ran."""
    return [a for a in ranks.several(run) if partition(run, a) and run.select(a)]


def same_samples(run: Run, arms: tuple[str, ...]) -> tuple[int, int]:
    """Of so many arms and seeds that several backends trained, in how many all trained on the same
    samples in the same order."""
    alike = compared = 0
    for arm in arms:
        for seed in run.seeds:
            recorded = [t.samples_sha256 for t in run.select(arm) if t.seed == seed]
            known = [sha256 for sha256 in recorded if sha256]
            compared += len(known) > 1
            alike += len(known) > 1 and len(set(known)) == 1
    return alike, compared
