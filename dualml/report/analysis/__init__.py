"""What the numbers say: sentences computed from the run, the same ones in both languages."""

from __future__ import annotations

from dualml.report.analysis.base import Finding, Topic
from dualml.report.analysis.caveats import caveats
from dualml.report.analysis.convergence import convergence
from dualml.report.analysis.determinism import determinism
from dualml.report.analysis.smoothness import smoothness
from dualml.report.analysis.speed import speed
from dualml.report.analysis.sweep import sweep
from dualml.report.analysis.verdicts import headline, verdicts
from dualml.report.model import Run
from dualml.report.words import Words

__all__ = ["Finding", "Topic", "analyse", "headline"]


def analyse(run: Run, words: Words) -> list[Topic]:
    """Topics in reading order; a topic that has nothing to go on says so in a warning."""
    parts = (convergence, smoothness, determinism, speed, sweep, verdicts, caveats)
    return [Topic(part.__name__, part(run, words)) for part in parts]
