"""Progress bars of a run, on standard error: the whole run and the trial at work."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from dualml.store.manifest import TrialRecord
from dualml.words import Words


class Bars:
    """``listen`` of `run_trials`, drawn with rich."""

    def __init__(self, total: int, words: Words) -> None:
        self.words = words
        self.console = Console(stderr=True)
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            transient=True,
        )
        self.all = self.progress.add_task(words("run.trials"), total=total, note="")
        self.one = self.progress.add_task("", total=None, note="")

    def __enter__(self) -> Bars:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def __call__(self, trial: TrialRecord, event: dict[str, Any]) -> None:
        phase, loss, words = str(event.get("phase")), event.get("loss"), self.words
        name = words("run.trial", arm=trial.arm, backend=trial.backend, seed=trial.seed)
        if phase == "end":
            self.progress.advance(self.all)
            self.console.print(summary(name, trial, words), soft_wrap=True)
            return
        phase = words.either(f"run.phase.{phase}", phase)
        self.progress.update(
            self.one,
            description=words("run.working", name=name, phase=phase),
            completed=event.get("done", 0),
            total=event.get("total"),
            note="" if loss is None else words("run.loss", loss=loss),
        )


def summary(name: str, trial: TrialRecord, words: Words) -> Text:
    """One line for a trial that has ended."""
    if trial.status == "ok":
        key = "run.measured" if trial.final_loss is None else "run.ok"
        return Text.assemble(("✓ ", "green"), words(key, name=name, **trial.describe()))
    status, reason = words(f"status.{trial.status}"), str(trial.reason)
    colour = "yellow" if trial.status == "unsupported" else "red"
    return Text.assemble(("✗ ", colour), words("run.bad", name=name, status=status, reason=reason))
