"""The host of a search on an experiment: what could be wrong, and what of it the records show."""

from __future__ import annotations

from dualml.parity.finder.causes import GUESSES, LAST_GUESSES
from dualml.parity.finder.causes.base import Observation
from dualml.parity.finder.evaluation import judge
from dualml.parity.finder.search import HypothesisScore, HypothesisSource
from dualml.parity.hypothesis import Hypothesis
from dualml.parity.search_log import SearchLog


class ExperimentHost:
    """The deviating tensors of one phase, which the reference predicts under each hypothesis."""

    def __init__(self, suspect: Observation) -> None:
        self.suspect = suspect

    def propose(self, log: SearchLog, source: HypothesisSource) -> tuple[Hypothesis, ...]:
        """Return the hypotheses of a source about the phase that deviates first."""
        guesses = (GUESSES if source == "known" else LAST_GUESSES).get(self.suspect.phase)
        return () if guesses is None else tuple(guesses(self.suspect))

    def evaluate(self, log: SearchLog, guess: Hypothesis) -> HypothesisScore | None:
        """Return what a hypothesis explains, see `judge`."""
        return judge(self.suspect, guess)
