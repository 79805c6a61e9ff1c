"""What the comparison of two runs comes to: for scripts, for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dualml.files import finite
from dualml.store.manifest import RunRecord, TrialRecord
from dualml.store.verdicts import VERDICTS
from dualml.words import Words, numbers

KIND, FORMAT = "dualml-against", 1
#: Pairs, settings and parts of the environment that a paragraph names; the table has the others.
MOST = 3
#: What a limit is about.
COSTS = {"slower": "time", "more_memory": "memory"}


@dataclass(frozen=True)
class Change:
    """A setting, or a part of the environment, that is another in B; None where a side has none."""

    key: str
    a: Any
    b: Any

    def __str__(self) -> str:
        return f"{self.key} {numbers.plain(self.a)} → {numbers.plain(self.b)}"


@dataclass(frozen=True)
class Cost:
    """What a trial took in A and in B: seconds of an update, or bytes."""

    a: float
    b: float

    @property
    def ratio(self) -> float:
        return self.b / self.a

    def describe(self) -> dict[str, float]:
        return {"a": self.a, "b": self.b, "ratio": self.ratio}


@dataclass(frozen=True)
class RunPair:
    """A trial of A and its partner in B.

    Attributes:
        arms, backends: their names in A and in B.
        judged: the comparison as `dualml.parity.pairs.compare` makes it.
        settings: what the arms, their models and losses decide otherwise.
        trials: of A and of B; None where there is none.
    """

    arms: tuple[str, str]
    backends: tuple[str, str]
    seed: int
    judged: Mapping[str, Any]
    settings: tuple[Change, ...]
    trials: tuple[TrialRecord | None, ...]

    @property
    def verdict(self) -> str:
        return str(self.judged["verdict"])

    @property
    def reason(self) -> str:
        return str(self.judged["reason"])

    @property
    def arm(self) -> str:
        """The name of both arms, or ``a → b``."""
        return " → ".join(dict.fromkeys(self.arms))

    @property
    def backend(self) -> str:
        return " → ".join(dict.fromkeys(self.backends))

    @property
    def ratio(self) -> float | None:
        """Largest distance over its envelope; None where nothing was judged."""
        ratio: float | None = self.judged["evidence"].get("worst_ratio")
        return ratio

    @property
    def costs(self) -> dict[str, Cost]:
        """``time`` (seconds of an update) and ``memory`` (bytes), where both sides have them."""
        a, b = self.trials
        if a is None or b is None:
            return {}
        known = {"time": (_update_s(a), _update_s(b)), "memory": _memory(a, b)}
        return {name: Cost(one, other) for name, (one, other) in known.items() if one and other}

    def describe(self) -> dict[str, Any]:
        """As JSON holds it."""
        kept = ("verdict", "reason", "evidence", "steps", "phases", "first_divergence", "outcome")
        return {
            "arm": list(self.arms), "backend": list(self.backends), "seed": self.seed,
            **{key: self.judged.get(key) for key in kept},
            "settings": [vars(change) for change in self.settings],
            **{name: cost.describe() for name, cost in self.costs.items()},
        }  # fmt: skip


def _update_s(trial: TrialRecord) -> float | None:
    """The median of the updates, or their mean where no quartiles were kept."""
    if len(trial.step_s) == 3:
        return trial.step_s[1]
    return trial.train_s / trial.updates if trial.train_s and trial.updates else None


def _memory(a: TrialRecord, b: TrialRecord) -> tuple[float | None, float | None]:
    """Bytes on the device of the rank that needs most, else those of the processes."""
    held = [[rank.held for rank in trial.device_memory] for trial in (a, b)]
    if all(each and None not in each for each in held):
        most = [max(n for n in each if n is not None) for each in held]
        return most[0], most[1]
    one, other = (n * 2**20 if (n := trial.peak_memory_mb) else None for trial in (a, b))
    return one, other


@dataclass(frozen=True)
class Failure:
    """A limit that a pair does not keep."""

    limit: str
    pair: RunPair
    ratio: float
    most: float


@dataclass(frozen=True)
class Against:
    """The verdict on two runs.

    Attributes:
        folders: as they were named; ``runs``: what their ``run.json`` says.
        margin: a distance is outside when it exceeds ``margin`` × the rounding envelope.
        pairs: every trial of A that was asked for, with its partner in B.
        environment: versions, machines and threads that are others in B.
        unmet: training arms of B that nothing in A is held against.
        limits: ``slower`` and ``more_memory``, as far as they were given.
    """

    folders: tuple[str, str]
    runs: tuple[RunRecord, RunRecord]
    margin: float
    pairs: tuple[RunPair, ...]
    environment: tuple[Change, ...]
    unmet: tuple[str, ...]
    limits: Mapping[str, float]

    @property
    def verdict(self) -> str:
        """The worst of all pairs."""
        return max((pair.verdict for pair in self.pairs), key=VERDICTS.index)

    @property
    def failures(self) -> list[Failure]:
        """Limits that are not kept."""
        return [
            Failure(name, pair, cost.ratio, most)
            for name, most in self.limits.items()
            for pair in self.pairs
            if (cost := pair.costs.get(COSTS[name])) and cost.ratio > most
        ]

    @property
    def passed(self) -> bool:
        """Whether every pair is equal and every limit is kept."""
        return self.verdict in ("equal", "statistically equal") and not self.failures

    @property
    def worst(self) -> RunPair | None:
        """The pair with the largest distance over its envelope."""
        judged = [pair for pair in self.pairs if pair.ratio is not None]
        return max(judged, key=lambda pair: pair.ratio or 0.0, default=None)

    def settings(self) -> dict[str, list[Change]]:
        """Arm → what is set otherwise in B; what all arms share stands under an empty name."""
        by_arm = {pair.arm: list(pair.settings) for pair in self.pairs}
        shared = [
            c for c in next(iter(by_arm.values())) if all(c in own for own in by_arm.values())
        ]
        rest = {arm: [c for c in own if c not in shared] for arm, own in by_arm.items()}
        return {arm: own for arm, own in {"": shared, **rest}.items() if own}

    def describe(self) -> dict[str, Any]:
        """Everything, as JSON holds it; ``kind`` and ``format`` say how to read it."""
        sides = [
            {"folder": folder, "dualml": run.dualml, "git": run.git, "created": run.created,
             "plan_hash": run.plan_hash}
            for folder, run in zip(self.folders, self.runs, strict=True)
        ]  # fmt: skip
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
                {"limit": f.limit, "arm": list(f.pair.arms), "backend": list(f.pair.backends),
                 "seed": f.pair.seed, "ratio": f.ratio, "most": f.most}
                for f in self.failures
            ],
            "text": {lang: self.paragraph(lang) for lang in ("en", "zh")},
        }  # fmt: skip
        kept: dict[str, Any] = finite(whole)
        return kept

    def paragraph(self, lang: str = "en") -> str:
        """The verdict and its evidence in a few sentences; ``en`` or ``zh``."""
        words = Words(lang)
        return words.sentences(self.paragraphs(words))

    def paragraphs(self, words: Words) -> list[str]:
        """The same, sentence by sentence, the verdict first."""
        return [*self._verdict(words), *self._changes(words)]

    def _verdict(self, words: Words) -> Iterator[str]:
        counts = {v: sum(p.verdict == v for p in self.pairs) for v in VERDICTS}
        n = len(self.pairs)
        yield words.plural(f"against.{self.verdict.replace(' ', '_')}", n,
                           n=n, k=counts[self.verdict])  # fmt: skip
        worst = self.worst
        if self.verdict in ("equal", "statistically equal") and worst is not None:
            phase = max(worst.judged["phases"].items(), key=lambda item: item[1]["ratio"])
            yield words(
                "against.farthest", ratio=numbers.factor(worst.ratio), margin=f"{self.margin:g}",
                trial=name_of(worst, words), step=phase[1]["step"],
                place=place(phase[0], phase[1]["tensor"], words),
                judged=worst.judged["evidence"]["judged_steps"],
                updates=numbers.quantity(worst.trials[0].updates if worst.trials[0] else None),
            )  # fmt: skip
        telling = [p for p in self.pairs if p.verdict == self.verdict]
        if self.verdict in ("different", "not comparable"):
            yield from (said(pair, words) for pair in telling[:MOST])
        for failure in self.failures[:MOST]:
            yield words(f"against.failure.{failure.limit}", trial=name_of(failure.pair, words),
                        ratio=numbers.factor(failure.ratio), most=f"{failure.most:g}")  # fmt: skip

    def _changes(self, words: Words) -> Iterator[str]:
        for arm, changes in self.settings().items():
            listed = words.semicolons([f"`{change}`" for change in changes[:MOST]])
            key = "against.settings.arm" if arm else "against.settings.all"
            more = words("against.more", n=len(changes) - MOST) if len(changes) > MOST else ""
            yield words(key, arm=arm, changes=listed + more)
        if self.environment:
            listed = words.semicolons([f"`{change}`" for change in self.environment[:MOST]])
            left = len(self.environment) - MOST
            more = words("against.more", n=left) if left > 0 else ""
            yield words("against.environment", changes=listed + more)
        if self.unmet:
            yield words("against.unmet", arms=self.unmet)


def name_of(pair: RunPair, words: Words) -> str:
    return words("against.trial", arm=pair.arm, backend=pair.backend, seed=pair.seed)


def place(phase: str, tensor: str | None, words: Words) -> str:
    """``gradient fc1.weight``; the loss is called by its phase already."""
    name = f" {tensor}" if tensor and tensor != phase else ""
    return words.either(f"phase.{phase}", phase) + name


def said(pair: RunPair, words: Words, *, named: bool = True) -> str:
    """Where a pair parts, or why it is what it is; ``named``: as a sentence about it."""
    first = pair.judged.get("first_divergence")
    if first:
        text = words(
            "against.first", step=first["step"],
            place=place(first["phase"], first["tensor"], words),
            distance=numbers.scientific(first["distance"]),
            envelope=numbers.scientific(first["envelope"]),
            after=first["after"], ratio=numbers.factor(pair.ratio),
        )  # fmt: skip
    else:
        text = words.either(f"reason.{pair.reason}", pair.reason)
        evidence = pair.judged["evidence"]
        more = [f"{side}: {words.either(f'status.{evidence[side]}', evidence[side])}"
                for side in "AB" if side in evidence]  # fmt: skip
        more += [str(evidence["said"])] if evidence.get("said") else []
        if more:
            text = words("against.because", why=text, said=words.semicolons(more))
    return words("against.said", trial=name_of(pair, words), text=text) if named else text
