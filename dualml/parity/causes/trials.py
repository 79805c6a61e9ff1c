"""Run a model under mutations and compare the runs with the other side."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from dualml.common.errors import UserError
from dualml.parity.causes.explanation import Explanation, Explorer
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.prefilter import Prefilter
from dualml.parity.causes.ranking_key import CallCounts
from dualml.parity.causes.runs import (
    GROUPS,
    NEARLY_EXPLAINED_SHARE,
    MutatedRun,
    explains,
    has_same_nans,
    is_accepted,
    is_fitted,
)
from dualml.parity.causes.scopes import widen_scopes
from dualml.parity.causes.spans import relocated_modules
from dualml.parity.models.judge import JudgingSettings, judge_traces
from dualml.parity.models.mapping import match_tensors
from dualml.parity.models.pieces import align_pieces
from dualml.parity.models.trace import Trace

#: Largest number of mutations that are tried in whole runs after the replay.
RUNS = 40
#: Largest number of optimizer mutations in whole runs, because no replay can try these.
ALL_RUNS = 3000
#: Seconds for whole runs even if the search used up all of its time.
LAST_S = 5.0
#: Seconds for finding other explanations after the first one.
TIES_S = 2.0
#: Seconds that whole runs take at least, if there are further candidates.
RUNS_S = 1.5
#: Seconds that whole runs take at least if most are cut short, see `prefilter`.
QUICK_S = 20.0


class MutationTrials:
    """Repeated runs of one side under mutations, within a time budget.

    Args:
        a: the side that can be run again with ``explorer``.
        b: the other side.
        fatal: mutations that killed the process of an earlier search, as `repr` writes them.
        on_try: called with the `repr` of each mutation before it is tried in a whole run.
        settings: how the two sides are compared.
        budget: seconds.
    """

    def __init__(
        self,
        a: Trace,
        b: Trace,
        explorer: Explorer,
        settings: JudgingSettings,
        *,
        fatal: Collection[str] = (),
        on_try: Callable[[str], object] = str,
        budget: float,
    ) -> None:
        self.a, self.b, self.explorer, self.settings = a, b, explorer, settings
        self.until = time.monotonic() + budget
        self.fatal, self.on_try = fatal, on_try
        self.result = Explanation()
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
        self.calls = CallCounts(a.operations, b.operations)
        self.names = {f"parameter:{pair.b}": f"parameter:{pair.a}" for pair in pairs}

    def run_mutated(
        self, changes: Sequence[Mutation], steps: int | None = None
    ) -> MutatedRun | None:
        """Run the model under mutations, and compare the run with the other side.

        Args:
            steps: number of steps; None for all.

        Returns:
            The judged run; None if the mutation cannot be applied, makes the model raise although
            the other side does not, leaves inputs or parameters that no longer match, or killed an
            earlier search.
        """
        if changes:
            if (what := repr(changes[-1])) in self.fatal:
                return None
            self.on_try(what)
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
        enough = False
        if comparison.reason == "both_nan" and (first := comparison.first) is not None:
            where = first.phase, first.step
            x, y = trace.find_array(*where, first.tensor), self.b.find_array(*where, first.other)
            enough = x is not None and y is not None and has_same_nans(x, y)
        return MutatedRun(tuple(changes), trace, comparison, enough)

    def count_tried(self) -> None:
        """Count one mutation that was tried in a replay."""
        self.result.tried[0] += 1

    @property
    def is_late(self) -> bool:
        """Whether the time budget is used up."""
        return time.monotonic() > self.until

    def improving(
        self, now: MutatedRun, candidates: Sequence[Mutation], scoped: bool = True
    ) -> list[MutatedRun]:
        """Return whole runs in which one candidate, added to those of ``now``, is accepted as
        improving agreement of the two sides.

        Candidates are tried in order until the time or the number of runs is used up.

        Args:
            scoped: whether each mutation is tried in every scope, see `widen_scopes`.
        """
        runs: list[MutatedRun] = []
        first = now.comparison.first
        assert first is not None
        start, ends = time.monotonic(), False
        done: set[str] = set()
        quick = Prefilter(now, self.b, self.pairing, self.explorer)
        least = RUNS_S if GROUPS[first.phase] == 0 else QUICK_S
        until = max(self.until, start + LAST_S)
        for number, change in enumerate(candidates):
            limit = RUNS if GROUPS[first.phase] == 0 else ALL_RUNS
            now_s = time.monotonic()
            if (number >= limit and now_s - start > least) or now_s > until:
                break
            if not ends and any(run.leaves_at_most(NEARLY_EXPLAINED_SHARE, now) for run in runs):
                ends = True
                until = min(until, now_s + TIES_S)
            for scope in widen_scopes(change, now.trace.operations) if scoped else [change]:
                self.result.tried[1] += 1
                if (what := repr(scope)) in done or quick.is_hopeless(scope):
                    continue
                done.add(what)
                changes = [*now.changes, scope]
                if first.step == 1 < now.comparison.steps and GROUPS[first.phase] < 2:
                    of_first = self.run_mutated(changes, 1)
                    if of_first is None or not (
                        of_first.reach > now.reach or explains(now, of_first)
                    ):
                        continue
                run = self.run_mutated(changes)
                if run is not None and not is_fitted(scope) and explains(now, run):
                    run = replace(run, enough=True)
                if run is not None and run.reach > now.reach and is_accepted(now, run):
                    runs.append(run)
        return runs
