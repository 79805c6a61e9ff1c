"""Show the verdict of an arm as soon as all of its trials have ended."""

from __future__ import annotations

import contextlib
from typing import Any

from rich.text import Text

from dualml.common.errors import UserError
from dualml.common.words import Messages
from dualml.experiment.store.folder import RunFolder
from dualml.experiment.store.manifest import TrialRecord
from dualml.runner.session.progress import ProgressDisplay


class VerdictListener:
    """A `Listener` that passes each event on to ``progress`` and, when the last trial of an arm and
    a seed has ended, shows the verdicts between its backends."""

    def __init__(self, folder: RunFolder, progress: ProgressDisplay, words: Messages) -> None:
        self.folder, self.progress, self.words = folder, progress, words

    def __call__(self, trial: TrialRecord, event: dict[str, Any]) -> None:
        self.progress(trial, event)
        if event.get("phase") != "end":
            return
        alike = [
            t for t in self.folder.trials.values() if (t.arm, t.seed) == (trial.arm, trial.seed)
        ]
        if sum(t.status == "ok" for t in alike) > 1 and not any(
            t.status == "interrupted" for t in alike
        ):
            with contextlib.suppress(UserError):  # whatever it is, the end of the run says it
                self.show_verdicts(trial.arm, trial.seed)

    def show_verdicts(self, arm: str, seed: int) -> None:
        """Judge the trials of an arm and a seed, and print a line per comparison, except those that
        only all seeds together decide. Nothing is written into the run folder."""
        from dualml.parity.judge import judge_run
        from dualml.parity.statistics import LEGITIMATE
        from dualml.report.columns import VERDICT_TONES
        from dualml.report.page.terminal import STYLES

        for c in judge_run(self.folder.path, (arm, seed), verify=False).comparisons:
            if c.reason in LEGITIMATE:  # all seeds together decide, at the end
                continue
            word = c.paragraph(self.words.lang)
            text = self.words("run.verdict", arm=arm, seed=seed, a=c.a, b=c.b)
            more = "" if c.ratio is None else self.words("run.ratio", ratio=c.ratio)
            style = STYLES.get(VERDICT_TONES[c.verdict], "")
            self.progress.print_line(Text.assemble("  ", text, (word, style), more))
