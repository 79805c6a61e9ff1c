"""Questions of a search for causes, the hosts that answer them, and its budget in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dualml.parity.causes.assessment import AssessmentRecord
from dualml.parity.causes.mutation import Mutation
from dualml.parity.engine import Inquiry, make_clock
from dualml.parity.models.operations import Operation

#: Sources of mutations, see `dualml.parity.causes.proposals`.
SourceName = Literal[
    "stated",
    "sharing",
    "returned",
    "joint",
    "near",
    "constants",
    "precision",
    "global",
    "training",
    "update",
    "gradient",
    "gradient only",
]


@dataclass(frozen=True)
class Budget:
    """The limits of one search.

    Attributes:
        seconds: time for the whole search.
        clock: returns the seconds since the search began.
        rounds: largest number of consecutive causes.
        min_runs: smallest number of runs that the search of a large model gets time for.
        runs: largest number of mutations that are tried in whole runs after the replay.
        all_runs: largest number of optimizer mutations in whole runs, because no replay can try
            these.
        last_s: seconds for whole runs even if the search used up all of its time.
        ties_s: seconds for finding other explanations after the first one.
        runs_s: seconds that whole runs take at least, if there are further candidates.
        quick_s: seconds that whole runs take at least if most are cut short, see `prefilter`.
        stated: whether settings that both sides state differently are tried before anything else;
            logs of earlier versions lack it, and their searches did not.
        joint: whether changes of several calls at once are tried before those of one call; logs of
            earlier versions lack it, too.
    """

    seconds: float
    clock: Callable[[], float] = field(default_factory=make_clock, compare=False)
    rounds: int = 4
    min_runs: int = 8
    runs: int = 40
    all_runs: int = 3000
    last_s: float = 5.0
    ties_s: float = 2.0
    runs_s: float = 1.5
    quick_s: float = 20.0
    stated: bool = False
    joint: bool = False


@dataclass(frozen=True)
class Source:
    """A source of mutations, and how long it may take.

    Attributes:
        region: the region of a `Survey`; empty for sources that know none.
        stage: number of the stage for the source ``near``, see `candidate_filter.STAGES`.
        seconds: time until the host has to answer.
    """

    name: SourceName
    region: str = ""
    stage: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Survey:
    """The beginning of a difference.

    Attributes:
        regions: names of the sets of values that are to be explained, in order; empty if the
            difference does not begin in values of the first step.
        place, other: the first operations of either side with unmatched values.
    """

    regions: tuple[str, ...] = ()
    place: Operation | None = None
    other: Operation | None = None


@dataclass(frozen=True)
class Proposal:
    """Mutations to try, likely ones first.

    Attributes:
        done: whether the source has no more.
        tried: number of mutations that were tried in replays to find these.
    """

    mutations: tuple[Mutation, ...] = ()
    done: bool = True
    tried: int = 0


@dataclass(frozen=True)
class Finding:
    """Mutations that explain a difference equally well, as they are reported.

    Attributes:
        place: the first operation that the first of them changes; None if it changes no call.
    """

    mutations: tuple[Mutation, ...]
    place: Operation | None = None


class Candidates(Protocol):
    """A host that knows what to try, in the state of a run with the causes found so far."""

    def survey(self, now: AssessmentRecord) -> Survey:
        """Find where the difference begins."""
        ...

    def propose(self, now: AssessmentRecord, source: Source) -> Proposal:
        """Return mutations from a source."""
        ...

    def widen(self, now: AssessmentRecord, change: Mutation, wide: bool) -> tuple[Mutation, ...]:
        """Return a mutation in every scope if ``wide`` (at all calls of its line, of its function,
        …); else only as it is."""
        ...

    def settle(self, now: AssessmentRecord, changes: tuple[Mutation, ...]) -> Finding:
        """Return accepted mutations as they are reported."""
        ...

    def relate(self, now: AssessmentRecord) -> list[dict[str, Any]]:
        """Return relations between the two arrays where the difference begins."""
        ...


#: (state, mutation) → what the whole run with one more mutation shows; None if it cannot be made or
#: is hopeless. For (None, None): the run without any.
Evaluate = Callable[[AssessmentRecord | None, Mutation | None], AssessmentRecord | None]


#: An inquiry of a search on a model's graph.
GraphInquiry = Inquiry[Candidates, Budget, Evaluate]
