"""Several ranks compared with one, and split models with whole ones: verdicts, distances,
sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import Array, RunData, Serial
from dualml.report import curves, legend, ranks, verdicts
from dualml.report.blocks import Block, Table
from dualml.report.columns import Columns, tabulate
from dualml.report.figure import Axis, Band, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId
from dualml.report.headline import comparison_kind
from dualml.report.notes import Notes
from dualml.report.topics import ReportSection

#: Strokes by number of ranks.
STROKES = ("line", "fine-dashes", "fine-dots", "dash-dot")


@dataclass(frozen=True)
class SerialComparisons:
    """The comparisons of arms whose ranks share a model (``split``), or of the others."""

    split: bool

    def select(self, run: RunData) -> list[Serial]:
        """Return the comparisons of a run that belong to this topic: those with split models, or
        those of ranks with a whole model each. Comparisons of single ranks that recompute or
        offload are neither."""
        own = "serial_split" if self.split else "serial"
        return [s for s in run.serial if comparison_kind(run, s) == own]

    def prefixed(self, what: str) -> str:
        """Return the name ``what`` with the prefix ``split-`` for split models, else unchanged."""
        return f"split-{what}" if self.split else what

    # --- evidence ---------------------------------------------------------------------------------

    def evidence(self, run: RunData, words: Messages) -> Iterator[Block]:
        """Yield the figure of loss distances, the table of verdicts, and the table of arms with
        another update rule."""
        judged = [s for s in self.select(run) if s.verdict]
        drawn = [s for s in judged if s.curve.get("step")]
        if drawn:
            yield self.figure(run, words, drawn)
        yield from self.verdicts(run, words, judged)
        yield from self.other_rules(run, words)

    def verdicts(
        self, run: RunData, words: Messages, compared: Sequence[Serial]
    ) -> Iterator[Table]:
        """Yield the table of verdicts, a row per comparison, with the largest distance of each
        phase of an update."""
        phases, several = verdicts.phases_of(compared), len(run.seeds) > 1
        apart = any(s.first_divergence for s in compared)
        read: Columns[Serial] = {
            "`arm`": lambda s: s.arm,
            "seed:?": lambda s: several and str(s.seed),
            ("backend", "`against`"): lambda s: (s.backend, s.against),
            "verdict": lambda s: verdicts.short_verdict(s, words),
            "ratio:relative": lambda s: numbers.scientific(s.worst),
            "steps:count": lambda s: s.steps,
            tuple(verdicts.phase_columns(phases, words)): lambda s: verdicts.phase_cells(
                s, phases, run
            ),
            "first?": lambda s: apart and verdicts.format_divergence(s.first_divergence, words),
        }
        yield from tabulate(words, self.prefixed("serial"), compared, read, "serial")

    def other_rules(self, run: RunData, words: Messages) -> Iterator[Table]:
        """Yield the table of arms that follow another update rule on purpose, each once."""
        arms: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
        for s in self.select(run):
            if not s.verdict:
                arms.setdefault((s.arm, s.against, s.reason), {})[s.backend] = s.evidence
        tested = any("equivalence" in e for of_arm in arms.values() for e in of_arm.values())
        read: Columns[tuple[str, str, str]] = {
            ("`arm`", "`against`"): lambda key: key[:2],
            "other_rule": lambda key: words.get(f"rule.{key[2]}", key[2]),
            "backend": lambda key: ", ".join(arms[key]),
            "over_seeds?": lambda key: (
                tested and words.semicolons([*_over_seeds(arms[key], words)])
            ),
        }
        yield from tabulate(words, self.prefixed("other-rules"), arms, read, "other_rules")

    def figure(self, run: RunData, words: Messages, compared: Sequence[Serial]) -> Figure:
        """Return a figure of the distance of the losses and its limit, a panel per backend."""
        settings = run.parity_settings
        margin, floor = float(settings.get("margin") or 1), float(settings.get("floor") or 0)
        distances = [float(v) for s in compared for v in s.curve["loss"] if v and v > 1e-10]
        lowest = min([*distances, margin * floor or 1e-9]) / 3
        updates = Axis(words("axis.updates"), integer_ticks=True)
        distance = Axis(words("axis.distance"), "log", low=lowest)
        panels = []
        for backend in run.backends:
            here = [s for s in compared if s.backend == backend]
            if here:
                marks = [*_limit(here, margin, floor), *(_distance(run, s, lowest) for s in here)]
                panels.append(Panel(marks, updates, distance, backend, height=230))
        sizes = sorted({ranks.world_size(run, s.arm) for s in compared})
        look = [
            *legend.without_markers(
                legend.strategies(ranks.strategy(run, s.arm) for s in compared)
            ),
            *(
                LegendEntry(
                    "arm", f"n={n}", words("figure.ranks", n=n), stroke=STROKES[k % len(STROKES)]
                )
                for k, n in enumerate(sizes)
            ),
            LegendEntry("series", "limit", words("figure.envelope"), color="line", stroke="line"),
        ]
        worst = max((r for s in compared if (r := s.worst) is not None), default=None)
        alt = words("alt.serial", n=len(compared), worst=worst)
        return Figure(
            self.prefixed("serial-distance"),
            words("figure.serial"),
            alt,
            panels,
            look,
            columns=len(panels),
            share_y="all",
        )

    # --- sentences --------------------------------------------------------------------------------

    def findings(self, notes: Notes, run: RunData) -> None:
        """Add in how many comparisons the results are exactly equal to the baseline's, where the
        others diverge, and which arms follow another update rule."""
        words, every = notes.words, self.select(run)
        judged = [s for s in every if s.verdict]
        if judged:
            equal = [s for s in judged if s.verdict == "equal"]
            key = "count_split" if self.split else "count"
            notes.add(key, len(judged), k=len(equal), of=len(judged))
            worst = max(equal, key=lambda s: -1.0 if s.worst is None else s.worst, default=None)
            if worst is not None and worst.worst is not None:
                notes.add("closest", s=worst, margin=run.parity_settings.get("margin"))
        verdicts.add_divergences(notes, judged)
        notes.set_anchor(f"table-{self.prefixed('other-rules')}")
        others = [s for s in every if not s.verdict]
        for reason in dict.fromkeys(s.reason for s in others):
            arms = list(dict.fromkeys(s.arm for s in others if s.reason == reason))
            rule = words.get(f"rule.{reason}", reason)
            notes.add("other_rule", len(arms), arms=arms, rule=rule)


def _over_seeds(by_backend: Mapping[str, Mapping[str, Any]], words: Messages) -> Iterator[str]:
    """Yield for each backend with an equivalence test a sentence that says whether the test
    accuracies are equivalent although the arm follows another rule."""
    for backend, evidence in by_backend.items():
        test = evidence.get("equivalence")
        if test:
            key = f"over_seeds.{'equal' if test['equivalent'] else 'open'}"
            yield words(key, backend=backend, test=test, margin=f"{100 * test['margin']:g}")


def _numbers(values: Iterable[float | None]) -> Array:
    """Return the values as an array, None as 0."""
    return np.array([v or 0.0 for v in values], dtype=float)


def _distance(run: RunData, s: Serial, lowest: float) -> Mark:
    """Return the line of an arm's loss distance against updates; values below ``lowest`` are raised
    to it."""
    x, y = curves.thin_points(_numbers(s.curve["step"]), _numbers(s.curve["loss"]))
    owner = SeriesId(f"n={ranks.world_size(run, s.arm)}", s.backend, ranks.strategy(run, s.arm))
    return LineMark(x, np.maximum(y, lowest), owner)


def _limit(here: Sequence[Serial], margin: float, floor: float) -> Iterator[Mark]:
    """Yield the band below the smallest limit of equality at each update, and its line: ``margin``
    times the smallest envelope (at least ``floor``) of the comparisons that reach this update."""
    longest = max(here, key=lambda s: len(s.curve["step"]))
    x = _numbers(longest.curve["step"])
    envelopes = np.full((len(here), len(x)), np.inf)
    for row, s in zip(envelopes, here, strict=True):
        row[: len(s.curve["envelope"])] = _numbers(s.curve["envelope"])
    x, top = curves.thin_points(x, margin * np.maximum(envelopes.min(axis=0), floor))
    yield Band(x, None, top, SeriesId(series="limit"))
    yield LineMark(x, top, SeriesId(series="limit"))


REPLICAS, SPLIT = SerialComparisons(split=False), SerialComparisons(split=True)
TOPICS = tuple(
    ReportSection(
        name,
        order,
        compared.evidence,
        compared.findings,
        f"table-{compared.prefixed('serial')}",
        priority=lambda run: 4,
        messages="serial",
    )
    for name, order, compared in (("serial", 710, REPLICAS), ("split_serial", 715, SPLIT))
)
