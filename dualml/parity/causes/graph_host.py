"""The host of a search on a model's graph: runs one side under mutations, and says what to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dualml.common.errors import UserError
from dualml.parity.causes.active_sites import mark_mask, restrict_to_active_sites
from dualml.parity.causes.assessment import GROUPS, AssessmentRecord, is_fitted
from dualml.parity.causes.evidence import find_relations
from dualml.parity.causes.explanation import Explorer
from dualml.parity.causes.graph_state import GraphState
from dualml.parity.causes.inquiry import Finding, Proposal, Source, Survey
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.proposals import SOURCES
from dualml.parity.causes.ranking_key import CallCounts, find_prior
from dualml.parity.causes.runs import MutatedRun, assess_run, ends_in_same_nans, explains
from dualml.parity.causes.scopes import widen_scopes
from dualml.parity.causes.spans import relocated_modules
from dualml.parity.causes.stated import StatedSettings
from dualml.parity.engine import make_clock
from dualml.parity.models.judge import JudgingSettings, judge_traces
from dualml.parity.models.layers import pair_modules
from dualml.parity.models.mapping import match_tensors
from dualml.parity.models.pieces import align_pieces
from dualml.parity.models.stated import ModuleSettings
from dualml.parity.models.trace import Trace
from dualml.parity.models.trace_comparison import KnownDistances


class GraphHost:
    """One side, run again under mutations and compared with the other side.

    Args:
        a: the side that can be run again with ``explorer``.
        b: the other side.
        settings: how the two sides are compared.
        settings_of: what the modules of either side state.
        known: distances of the two traces that were measured when they were judged.
    """

    def __init__(
        self,
        a: Trace,
        b: Trace,
        explorer: Explorer,
        settings: JudgingSettings,
        *,
        settings_of: tuple[ModuleSettings, ModuleSettings] = ({}, {}),
        known: KnownDistances | None = None,
    ) -> None:
        self.a, self.b, self.explorer, self.settings = a, b, explorer, settings
        self.known = known
        ours, theirs = align_pieces(a, b)
        self.pairing = match_tensors(
            ours.tensors,
            theirs.tensors,
            settings.user_map,
            settings.sides,
            b.roles,
            b.guesses,
        )
        pairs = self.pairing.pairs
        modules = pair_modules(a.modules, b.modules, self.pairing)
        self.stated = StatedSettings(*settings_of, modules)
        self.calls = CallCounts(a.operations, b.operations)
        self.names = {f"parameter:{pair.b}": f"parameter:{pair.a}" for pair in pairs}
        self.state: GraphState | None = None

    def state_of(self, now: AssessmentRecord) -> GraphState:
        """Return what is known about the difference that a run leaves; kept until another run is
        asked for."""
        if self.state is None or self.state.now is not now.run:
            self.state = GraphState(self, now.run)
        return self.state

    def run_mutated(
        self, changes: Sequence[Mutation], steps: int | None = None
    ) -> MutatedRun | None:
        """Run the model under mutations, and compare the run with the other side.

        Args:
            steps: number of steps; None for all.

        Returns:
            The judged run; None if the mutation cannot be applied, makes the model raise although
            the other side does not, or leaves inputs or parameters that no longer match.
        """
        try:
            trace = self.explorer.run(changes, steps)
        except Exception:
            return None
        if trace.raised and not self.b.raised:
            return None
        trace.envelope, trace.draws = self.a.envelope, self.a.draws
        trace.moved_modules = relocated_modules(self.a.operations, changes)
        try:
            comparison = judge_traces(trace, self.b, self.settings, structure=False)
        except UserError:  # inputs or parameters no longer match
            return None
        return MutatedRun(tuple(changes), trace, comparison)

    def judge_recorded(self) -> MutatedRun | None:
        """Compare this side's trace with the other side; None if they cannot be compared."""
        try:
            comparison = judge_traces(
                self.a, self.b, self.settings, structure=False, known=self.known
            )
        except UserError:
            return None
        return MutatedRun((), self.a, comparison)

    def evaluate(
        self, now: AssessmentRecord | None, change: Mutation | None
    ) -> AssessmentRecord | None:
        """Run all steps with one more mutation, and say what the run shows.

        None if the run cannot be made, or if the updates, the gradients or the first step alone
        show that the mutation explains nothing.

        Args:
            now: the run so far, to whose mutations ``change`` is added.
            change: the mutation; without it, or without ``now``, the recorded trace is judged.
        """
        if now is None or change is None:
            self.explorer.record([])
            return self.assess(None, self.judge_recorded())
        before, state = now.run, self.state_of(now)
        if state.prefilter.is_hopeless(change):
            return None
        changes = [*now.changes, change]
        if now.step == 1 < now.steps and GROUPS[now.phase] < 2:
            first = self.run_mutated(changes, 1)
            shown = self.assess(before, first)
            if first is None or shown is None:
                return None
            if shown.reach <= now.reach and not explains(before.comparison, first.comparison):
                return None
        shown = self.assess(before, self.run_mutated(changes), not is_fitted(change))
        prior = find_prior(self.calls, lambda: state.survey.other, change)
        return None if shown is None else replace(shown, prior=prior)

    def assess(
        self, now: MutatedRun | None, run: MutatedRun | None, may_leave_rest: bool = False
    ) -> AssessmentRecord | None:
        """Return what a run shows, without a prior; None if there is no run.

        Args:
            now: the run without the last mutation; None if there is none.
            may_leave_rest: whether a run that leaves a hundredth of the difference is enough.
        """
        if run is None:
            return None
        enough = ends_in_same_nans(run.comparison, run.trace, self.b)
        if may_leave_rest and now is not None:
            enough = enough or explains(now.comparison, run.comparison)
        return assess_run(now, run, enough)

    def survey(self, now: AssessmentRecord) -> Survey:
        """Find where the difference begins, see `Survey`."""
        return self.state_of(now).survey

    def propose(self, now: AssessmentRecord, source: Source) -> Proposal:
        """Return mutations from a source, see `dualml.parity.causes.proposals`, looked for during
        at most about ``source.seconds``."""
        clock = make_clock()
        return SOURCES[source.name](self.state_of(now), source, lambda: clock() > source.seconds)

    def widen(self, now: AssessmentRecord, change: Mutation, wide: bool) -> tuple[Mutation, ...]:
        """Return a mutation in every scope if ``wide``, see `widen_scopes`; else only as it is."""
        return tuple(widen_scopes(change, now.run.trace.operations)) if wide else (change,)

    def settle(self, now: AssessmentRecord, changes: tuple[Mutation, ...]) -> Finding:
        """Return accepted mutations as they are reported: those of masks as such, and only at calls
        where they change something."""
        trace = now.run.trace
        shown = [mark_mask(change, trace) for change in changes]
        if any(len(change.sites) > 1 for change in shown):
            self.explorer.record(now.changes)
            shown = [restrict_to_active_sites(self.explorer, one, trace) for one in shown]
        sites = shown[0].sites
        # Where others have no effect they are the same; a setting may be a list, which is no key.
        shown = [one for i, one in enumerate(shown) if one not in shown[:i]]
        return Finding(tuple(shown), trace.operations[sites[0]] if sites else None)

    def relate(self, now: AssessmentRecord) -> list[dict[str, Any]]:
        """Return relations between the two arrays where the difference begins; empty if there are
        none or an array was not recorded."""
        first = now.run.comparison.first
        x = now.run.trace.find_array(first.phase, first.step, first.tensor)
        y = self.b.find_array(first.phase, first.step, first.other)
        return [] if x is None or y is None else find_relations(x, y)
