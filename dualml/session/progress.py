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

from dualml.store.manifest import TrialRecord

PHASES = {
    "en": {
        "start": "starting",
        "compile": "compiling",
        "train": "training",
        "envelope": "rounding envelope",
        "collectives": "timing collectives",
    },
    "zh": {
        "start": "启动",
        "compile": "编译",
        "train": "训练",
        "envelope": "舍入包络",
        "collectives": "通信计时",
    },
}
TRIALS = {"en": "trials", "zh": "试验"}


class Bars:
    """``listen`` of `run_trials`, drawn with rich."""

    def __init__(self, total: int, lang: str = "en", quiet: bool = False) -> None:
        self.words, self.lang = PHASES.get(lang, PHASES["en"]), lang
        self.seed = {"en": "seed", "zh": "种子"}.get(lang, "seed")
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

    def __call__(self, trial: TrialRecord, event: dict[str, Any]) -> None:
        name = f"{trial.arm} · {trial.backend} · {self.seed} {trial.seed}"
        phase = event.get("phase")
        if phase == "end":
            self.progress.advance(self.all)
            self.console.print(summary(name, trial, self.lang), highlight=False, soft_wrap=True)
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


OK = {
    "en": "[green]✓[/] {name}: loss {final_loss:.4f}, test accuracy {test_accuracy:.2%}, "
    "{train_s:.1f} s of training, {wall_s:.1f} s in all",
    "zh": "[green]✓[/] {name}：损失 {final_loss:.4f}，测试准确率 {test_accuracy:.2%}，"
    "训练 {train_s:.1f} 秒，共 {wall_s:.1f} 秒",
}
MEASURED = {
    "en": "[green]✓[/] {name}: {measurements} measurements, {wall_s:.1f} s in all",
    "zh": "[green]✓[/] {name}：{measurements} 项测量，共 {wall_s:.1f} 秒",
}
STATUS = {
    "en": {"failed": "failed", "unsupported": "unsupported", "interrupted": "interrupted"},
    "zh": {"failed": "失败", "unsupported": "不支持", "interrupted": "被中断"},
}


def summary(name: str, trial: TrialRecord, lang: str = "en") -> str:
    """One line for a trial that has ended."""
    if trial.status == "ok":
        form = MEASURED if trial.final_loss is None else OK
        return form[lang].format(name=name, **trial.describe())
    status = STATUS[lang][trial.status]
    colour = "yellow" if trial.status == "unsupported" else "red"
    return f"[{colour}]✗[/] {name}: {status}: {escape(str(trial.reason))}"
