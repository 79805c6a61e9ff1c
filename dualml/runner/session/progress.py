"""Progress of a run on standard error: bars on a terminal, lines in a log."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
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

from dualml.common.errors import escape_unprintable
from dualml.common.words import Messages
from dualml.experiment.store.manifest import Key, TrialRecord

#: Longest time without a line in a log, in seconds.
EVERY_S = 10.0


class LogTicker:
    """A context manager whose thread prints ``line()`` whenever nothing was printed for ``every``
    seconds, until its block is left."""

    def __init__(self, console: Console, line: Callable[[], str], every: float = EVERY_S) -> None:
        self.console, self.line, self.every = console, line, every
        self.last, self.stop_event = time.monotonic(), threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def print(self, text: str | Text) -> None:
        """Print a line, and restart the interval."""
        self.last = time.monotonic()
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def run(self) -> None:
        """Print ``line()`` in every quiet interval, until the block is left."""
        while not self.stop_event.wait(max(0.05, self.last + self.every - time.monotonic())):
            if time.monotonic() - self.last >= self.every:
                self.print(self.line())

    def __enter__(self) -> LogTicker:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop_event.set()
        self.thread.join()


@contextlib.contextmanager
def show_activity(text: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show ``text`` on standard error while the block runs: an animation on a terminal, a line
    every `EVERY_S` seconds in a log, nothing if ``quiet``; yields a function that replaces the
    text."""
    console = Console(stderr=True, quiet=quiet)
    if console.is_terminal or quiet:
        with console.status(text) as status:
            yield status.update
        return
    now, begin = text, time.monotonic()

    def update(text: str) -> None:
        nonlocal now
        now = text

    with LogTicker(console, lambda: f"{now} ({time.monotonic() - begin:.0f} s)"):
        yield update


class RemainingTime:
    """Estimate of the remaining time, from the durations of trials of the same backend that have
    ended.

    Args:
        work: trial → its amount of work, in any unit.
    """

    def __init__(self, work: Mapping[Key, float]) -> None:
        self.work = dict(work)
        self.current: Key | None = None
        self.since = 0.0
        #: Backend → total seconds and total work of its trials that have ended.
        self.completed: dict[str, tuple[float, float]] = {}

    def start(self, key: Key) -> None:
        """Note that a trial has started; without effect if it is the current one already."""
        if key != self.current:
            self.current, self.since = key, time.monotonic()

    def end(self, key: Key) -> None:
        """Note that a trial has ended: it counts as work done if it is the current one, and as no
        work left in any case."""
        work, (_, backend, _) = self.work.pop(key, 0.0), key
        if key == self.current and work:
            seconds, done = self.completed.get(backend, (0.0, 0.0))
            spent = time.monotonic() - self.since
            self.completed[backend] = (seconds + spent, done + work)
        self.current = None

    def seconds_left(self) -> float | None:
        """Return the estimated seconds left for all trials of ``work`` that have not ended, or None
        before any has ended."""
        if not self.completed:
            return None
        everything = [sum(parts) for parts in zip(*self.completed.values(), strict=True)]
        left = 0.0
        for key, work in self.work.items():
            seconds, done = self.completed.get(key[1], everything)
            gone = time.monotonic() - self.since if key == self.current else 0.0
            left += max(0.0, work * seconds / done - gone)
        return left


