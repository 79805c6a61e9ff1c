"""Read the log of a search for causes, and make its decisions again without the model."""

from __future__ import annotations

from pathlib import Path

from dualml.parity.causes.assessment import AssessmentRecord, Prior
from dualml.parity.causes.explanation import Explanation
from dualml.parity.causes.inquiry import Budget, Finding, Proposal, Source, Survey
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.search import search
from dualml.parity.engine import replay_search
from dualml.parity.models.operations import Operation, SourceLocation
from dualml.parity.search_log import SearchLog, read_log

#: What a log of this search holds.
LOGGED = (
    AssessmentRecord,
    Budget,
    Finding,
    Mutation,
    Operation,
    Prior,
    Proposal,
    Source,
    SourceLocation,
    Survey,
)


def replay(log: SearchLog) -> Explanation:
    """Make the decisions of a search again, from its log alone, and return its explanation.

    Raises:
        UserError: the log is not of this search.
    """
    return replay_search(search, log)


def read_search(path: Path) -> SearchLog:
    """Read the log of a search for causes.

    Raises:
        UserError: the file is not such a log.
    """
    return read_log(path, LOGGED)
