"""n workers against one, a split model against the whole one: verdicts, distances, sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.report import curves, keys, ranks
from dualml.report.blocks import Block, Cells, Item, Table
from dualml.report.columns import columns
from dualml.report.figure import Axis, Band, Figure, Key, Line, Mark, Owner, Panel
from dualml.report.headline import split
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.report.verdicts import (
    divergence,
    phase_cells,
    phase_columns,
    phases_of,
    place,
    short_verdict,
)
from dualml.store.run import Run, Serial
from dualml.words import Words, numbers

#: By number of ranks.
STROKES = ("line", "fine-dashes", "fine-dots", "dash-dot")


@dataclass(frozen=True)
class Against:
    """The comparisons of arms whose ranks share a model (``split``), or of the others."""

    split: bool

    def of(self, run: Run) -> list[Serial]:
        return [s for s in run.serial if split(run, s) == self.split]

    def name(self, what: str) -> str:
        return f"split-{what}" if self.split else what

    # --- evidence ---------------------------------------------------------------------------------

    def evidence(self, run: Run, words: Words) -> Iterator[Block]:
        judged = [s for s in self.of(run) if s.verdict]
        drawn = [s for s in judged if s.curve.get("step")]
        if drawn:
            yield self.figure(run, words, drawn)
        if judged:
            yield self.verdicts(run, words, judged)
        yield from self.other_rules(run, words)

    def verdicts(self, run: Run, words: Words, compared: Sequence[Serial]) -> Table:
        phases, several = phases_of(compared), len(run.seeds) > 1
        apart = any(s.first_divergence for s in compared)
        rows: list[Cells] = [
            [
                s.arm,
                *([str(s.seed)] if several else []),
                s.backend,
                s.against,
                short_verdict(s, words),
                numbers.scientific(s.worst),
                numbers.quantity(s.steps),
                *phase_cells(s, phases, run),
                *([divergence(s.first_divergence, words)] if apart else []),
            ]
            for s in compared
        ]
        shown = [
            *columns(words, "`arm`", *(["seed:"] if several else []), "backend", "`against`"),
            *columns(words, "verdict", "ratio:relative", "steps:count"),
            *phase_columns(phases, words),
            *(columns(words, "first") if apart else []),
        ]
        return Table(self.name("serial"), words("table.serial"), shown, rows)

    def other_rules(self, run: Run, words: Words) -> Iterator[Table]:
        """Arms that follow another rule on purpose, each once."""
        arms: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
        for s in self.of(run):
            if not s.verdict:
                arms.setdefault((s.arm, s.against, s.reason), {})[s.backend] = s.evidence
        tested = any("equivalence" in e for of_arm in arms.values() for e in of_arm.values())
        rows = [
            [
                arm,
                against,
                words.either(f"rule.{reason}", reason),
                ", ".join(by_backend),
                *([words.semicolons([*_over_seeds(by_backend, words)])] if tested else []),
            ]
            for (arm, against, reason), by_backend in arms.items()
        ]
        if rows:
            shown = columns(words, "`arm`", "`against`", "other_rule", "backend")
            shown += columns(words, "over_seeds") if tested else []
            yield Table(self.name("other-rules"), words("table.other_rules"), shown, rows)

    def figure(self, run: Run, words: Words, compared: Sequence[Serial]) -> Figure:
        """The loss of n workers against that of one: distance and limit, a panel by backend."""
        settings = run.parity_settings
        margin, floor = float(settings.get("margin") or 1), float(settings.get("floor") or 0)
        distances = [float(v) for s in compared for v in s.curve["loss"] if v and v > 1e-10]
        lowest = min([*distances, margin * floor or 1e-9]) / 3
        panels = []
        for backend in run.backends:
            here = [s for s in compared if s.backend == backend]
            if here:
                marks = [*_limit(here, margin, floor), *(_distance(run, s, lowest) for s in here)]
                updates = Axis(words("axis.updates"), whole=True)
                distance = Axis(words("axis.distance"), "log", low=lowest)
                panels.append(Panel(marks, updates, distance, backend, height=230))
        sizes = sorted({ranks.size(run, s.arm) for s in compared})
        worst = max((r for s in compared if (r := s.worst) is not None), default=None)
        return Figure(
            self.name("serial-distance"),
            words("figure.serial"),
            words("alt.serial", n=len(compared), ratio=numbers.scientific(worst)),
            panels,
            [
                *keys.plain(keys.strategies(ranks.strategy(run, s.arm) for s in compared)),
                *(Key("arm", f"n={n}", words("figure.ranks", n=n), stroke=STROKES[k % len(STROKES)])
                  for k, n in enumerate(sizes)),
                Key("series", "limit", words("figure.envelope"), color="line", stroke="line"),
            ],
            columns=len(panels),
            share_y="all",
        )  # fmt: skip

    # --- sentences --------------------------------------------------------------------------------

    def findings(self, run: Run, words: Words) -> Sequence[Item]:
        every = self.of(run)
        notes = Notes(words, "serial", f"table-{self.name('serial')}")
        judged = [s for s in every if s.verdict]
        if judged:
            equal = [s for s in judged if s.verdict == "equal"]
            key = "count_split" if self.split else "count"
            notes.say(key, len(judged), k=len(equal), of=len(judged))
            worst = max(equal, key=lambda s: -1.0 if s.worst is None else s.worst, default=None)
            if worst is not None and worst.worst is not None:
                margin = numbers.quantity(run.parity_settings.get("margin"))
                notes.say("closest", arm=worst.arm, backend=worst.backend,
                          ratio=numbers.scientific(worst.worst), margin=margin)  # fmt: skip
        for s in judged:
            who = {"arm": s.arm, "against": s.against, "backend": s.backend, "seed": s.seed}
            if s.verdict == "different" and s.first_divergence:
                notes.say("diverged", **who, **place(s.first_divergence, words))
            elif s.verdict != "equal":
                notes.warn("open", **who, reason=words.either(f"reason.{s.reason}", s.reason))
        reasons: dict[str, list[str]] = {}
        for s in every:
            if not s.verdict and s.arm not in reasons.setdefault(s.reason, []):
                reasons[s.reason].append(s.arm)
        notes.about(f"table-{self.name('other-rules')}")
        for reason, arms in reasons.items():
            rule = words.either(f"rule.{reason}", reason)
            notes.say("other_rule", len(arms), arms=words.join(arms), rule=rule)
        return notes


def _over_seeds(by_backend: Mapping[str, Mapping[str, Any]], words: Words) -> Iterator[str]:
    """Whether the test accuracies agree all the same: of each backend, the equivalence test."""
    for backend, evidence in by_backend.items():
        test = evidence.get("equivalence")
        if test:
            yield words(
                f"over_seeds.{'equal' if test['equivalent'] else 'open'}",
                backend=backend,
                low=numbers.points(test["low"]),
                high=numbers.points(test["high"]),
                margin=f"{100 * test['margin']:g}",
                n=test["seeds"],
            )


def _distance(run: Run, s: Serial, lowest: float) -> Mark:
    distance = np.array([v or 0.0 for v in s.curve["loss"]], dtype=float)
    x, y = curves.thin(np.asarray(s.curve["step"], dtype=float), distance)
    owner = Owner(f"n={ranks.size(run, s.arm)}", s.backend, ranks.strategy(run, s.arm))
    return Line(x, np.maximum(y, lowest), owner)


def _limit(here: Sequence[Serial], margin: float, floor: float) -> Iterator[Mark]:
    """The smallest limit of equality at each update, of the arms that made it."""
    longest = max(here, key=lambda s: len(s.curve["step"]))
    x = np.asarray(longest.curve["step"], dtype=float)
    envelopes = np.full((len(here), len(x)), np.inf)
    for row, s in zip(envelopes, here, strict=True):
        known = [v or 0.0 for v in s.curve["envelope"]]
        row[: len(known)] = known
    top = margin * np.maximum(envelopes.min(axis=0), floor)
    x, top = curves.thin(x, top)
    yield Band(x, None, top, Owner(series="limit"))
    yield Line(x, top, Owner(series="limit"))


REPLICAS = Against(split=False)
TOPIC = Topic("serial", 710, REPLICAS.evidence, REPLICAS.findings, leads=lambda run: 4)
