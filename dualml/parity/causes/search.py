"""Search for the cause of a difference: mutations under which one model computes what the other
does.

From the first value that the two sides no longer share, every mutation of the operations there is
tried in a replay (`candidate_filter`). Mutations that reproduce an unmatched value of the other
side are tried in whole runs, with every recorded update. A mutation that makes the two sides equal,
or that improves agreement most, is the cause; if several do so equally well they cannot be
distinguished and are all listed. The search then continues from there. If no mutation helps, no
cause is named.

The search is a function of what there is to try, how long it may take, and what each trial shows.
It learns all three from answers that are logged; the same answers lead to the same causes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dualml.parity.causes.assessment import (
    NEARLY_EXPLAINED_SHARE,
    PARTLY_EXPLAINED_SHARE,
    REST,
    AssessmentRecord,
    is_accepted,
)
from dualml.parity.causes.candidate_filter import STAGES
from dualml.parity.causes.explanation import DivergenceCause, Explanation
from dualml.parity.causes.inquiry import (
    Budget,
    Candidates,
    Evaluate,
    GraphInquiry,
    Source,
    SourceName,
    Survey,
)
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.ranking import Accepted, is_conclusive, rank_explanations, select_causes
from dualml.parity.engine import start_inquiry
from dualml.parity.search_log import SearchLog

#: Sources whose mutations have all of their calls and are tried in no other scope.
AS_PROPOSED: tuple[SourceName, ...] = ("stated", "joint", "global")


def search(
    candidates: Candidates, budget: Budget, evaluate: Evaluate
) -> tuple[Explanation, SearchLog]:
    """Find up to ``budget.rounds`` causes one after the other, until the sides are equal, nothing
    explains the rest, or the time is up.

    Returns:
        The causes without those that improve agreement too little, and the log of the search.
    """
    ask = start_inquiry(candidates, budget, evaluate)
    start = now = ask.evaluate(None, None)
    until = max(budget.seconds, budget.min_runs * ask.log.seconds_spent)
    steps: list[Accepted] = []
    survey, evidence = Survey(), list[dict[str, Any]]()
    for _ in range(budget.rounds):
        if now is None or now.verdict != "different" or ask.log.seconds_spent > until:
            break
        better, found = search_step(ask, now, until)
        survey = found or survey
        if not better:
            evidence = ask.candidates.relate(now)
            break
        finding = ask.candidates.settle(now, tuple(run.changes[-1] for run in better))
        cause = DivergenceCause(finding.mutations, finding.place, survey.other)
        steps.append(Accepted(now, better[0], cause))
        now = better[0]
        first = finding.mutations[0]
        if first.kind == "dtype" and first.action == "numbers":
            break  # its rounding affects everything behind it
    enough = now is not None and now.is_resolved
    explanation = Explanation(
        causes=[step.cause for step in steps] if enough else select_causes(steps),
        equal=now is not None and enough and not now.enough,
        enough=enough,
        tried=count_trials(ask.log),
        place=survey.place,
        other=survey.other,
        evidence=evidence,
        computed=start is not None and start.is_computed,
        late=ask.log.seconds_spent > until,
    )
    return explanation, ask.log


def count_trials(log: SearchLog) -> list[int]:
    """Return a list of two numbers: mutations that were tried in replays, and in whole runs."""
    proposals, scopes = log.answers("propose"), log.answers("widen")
    return [sum(one.tried for one in proposals), sum(map(len, scopes))]


class Step(NamedTuple):
    """One step of a search.

    Attributes:
        runs: runs with one more mutation that improve agreement between the two sides, the best
            first; empty if none does.
        survey: where the difference begins; None if parameters of one side alone explain it.
    """

    runs: list[AssessmentRecord]
    survey: Survey | None


def search_step(ask: GraphInquiry, now: AssessmentRecord, until: float) -> Step:
    """Search for one more mutation that explains the difference that a run leaves.

    Args:
        until: time until which the search may take, in seconds from its beginning.
    """
    if ask.budget.stated and (best := search_stated(ask, now, until)):
        return Step(best, ask.candidates.survey(now))
    if not now.changes:
        modules = improve(ask, now, Source("sharing"), until)
        if any(run.is_resolved for run in modules):
            return Step(rank_explanations(now, modules), None)
    survey = ask.candidates.survey(now)
    for region in survey.regions:
        limit = until if region == survey.regions[-1] else halve_time(ask, until)
        if best := search_neighbourhood(ask, now, region, limit):
            return Step(best, survey)
    sources: list[SourceName] = ["update"]
    if survey.regions:
        sources = ["global"]
    elif now.kind == "trained":
        sources = ["training"]
    elif now.phase == "gradient":
        sources = ["gradient", "global", "gradient only"] if now.step == 1 else ["gradient"]
    for name in sources:
        seconds = (until - ask.log.seconds_spent) / 2
        if best := rank_explanations(now, improve(ask, now, Source(name, "", 0, seconds), until)):
            return Step(best, survey)
    return Step([], survey)


def search_stated(ask: GraphInquiry, now: AssessmentRecord, until: float) -> list[AssessmentRecord]:
    """Return the best runs with one more setting of the other side, where both sides state it
    differently and it explains the first difference."""
    runs = improve(ask, now, Source("stated"), until)
    explained = [run for run in runs if run.is_resolved or run.left <= REST * now.distance]
    return rank_explanations(now, explained)


def search_neighbourhood(
    ask: GraphInquiry, now: AssessmentRecord, region: str, until: float
) -> list[AssessmentRecord]:
    """Return the best runs with one more mutation, of the operations around the first values of a
    region."""
    runs = improve(ask, now, Source("returned"), until)
    if ask.budget.joint and not any(run.is_resolved for run in runs):
        runs += improve(ask, now, Source("joint", region), until)
    if any(run.is_resolved for run in runs):
        return rank_explanations(now, runs)
    best: list[AssessmentRecord] = []
    for number, stage in enumerate(STAGES):
        limit = until
        if stage == STAGES[-1] and any(run.reach > now.reach for run in runs):
            limit = halve_time(ask, until)  # keep half of the time for a next cause
        while True:
            source = Source("near", region, number, limit - ask.log.seconds_spent)
            near = ask.candidates.propose(now, source)
            runs += try_all(ask, now, near.mutations, limit)
            if near.done or any(run.leaves_at_most(NEARLY_EXPLAINED_SHARE, now) for run in runs):
                break
        if near.done and stage == STAGES[1]:
            for name in ("constants", "precision"):
                runs += improve(ask, now, Source(name, region), limit)
        best = rank_explanations(now, runs)
        # Not half a cause, which only makes more operations match.
        farther = [
            run
            for run in best[:1]
            if run.reach[0] > now.reach[0] or run.leaves_at_most(PARTLY_EXPLAINED_SHARE, now)
        ]
        if any(is_conclusive(now, run, stage) for run in farther):
            break
    return best


def halve_time(ask: GraphInquiry, until: float) -> float:
    """Return the time at which half of the time that is left until ``until`` is over, in seconds
    from the beginning of the search."""
    return until - max(0.0, until - ask.log.seconds_spent) / 2


def improve(
    ask: GraphInquiry, now: AssessmentRecord, source: Source, until: float
) -> list[AssessmentRecord]:
    """Return the runs with one mutation of a source that are accepted, see `try_all`."""
    proposal = ask.candidates.propose(now, source)
    return try_all(ask, now, proposal.mutations, until, source.name not in AS_PROPOSED)


def try_all(
    ask: GraphInquiry,
    now: AssessmentRecord,
    changes: Sequence[Mutation],
    until: float,
    wide: bool = True,
) -> list[AssessmentRecord]:
    """Return whole runs in which one mutation, added to those of ``now``, is accepted as improving
    agreement of the two sides.

    Mutations are tried in order until the time or the number of runs is used up.

    Args:
        wide: whether each mutation is tried in every scope.
    """
    runs: list[AssessmentRecord] = []
    budget, began, hurries = ask.budget, ask.log.seconds_spent, False
    known: set[str] = set()
    limit, least = budget.all_runs, budget.quick_s
    if now.is_computed:
        limit, least = budget.runs, budget.runs_s
    until = max(until, began + budget.last_s)
    for number, change in enumerate(changes):
        spent = ask.log.seconds_spent
        if (number >= limit and spent - began > least) or spent > until:
            break
        if not hurries and any(run.leaves_at_most(NEARLY_EXPLAINED_SHARE, now) for run in runs):
            hurries, until = True, min(until, spent + budget.ties_s)
        for scope in ask.candidates.widen(now, change, wide):
            if (what := repr(scope)) in known:
                continue
            known.add(what)
            run = ask.evaluate(now, scope)
            if run is not None and is_accepted(now, run):
                runs.append(run)
    return runs
