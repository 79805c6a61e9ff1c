"""The host of a search on an experiment: what could be wrong, and what of it the records show.

A hypothesis is a modified reference: it predicts what the tensors would be if this were the cause.
Its score is the share of the difference that it explains, so names are never used as evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain

from dualml.parity.finder.causes import aggregation, data, forward, gradient, loss, update
from dualml.parity.finder.causes.base import Observation
from dualml.parity.finder.causes.lines import line_changes
from dualml.parity.finder.causes.transformed import transformed_tensors
from dualml.parity.finder.evaluation import judge
from dualml.parity.finder.search import HypothesisScore, HypothesisSource
from dualml.parity.hypothesis import Hypothesis
from dualml.parity.search_log import SearchLog

#: Phase → known mistakes, and changes of the rule's lines.
GUESSES: Mapping[str, Callable[[Observation], Iterator[Hypothesis]]] = {
    "data": data.hypotheses,
    "forward": forward.hypotheses,
    "loss": loss.hypotheses,
    "gradient": gradient.hypotheses,
    "aggregation": aggregation.hypotheses,
    **dict.fromkeys(("update", "state"), lambda s: chain(update.hypotheses(s), line_changes(s))),
}
#: Phase → hypotheses that take longer, for what none of the others explains.
LAST_GUESSES: Mapping[str, Callable[[Observation], Iterator[Hypothesis]]] = {
    **dict.fromkeys(("data", "forward", "gradient", "aggregation"), transformed_tensors),
    **dict.fromkeys(("update", "state"), partial(line_changes, twice=True)),
}


class ExperimentHost:
    """The host of a search for the cause of one observation: the deviating tensors of one phase,
    which the reference predicts under each hypothesis."""

    def __init__(self, suspect: Observation) -> None:
        self.suspect = suspect

    def propose(self, log: SearchLog, source: HypothesisSource) -> tuple[Hypothesis, ...]:
        """Return the hypotheses about the phase that deviates first: of the source ``known`` the
        known mistakes and changed lines of the rule, of ``last`` those that take longer. The log is
        not used."""
        guesses = (GUESSES if source == "known" else LAST_GUESSES).get(self.suspect.phase)
        return () if guesses is None else tuple(guesses(self.suspect))

    def evaluate(self, log: SearchLog, guess: Hypothesis) -> HypothesisScore | None:
        """Return what a hypothesis explains, see `judge`."""
        return judge(self.suspect, guess)
