"""The result of comparing two runs: for scripts, for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualml.common.files import nonfinite_to_none
from dualml.common.json_types import JsonObject
from dualml.common.words import Messages, numbers
from dualml.experiment.comparison import Comparison
from dualml.experiment.store.manifest import RunRecord
from dualml.experiment.verdict import AGREEING
from dualml.parity.against.pair import Change, RunPair
from dualml.parity.against.sentences import describe_divergence, describe_worst, trial_name

KIND, FORMAT = "dualml-against", 1
#: Maximum number of pairs, settings and environment changes that a paragraph names; the table has
#: all of them.
MAX_NAMED_ITEMS = 3
#: The cost that each limit applies to.
COSTS = {"slower": "time", "more_memory": "memory"}


@dataclass(frozen=True)
class ExceededLimit:
    """A limit on time or memory that a pair of trials exceeds.

    Attributes:
        limit: ``slower`` or ``more_memory``.
        ratio, max_ratio: the measured ratio of B's cost to A's, and the largest allowed.
    """

    limit: str
    pair: RunPair
    ratio: float
    max_ratio: float


@dataclass(frozen=True, kw_only=True, repr=False)
class RunComparison(Comparison):
    """The verdict on two runs, the worst of all pairs of trials: a `Comparison` whose ``sides`` are
    the paths of both as the user gave them.

    Attributes:
        runs: their ``run.json`` records.
        margin: a distance is outside when it exceeds ``margin`` × the rounding envelope.
        pairs: every selected trial of A, with its partner in B.
        environment: versions, machine properties and thread counts that differ in B.
        unmet: training arms of B that are compared with nothing in A; empty if arms were selected.
        limits: the limits ``slower`` and ``more_memory`` that were given.
    """

    runs: tuple[RunRecord, RunRecord]
    margin: float
    pairs: tuple[RunPair, ...]
    environment: tuple[Change, ...]
    unmet: tuple[str, ...]
    limits: Mapping[str, float]

    @property
    def folders(self) -> tuple[str, str]:
        """Paths of both runs as the user gave them."""
        return self.sides

    @property
    def failures(self) -> list[ExceededLimit]:
        """One entry for each pair whose ratio B / A exceeds a limit on time or memory that was
        given; a pair without recorded costs exceeds none."""
        return [
            ExceededLimit(name, pair, cost.ratio, most)
            for name, most in self.limits.items()
            for pair in self.pairs
            if (cost := pair.costs.get(COSTS[name])) and cost.ratio > most
        ]

    @property
    def passed(self) -> bool:
        """Whether every pair is equal or statistically equal, and none exceeds a limit on time or
        memory."""
        return self.is_equal and not self.failures

    @property
    def versions(self) -> tuple[str, ...]:
        """Versions of dualml that ran A and B, a dash for an unknown one."""
        return tuple(run.dualml or "–" for run in self.runs)

    @property
    def final_verdict(self) -> str:
        """The verdict that decides colour and exit code: ``different`` also where a limit is
        exceeded."""
        return "different" if self.failures else self.verdict

    @property
    def worst(self) -> RunPair | None:
        """The pair with the largest ratio of distance to envelope; None if none was judged."""
        judged = [pair for pair in self.pairs if pair.ratio is not None]
        return max(judged, key=lambda pair: pair.ratio or 0.0, default=None)

    def settings(self) -> dict[str, list[Change]]:
        """Return the changed settings by arm; changes that all arms share stand under an empty name
        alone. Arms without own changes are left out."""
        by_arm = {pair.arm: list(pair.settings) for pair in self.pairs}
        shared = [
            c for c in next(iter(by_arm.values())) if all(c in own for own in by_arm.values())
        ]
        rest = {arm: [c for c in own if c not in shared] for arm, own in by_arm.items()}
        return {arm: own for arm, own in {"": shared, **rest}.items() if own}

    def describe(self) -> JsonObject:
        """Return the whole result as a JSON object, with the paragraph in both languages; ``kind``
        and ``format`` identify the schema. Numbers that are not finite become None."""
        names = ("dualml", "git", "created", "plan_hash")
        sides = [
            {"folder": folder, **{name: getattr(run, name) for name in names}}
            for folder, run in zip(self.folders, self.runs, strict=True)
        ]
        whole = {
            "kind": KIND,
            "format": FORMAT,
            "verdict": self.verdict,
            "passed": self.passed,
            "a": sides[0],
            "b": sides[1],
            "margin": self.margin,
            "pairs": [pair.describe() for pair in self.pairs],
            "environment": [vars(change) for change in self.environment],
            "unmet": list(self.unmet),
            "limits": dict(self.limits),
            "failures": [
                {
                    "limit": f.limit,
                    "arm": list(f.pair.arms),
                    "backend": list(f.pair.sides),
                    "seed": f.pair.seed,
                    "ratio": f.ratio,
                    "most": f.max_ratio,
                }
                for f in self.failures
            ],
            "text": {lang: self.paragraph(lang) for lang in ("en", "zh")},
        }
        kept: dict[str, Any] = nonfinite_to_none(whole)
        return kept

    def paragraphs(self, words: Messages) -> list[str]:
        """Return the verdict, its evidence and what was changed as sentences, the verdict first."""
        return [*self._verdict(words), *self._changes(words)]

    def _verdict(self, words: Messages) -> Iterator[str]:
        """Yield the sentences about the verdict, its evidence and exceeded limits."""
        n, k = len(self.pairs), sum(p.verdict == self.verdict for p in self.pairs)
        yield words.plural(f"against.{self.verdict.replace(' ', '_')}", n, n=n, k=k)
        worst = self.worst
        if self.verdict in AGREEING and worst is not None:
            yield describe_worst(worst, self.margin, words)
        if self.verdict not in AGREEING:
            telling = [p for p in self.pairs if p.verdict == self.verdict]
            yield from (describe_divergence(pair, words) for pair in telling[:MAX_NAMED_ITEMS])
        for failure in self.failures[:MAX_NAMED_ITEMS]:
            yield words(
                f"against.failure.{failure.limit}",
                trial=trial_name(failure.pair, words),
                ratio=numbers.factor(failure.ratio),
                most=f"{failure.max_ratio:g}",
            )

    def _changes(self, words: Messages) -> Iterator[str]:
        """Yield the sentences about changed settings and environment."""
        for arm, changes in self.settings().items():
            key = "against.settings.arm" if arm else "against.settings.all"
            yield words(key, arm=arm, changes=list_changes(changes, words))
        if self.environment:
            yield words("against.environment", changes=list_changes(self.environment, words))
        if self.unmet:
            yield words("against.unmet", arms=self.unmet)


def list_changes(changes: Sequence[Change], words: Messages) -> str:
    """Return a text with the first MAX_NAMED_ITEMS changes, and the number of others if there are
    more."""
    listed = words.semicolons([f"`{change}`" for change in changes[:MAX_NAMED_ITEMS]])
    left = len(changes) - MAX_NAMED_ITEMS
    return listed + (words("against.more", n=left) if left > 0 else "")
