"""What the numbers say: sentences computed from the run, the same ones in both languages."""

from __future__ import annotations

from dualml.report import ranks
from dualml.report.analysis.base import Finding, Topic
from dualml.report.analysis.batch import batch
from dualml.report.analysis.bottleneck import bottleneck
from dualml.report.analysis.caveats import caveats
from dualml.report.analysis.collectives import collectives
from dualml.report.analysis.convergence import convergence
from dualml.report.analysis.determinism import determinism
from dualml.report.analysis.modes import modes
from dualml.report.analysis.native import native
from dualml.report.analysis.pays import pays, slow_link
from dualml.report.analysis.pipeline import pipeline
from dualml.report.analysis.sampling import sampling
from dualml.report.analysis.scaling import scaling
from dualml.report.analysis.serial import serial, split_serial
from dualml.report.analysis.skew import skew
from dualml.report.analysis.smoothness import smoothness
from dualml.report.analysis.speed import speed
from dualml.report.analysis.splits import splits
from dualml.report.analysis.sweep import sweep
from dualml.report.analysis.training import training
from dualml.report.analysis.verdicts import headline, verdicts
from dualml.report.model import Run
from dualml.report.words import Words

__all__ = ["Finding", "Topic", "analyse", "headline"]


def analyse(run: Run, words: Words) -> list[Topic]:
    """Topics in reading order; one that has nothing to go on says so in a warning, but for the
    topics of several ranks and those of one rank in a run with several, which are left out."""
    alone = (convergence, smoothness, determinism, speed, sweep)
    together = (
        *(collectives, native, scaling, modes, batch, training, bottleneck),
        *(sampling, skew, serial),
        *(split_serial, splits, pipeline, slow_link, pays),
    )
    if not ranks.distributed(run):
        return [Topic(p.__name__, p(run, words)) for p in (*alone, verdicts, caveats)]
    found = [Topic(p.__name__, p(run, words)) for p in together]
    if run.main_arms() and all(ranks.size(run, arm) == 1 for arm in run.main_arms()):
        more = [Topic(p.__name__, p(run, words)) for p in alone]
        found = [*(t for t in more if any(not f.warning for f in t.findings)), *found]
    found = [t for t in found if t.findings]
    if ranks.training(run):
        found.append(Topic(verdicts.__name__, verdicts(run, words)))
    return [*found, Topic(caveats.__name__, caveats(run, words))]
