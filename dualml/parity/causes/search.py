"""Search for the cause of a difference: mutations under which one model computes what the other
does.

From the first value that the two sides no longer share, every mutation of the operations there is
tried in a replay (`candidate_filter`). Mutations that reproduce an unmatched value of the other
side are tried in whole runs, with every recorded update. A mutation that makes the two sides equal,
or that improves agreement most, is the cause; if several do so equally well they cannot be
distinguished and are all listed. The search then continues from there. If no mutation helps, no
cause is named.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from dualml.parity.causes.active_sites import restrict_to_active_sites
from dualml.parity.causes.candidate_filter import STAGES, CandidateFilter
from dualml.parity.causes.constants import constant_mutations, precision_mutations
from dualml.parity.causes.context import ContextBuilder
from dualml.parity.causes.evidence import find_relations
from dualml.parity.causes.explanation import DivergenceCause, Explanation
from dualml.parity.causes.global_settings import global_mutations
from dualml.parity.causes.gradient_only import gradient_only_mutations
from dualml.parity.causes.gradients import gradient_mutations
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.optimizer_lines import line_mutations
from dualml.parity.causes.output_order import output_order_mutations
from dualml.parity.causes.prefilter import recorded_gradients
from dualml.parity.causes.ranking import is_conclusive, rank_explanations
from dualml.parity.causes.ratios import is_plausible_factor, update_ratio
from dualml.parity.causes.runs import (
    GROUPS,
    MIN_GAINED_MODULES,
    NEARLY_EXPLAINED_SHARE,
    PARTLY_EXPLAINED_SHARE,
    MutatedRun,
    is_firm,
)
from dualml.parity.causes.sharing import (
    bias_mutations,
    neutral_parameter_mutations,
    sharing_mutations,
    untying_mutations,
)
from dualml.parity.causes.tensors import add_buffer_outputs, training_mutations
from dualml.parity.causes.trials import MutationTrials
from dualml.parity.causes.updates import NUMBERS, update_mutations
from dualml.parity.models.operations import Operation
from dualml.parity.models.trace import Trace
from dualml.parity.models.value_matching import TraceOperand, match_values

#: Smallest number of runs that the search of a large model gets time for.
MIN_RUNS = 8
#: Relative distance up to which learning-rate factors count as equal.
LR_FACTOR_RTOL = 0.01
#: Largest number of consecutive causes.
ROUNDS = 4


class Search(MutationTrials):
    """A search for the causes of a difference between two traces."""

    def explain(self) -> Explanation:
        """Find up to ROUNDS causes one after the other, until the sides are equal, nothing explains
        the rest, or the time is up.

        Causes that improve agreement too little are left out of the result.
        """
        began = time.monotonic()
        now = self.run_mutated([])
        self.until = max(self.until, began + MIN_RUNS * (time.monotonic() - began))
        first = None if now is None else now.comparison.first
        self.result.computed = first is not None and GROUPS[first.phase] == 0
        whole = computed = 0
        shared: set[int] = set()
        for _ in range(ROUNDS):
            if now is None or now.comparison.verdict != "different" or self.is_late:
                break
            better = self.search_step(now)
            if not better:
                self.result.evidence = self.collect_evidence(now)
                break
            best = better[0]
            added = [self.as_mask(run.changes[-1], now.trace) for run in better]
            if any(len(change.sites) > 1 for change in added):
                self.explorer.run(now.changes)  # the run that is replayed
                added = [
                    restrict_to_active_sites(self.explorer, change, now.trace) for change in added
                ]
            self.result.causes.append(
                DivergenceCause(
                    tuple(added), self.location_of(added[0], now.trace), self.result.other
                )
            )
            if best.reach[0] > now.reach[0] or best.leaves_at_most(PARTLY_EXPLAINED_SHARE, now):
                whole = len(self.result.causes)
            if (
                best.leaves_at_most(PARTLY_EXPLAINED_SHARE, now)
                or best.reach[0] - now.reach[0] >= MIN_GAINED_MODULES
            ):
                shared.add(whole - 1)
            then = best.comparison.first
            if then is not None and GROUPS[then.phase] > 0 and then.step == 1:
                computed = len(self.result.causes)
            now = best
            if added[0].kind == "dtype" and added[0].action == "numbers":
                break  # its rounding affects everything behind it
        self.result.late = self.is_late
        if now is not None:
            self.result.enough, self.result.equal = (
                now.is_resolved,
                now.is_resolved and not now.enough,
            )
        if not self.result.enough:
            # A mutation that only makes more operations match is half a cause and does not count;
            # nor does one that can produce arbitrary numbers, unless all outputs and the loss, or
            # most unmatched values, follow from it.
            kept = enumerate(self.result.causes[:whole])
            self.result.causes = [
                one for i, one in kept if i < computed or i in shared or is_firm(one.alterations[0])
            ]
        return self.result

    def as_mask(self, change: Mutation, trace: Trace) -> Mutation:
        """Return a mutation with kind ``mask`` if it inverts an array of zeros and ones; others
        unchanged."""
        transform = change.value[0] if isinstance(change.value, tuple) else ""
        if transform not in ("one_minus", "invert") or change.action not in ("input", "output"):
            return change
        site = trace.operations[change.sites[0]]
        name = (
            site.output_names()[0]
            if change.action == "output"
            else site.inputs[int(change.argument)]
        )
        array = trace.find_array("operation", 1, name)
        ones = array is not None and array.size > 1 and bool(np.isin(array, (0, 1)).all())
        return replace(change, kind="mask") if ones else change

    def collect_evidence(self, now: MutatedRun) -> list[dict[str, Any]]:
        """Return relations between the two arrays where the difference begins; empty if there are
        none or an array was not recorded."""
        first = now.comparison.first
        assert first is not None
        x = now.trace.find_array(first.phase, first.step, first.tensor)
        y = self.b.find_array(first.phase, first.step, first.other)
        return [] if x is None or y is None else find_relations(x, y)

    def location_of(self, change: Mutation, trace: Trace) -> Operation | None:
        """Return the first operation that a mutation changes; None if it changes no call."""
        return trace.operations[change.sites[0]] if change.sites else None

    def search_step(self, now: MutatedRun) -> list[MutatedRun]:
        """Return runs with one more mutation that improve agreement between the two sides, the best
        first; empty if none does.

        Sets the result's ``place`` and ``other`` to the operations where the difference begins.
        """
        first = now.comparison.first
        assert first is not None
        if any(self.pairing.unpaired_parameters) and not now.changes:
            other_modules = self.improving(now, self.sharing_candidates())
            if any(run.is_resolved for run in other_modules):
                return rank_explanations(self.calls, self.result.other, now, other_modules)
        here, there = match_values(now.trace, self.b, self.settings.margin)
        if first.phase == "state":  # a buffer that the model itself writes
            add_buffer_outputs(now, self.b, here, there, self.names)
        lost = here.unmatched(), there.unmatched()
        begun = lost
        if first.phase == "forward":  # the beginning, which later values may hide
            begun = (
                lost[0] | self.output_value(now.trace, here, first.tensor),
                lost[1] | self.output_value(self.b, there, first.other),
            )
        origins = here.origins(begun[0]), there.origins(begun[1])
        self.result.place = next(iter(origins[0]), None)
        self.result.other = next(iter(origins[1]), None)
        written = first.phase == "state" and bool(lost[0])
        if (GROUPS[first.phase] == 0 or written) and first.step == 1 and (begun[0] or begun[1]):
            until = self.until
            if begun != lost and lost[0]:
                # It begins inside the margin, perhaps for another reason.
                self.until -= max(0.0, until - time.monotonic()) / 2
                best = self.search_neighbourhood(now, here, there, begun)
                self.until = until
                if best:
                    return best
                begun = lost
            return self.search_neighbourhood(now, here, there, begun) or self.try_global(now)
        if first.kind == "trained":
            candidates = training_mutations(self.a, self.b, self.names)
        elif first.phase == "gradient":
            candidates = gradient_mutations(now.trace, self.b, here, now.comparison, self.names)
            found = self.improving(now, candidates)
            if not found and first.step == 1:
                found = self.try_global(now)
            if not found and first.step == 1:
                found = self.improving(now, self.gradient_only_candidates(now, here, there))
            return rank_explanations(self.calls, self.result.other, now, found)
        else:
            candidates = update_mutations(
                now.trace, self.b, now.comparison, self.explorer.settings(), self.names
            )
            if first.phase == "update":
                calls = self.explorer.trace_update(recorded_gradients(now.trace, 1)[0])
                candidates += line_mutations(calls, NUMBERS)
        whole = self.schedule_candidates(now) if GROUPS[first.phase] == 2 else []
        return rank_explanations(
            self.calls, self.result.other, now, self.improving(now, [*whole, *candidates])
        )

    def search_neighbourhood(
        self,
        now: MutatedRun,
        here: TraceOperand,
        there: TraceOperand,
        unmatched: tuple[set[str], set[str]],
    ) -> list[MutatedRun]:
        """Return the best runs with one more mutation, of the operations around the first unmatched
        values.

        Args:
            unmatched: names of the unmatched values of this side and of the other.
        """
        origins = here.origins(unmatched[0]), there.origins(unmatched[1])
        screen = CandidateFilter(self, now.trace, here, there, unmatched)
        runs = self.improving(now, output_order_mutations(now.trace))
        if any(run.is_resolved for run in runs):
            return rank_explanations(self.calls, self.result.other, now, runs)
        for stage in STAGES:
            until = self.until
            if stage == STAGES[-1] and any(run.reach > now.reach for run in runs):
                # Keep half of the time for a next cause.
                self.until -= max(0.0, until - time.monotonic()) / 2
            while True:
                self.explorer.run(now.changes)  # the run that is replayed
                runs += self.improving(now, screen.survivors(*origins, stage))
                if screen.done or any(
                    run.leaves_at_most(NEARLY_EXPLAINED_SHARE, now) for run in runs
                ):
                    break
            if screen.done and stage == STAGES[1]:
                runs += self.improving(
                    now, constant_mutations(self.explorer, here, there, unmatched)
                )
                lower = precision_mutations(self.explorer, here, there, unmatched)
                runs += self.improving(now, lower)
            self.until = until
            best = rank_explanations(self.calls, self.result.other, now, runs)
            # Not half a cause, which only makes more operations match.
            farther = [
                run
                for run in best[:1]
                if run.reach[0] > now.reach[0] or run.leaves_at_most(PARTLY_EXPLAINED_SHARE, now)
            ]
            if any(
                is_conclusive(now, run, stage, self.calls, self.result.other) for run in farther
            ):
                break
        return best

    def try_global(self, now: MutatedRun) -> list[MutatedRun]:
        """Return runs with a setting changed in all calls of a function at once, the best first."""
        runs = self.improving(now, global_mutations(now.trace, self.b), scoped=False)
        return rank_explanations(self.calls, self.result.other, now, runs)

    def gradient_only_candidates(
        self, now: MutatedRun, here: TraceOperand, there: TraceOperand
    ) -> list[Mutation]:
        """Return mutations that change wrong gradients of the first step and no value; the search
        for them takes at most half of the time that is left."""
        outside = now.comparison.outside
        wrong = {tensor for step, phase, tensor in outside if (step, phase) == (1, "gradient")}
        around = ContextBuilder(self.a, self.names, here, there)
        until = time.monotonic() + (self.until - time.monotonic()) / 2
        self.explorer.run(now.changes)  # the run that is replayed
        return list(
            gradient_only_mutations(
                self.explorer, here, around, wrong, lambda: time.monotonic() > until
            )
        )

    def sharing_candidates(self) -> list[Mutation]:
        """Return mutations for parameters that only one side has, and register initial values for
        new ones.

        These are biases, and modules that one side uses in several places where the other has
        several.
        """
        changes, values = untying_mutations(self.explorer.places(), self.b, self.pairing)
        biases, begin = bias_mutations(self.b, self.pairing)
        self.explorer.set_initial_values(values | begin)
        return [
            *biases,
            *neutral_parameter_mutations(self.a, self.pairing),
            *changes,
            *sharing_mutations(self.a, self.pairing),
        ]

    def output_value(self, trace: Trace, side: TraceOperand, output: str) -> set[str]:
        """Return the name of the first value that equals a module's output in the first step, as a
        set of at most one."""
        array = trace.find_array("forward", 1, output)
        if array is None:
            return set()
        flat = array.ravel()
        same = (n for n, v in side.arrays.items() if np.array_equal(v.ravel(), flat))
        return set(list(same)[:1])

    def schedule_candidates(self, now: MutatedRun) -> list[Mutation]:
        """Return a mutation with one learning-rate factor per update, if single factors explain all
        updates; else an empty list.

        Equal factors that nobody would choose, as clipping causes, give none.
        """
        factors: list[float] = []
        run: MutatedRun | None = now
        for step in range(1, now.comparison.steps + 1):
            if run is None or (c := update_ratio(run.trace, self.b, step, self.names)) is None:
                return []
            factors.append(float(f"{c:.9g}"))
            change = Mutation("optimizer", "optimizer", (), "", "lr_schedule", tuple(factors))
            run = self.run_mutated([*now.changes, replace(change, value=(*factors, 1.0))])
        # Equal implausible factors come from a norm (such as clipping), not from a schedule.
        alike = max(factors) - min(factors) <= LR_FACTOR_RTOL * abs(factors[0])
        return [change] if not alike or all(map(is_plausible_factor, factors)) else []