class ProgressDisplay:
    """A `Listener` that shows the current trial, its phase, and every trial that ended; it is
    called as ``display(trial, event)``. This base class shows nothing; the displays derived from it
    do.

    Args:
        work: trial to run → its amount of work, to estimate the remaining time.
        words: messages in the user's language.
    """

    def __init__(self, work: Mapping[Key, float], words: Messages) -> None:
        self.words, self.total, self.trials_ended = words, len(work), 0
        self.remaining = RemainingTime(work)
        self.console = Console(stderr=True)

    def __call__(self, trial: TrialRecord, event: dict[str, Any]) -> None:
        phase = str(event.get("phase"))
        name = self.words("run.trial", arm=trial.arm, backend=trial.backend, seed=trial.seed)
        if phase == "end":
            self.trials_ended += 1
            self.remaining.end(trial.key)
            self.trial_ended(trial_summary(name, trial, self.words))
        else:
            self.remaining.start(trial.key)
            self.show_current(name, phase, event)

    def phase_name(self, phase: str) -> str:
        """Return the name of a phase in the user's language, ``phase`` itself if it is unknown."""
        return self.words.get(f"run.phase.{phase}", phase)

    def print_line(self, text: str | Text) -> None:
        """Print a line that stays on the screen; this base class prints nothing."""

    def show_current(self, name: str, phase: str, event: dict[str, Any]) -> None:
        """Show the progress of the current trial: its name, its phase, and the fields ``done``,
        ``total`` and ``loss`` of ``event``, as far as it has them. Each display overrides this."""

    def trial_ended(self, text: Text) -> None:
        """Show ``text``, the line of a trial that has ended."""
        self.print_line(text)

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class ProgressBars(ProgressDisplay):
    """Progress bars for the whole run and the current trial, drawn with rich."""

    def __init__(self, work: Mapping[Key, float], words: Messages) -> None:
        super().__init__(work, words)
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
        self.run_task = self.progress.add_task(words("run.trials"), total=self.total, note="")
        self.trial_task = self.progress.add_task("", total=None, note="")

    def __enter__(self) -> ProgressBars:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def show_current(self, name: str, phase: str, event: dict[str, Any]) -> None:
        """Update the bar of the current trial: name, phase, position, and the loss if there is
        one."""
        loss = event.get("loss")
        self.progress.update(
            self.trial_task,
            description=self.words("run.working", name=name, phase=self.phase_name(phase)),
            completed=event.get("done", 0),
            total=event.get("total"),
            note="" if loss is None else self.words("run.loss", loss=loss),
        )

    def print_line(self, text: str | Text) -> None:
        """Print a line that stays, above the bars."""
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def trial_ended(self, text: Text) -> None:
        """Advance the bar of the run by one trial, and print the trial's line."""
        self.progress.advance(self.run_task)
        super().trial_ended(text)


class ProgressLines(ProgressDisplay):
    """Progress as lines: one when a trial starts, one when it has ended, and one every ten
    seconds."""

    def __init__(self, work: Mapping[Key, float], words: Messages) -> None:
        super().__init__(work, words)
        self.ticker = LogTicker(self.console, self.line)
        self.current, self.since, self.event = ("", ""), time.monotonic(), dict[str, Any]()
        self.started = set[str]()

    def __enter__(self) -> ProgressLines:
        self.ticker.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.ticker.__exit__()

    def show_current(self, name: str, phase: str, event: dict[str, Any]) -> None:
        """Keep the event for the next periodic line; print a line at once if the trial is new."""
        if self.current != (name, phase):
            self.current, self.since = (name, phase), time.monotonic()
        self.event = event
        if name not in self.started:
            self.started.add(name)
            number = self.trials_ended + 1
            self.print_line(self.words("run.starts", name=name, number=number, total=self.total))

    def print_line(self, text: str | Text) -> None:
        """Print a line that stays, and restart the interval of the periodic lines."""
        self.ticker.print(text)

    def line(self) -> str:
        """Return one line for the progress of a run, not printed: the current trial and phase,
        how far the phase is and its time left where ``done`` and ``total`` of the event are
        known, and the time left for the run once a trial has ended, in seconds."""
        name, phase = self.current
        parts = [self.words("run.working", name=name, phase=self.phase_name(phase))]
        done, total = self.event.get("done"), self.event.get("total")
        if done and total:
            left = (time.monotonic() - self.since) * (total - done) / done
            parts.append(self.words("run.phase_left", done=done, total=total, left=left))
        if (left := self.remaining.seconds_left()) is not None:
            parts.append(
                self.words("run.all_left", ended=self.trials_ended, total=self.total, left=left)
            )
        return self.words("run.joint").join(parts)


def make_progress_display(
    work: Mapping[Key, float], words: Messages, *, quiet: bool = False
) -> ProgressDisplay:
    """Make the display of trials: bars if standard error is a terminal, else lines; one that shows
    nothing if ``quiet``. ``work`` is the trials to run, each with its amount of work."""
    if quiet:
        return ProgressDisplay(work, words)
    kind = ProgressBars if Console(stderr=True).is_terminal else ProgressLines
    return kind(work, words)


def trial_summary(name: str, trial: TrialRecord, words: Messages) -> Text:
    """Return the line of a trial that has ended: a coloured mark, its ``name`` and its result, or
    why it is not ``ok``."""
    if trial.status == "ok":
        key = "run.measured" if trial.final_loss is None else "run.ok"
        return Text.assemble(("✓ ", "green"), words(key, name=name, **trial.describe()))
    status, reason = words(f"status.{trial.status}"), escape_unprintable(str(trial.reason), "\n")
    colour = "yellow" if trial.status == "unsupported" else "red"
    return Text.assemble(("✗ ", colour), words("run.bad", name=name, status=status, reason=reason))
