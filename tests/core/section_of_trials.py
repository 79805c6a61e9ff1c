"""A section of the report with a table, a figure and two findings, as a reader would add it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.report.columns import Columns
from dualml.report.figure import Bar, Figure
from dualml.report.notes import Notes
from dualml.report.presentation import bar_panels, build_figure
from dualml.report.results import ArmResult, arm_results
from dualml.report.topics import table_section


def read_results(run: RunData) -> list[ArmResult]:
    """Return the results of every arm on every backend."""
    return arm_results(run, run.arms)


def columns(run: RunData, words: Messages, results: Sequence[ArmResult]) -> Columns[ArmResult]:
    """Return the columns of the number of trials and of their time."""
    return {
        ("`arm`", "backend"): lambda r: (r.arm, r.backend),
        "trials:count": lambda r: len(r.trials),
        "step:milliseconds": lambda r: r.step,
        "test_perplexity:1?": lambda r: r.trials[0].test_perplexity,
    }


def figures(run: RunData, words: Messages, results: Sequence[ArmResult]) -> Iterator[Figure]:
    """Yield a figure with a bar per arm and a panel per backend."""

    def bars(y: float, r: ArmResult) -> list[Bar]:
        return [Bar(y, len(r.trials), text=str(len(r.trials)))]

    panels = bar_panels(results, run.backends, words("axis.trials"), bars)
    values = {"n": len(run.trials)}
    yield build_figure(words, "trial_count", panels, [], values)


def findings(notes: Notes, run: RunData, results: Sequence[ArmResult]) -> None:
    """Add the number of trials, and the arm with the fewest on a backend."""
    notes.add("total", n=len(run.trials), arms=list(run.arms))
    fewest = min(results, key=lambda r: len(r.trials))
    notes.add("fewest", result=fewest, n=len(fewest.trials))


TOPIC = table_section(
    "trial_count",
    850,
    reads=read_results,
    columns=columns,
    figures=figures,
    findings=findings,
)
