"""Progress bars of a run, on standard error: the whole run and the trial at work."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

PHASES = {
    "en": {
        "start": "starting",
        "compile": "compiling",
        "train": "training",
        "envelope": "rounding envelope",
    },
    "zh": {"start": "启动", "compile": "编译", "train": "训练", "envelope": "舍入包络"},
}
TRIALS = {"en": "trials", "zh": "试验"}


class Bars:
    """``listen`` of `run_trials`, drawn with rich."""

    def __init__(self, total: int, lang: str = "en", quiet: bool = False) -> None:
        self.words = PHASES.get(lang, PHASES["en"])
        self.console = Console(stderr=True, quiet=quiet)
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
        self.all = self.progress.add_task(TRIALS.get(lang, "trials"), total=total, note="")
        self.one = self.progress.add_task("", total=None, note="")

    def __enter__(self) -> Bars:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def __call__(self, trial: dict[str, Any], event: dict[str, Any]) -> None:
        name = f"{trial['arm']} · {trial['backend']} · seed {trial['seed']}"
        phase = event.get("phase")
        if phase == "end":
            self.progress.advance(self.all)
            self.console.print(summary(name, trial), highlight=False)
            return
        loss = event.get("loss")
        note = "" if loss is None else f"loss {loss:.4f}"
        self.progress.update(
            self.one,
            description=f"{name}: {self.words.get(str(phase), phase)}",
            completed=event.get("done", 0),
            total=event.get("total"),
            note=note,
        )


def summary(name: str, trial: dict[str, Any]) -> str:
    """One line for a trial that has ended."""
    if trial["status"] == "ok":
        return (
            f"[green]✓[/] {name}: loss {trial['final_loss']:.4f}, "
            f"test accuracy {100 * trial['test_accuracy']:.2f} %, "
            f"{trial['train_s']:.1f} s of training, {trial['wall_s']:.1f} s in all"
        )
    colour = "yellow" if trial["status"] == "unsupported" else "red"
    return f"[{colour}]✗[/] {name}: {trial['status']}: {escape(str(trial['reason']))}"
