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

from dualml.parity.causes.alteration import Alteration
from dualml.parity.causes.choice import best_of, settled
from dualml.parity.causes.constants import in_less_precision, of_constants
from dualml.parity.causes.effective import effective
from dualml.parity.causes.evidence import relations
from dualml.parity.causes.explanation import Cause, Explanation
from dualml.parity.causes.gradients import gradients
from dualml.parity.causes.lines import of_lines
from dualml.parity.causes.moves import rate, written
from dualml.parity.causes.neutral import neutral
from dualml.parity.causes.of_all_calls import of_all_calls
from dualml.parity.causes.quick import recorded
from dualml.parity.causes.returned import returned
from dualml.parity.causes.runs import (
    ALMOST,
    GAINED,
    GROUPS,
    SHARED,
    Run,
    firm,
)
from dualml.parity.causes.screen import STAGES, Screen
from dualml.parity.causes.sharing import biased, shared, untied, without
from dualml.parity.causes.surroundings import Surroundings
from dualml.parity.causes.tensors import end_at_buffers, trained
from dualml.parity.causes.trials import Trials
from dualml.parity.causes.updates import NUMBERS, updates
from dualml.parity.models.flow import Side, share
from dualml.parity.models.operations import Operation
from dualml.parity.models.trace import Trace

#: Smallest number of runs that the search of a large model gets time for.
LEAST_RUNS = 8
#: Relative distance up to which learning-rate factors count as equal.
ALIKE = 0.01
#: Largest number of consecutive causes.
ROUNDS = 4


class Search(Trials):
    """A search for the causes of a difference between two traces."""

    def explain(self) -> Explanation:
        """Find causes one after the other, until the sides are equal or nothing explains the
        rest."""
        began = time.monotonic()
        now = self.run([])
        self.until = max(self.until, began + LEAST_RUNS * (time.monotonic() - began))
        first = None if now is None else now.comparison.first
        self.result.computed = first is not None and GROUPS[first.phase] == 0
        whole = computed = 0
        shared: set[int] = set()
        for _ in range(ROUNDS):
            if now is None or now.comparison.verdict != "different" or self.late:
                break
            better = self.round(now)
            if not better:
                self.result.evidence = self.evidence(now)
                break
            best = better[0]
            added = [self.as_mask(run.changes[-1], now.trace) for run in better]
            if any(len(change.sites) > 1 for change in added):
                self.explorer.run(now.changes)  # the run that is replayed
                added = [effective(self.explorer, change, now.trace) for change in added]
            self.result.causes.append(
                Cause(tuple(added), self.place_of(added[0], now.trace), self.result.other)
            )
            if best.reach[0] > now.reach[0] or best.leaves(SHARED, now):
                whole = len(self.result.causes)
            if best.leaves(SHARED, now) or best.reach[0] - now.reach[0] >= GAINED:
                shared.add(whole - 1)
            then = best.comparison.first
            if then is not None and GROUPS[then.phase] > 0 and then.step == 1:
                computed = len(self.result.causes)
            now = best
            if added[0].kind == "dtype" and added[0].action == "numbers":
                break  # its rounding affects everything behind it
        self.result.late = self.late
        if now is not None:
            self.result.enough, self.result.equal = now.alike, now.alike and not now.enough
        if not self.result.enough:
            # A mutation that only makes more operations match is half a cause and does not count;
            # nor does one that can produce arbitrary numbers, unless all outputs and the loss, or
            # most unmatched values, follow from it.
            kept = enumerate(self.result.causes[:whole])
            self.result.causes = [
                one for i, one in kept if i < computed or i in shared or firm(one.alterations[0])
            ]
        return self.result

    def as_mask(self, change: Alteration, trace: Trace) -> Alteration:
        """Return a mutation with kind ``mask`` if it inverts an array of zeros and ones; others
        unchanged."""
        transform = change.value[0] if isinstance(change.value, tuple) else ""
        if transform not in ("one_minus", "invert") or change.action not in ("input", "output"):
            return change
        site = trace.operations[change.sites[0]]
        name = site.names()[0] if change.action == "output" else site.inputs[int(change.argument)]
        array = trace.get("operation", 1, name)
        ones = array is not None and array.size > 1 and bool(np.isin(array, (0, 1)).all())
        return replace(change, kind="mask") if ones else change

    def evidence(self, now: Run) -> list[dict[str, Any]]:
        """Return relations between the two arrays where the difference begins."""
        first = now.comparison.first
        assert first is not None
        x = now.trace.get(first.phase, first.step, first.tensor)
        y = self.b.get(first.phase, first.step, first.other)
        return [] if x is None or y is None else relations(x, y)

    def place_of(self, change: Alteration, trace: Trace) -> Operation | None:
        """Return the first operation that a mutation changes; None if it changes no call."""
        return trace.operations[change.sites[0]] if change.sites else None

    def round(self, now: Run) -> list[Run]:
        """Return runs with one more mutation that improve agreement between the two sides, the best
        first."""
        first = now.comparison.first
        assert first is not None
        if any(self.pairing.alone) and not now.changes:
            other_modules = self.farther(now, self.sharing())
            if any(run.alike for run in other_modules):
                return best_of(self.calls, self.result.other, now, other_modules)
        here, there = share(now.trace, self.b, self.margin)
        if first.phase == "state":  # a buffer that the model itself writes
            end_at_buffers(now, self.b, here, there, self.names)
        lost = here.lost(), there.lost()
        begun = lost
        if first.phase == "forward":  # the beginning, which later values may hide
            begun = (
                lost[0] | self.value_of(now.trace, here, first.tensor),
                lost[1] | self.value_of(self.b, there, first.other),
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
                best = self.around(now, here, there, begun)
                self.until = until
                if best:
                    return best
                begun = lost
            return self.around(now, here, there, begun) or self.of_all_calls(now)
        if first.kind == "trained":
            candidates = trained(self.a, self.b, self.names)
        elif first.phase == "gradient":
            candidates = gradients(now.trace, self.b, here, now.comparison, self.names)
            found = self.farther(now, candidates)
            if not found and first.step == 1:
                found = self.of_all_calls(now)
            if not found and first.step == 1:
                found = self.farther(now, self.neutral(now, here, there))
            return best_of(self.calls, self.result.other, now, found)
        else:
            candidates = updates(
                now.trace, self.b, now.comparison, self.explorer.settings(), self.names
            )
            if first.phase == "update":
                calls = self.explorer.lines(recorded(now.trace, 1)[0])
                candidates += of_lines(calls, NUMBERS)
        whole = self.schedule(now) if GROUPS[first.phase] == 2 else []
        return best_of(self.calls, self.result.other, now, self.farther(now, [*whole, *candidates]))

    def around(
        self, now: Run, here: Side, there: Side, lost: tuple[set[str], set[str]]
    ) -> list[Run]:
        """Return the best mutations of the operations around the first unmatched values.

        Args:
            unmatched: names of the unmatched values of either side.
        """
        origins = here.origins(lost[0]), there.origins(lost[1])
        screen = Screen(self, now.trace, here, there, lost)
        runs = self.farther(now, returned(now.trace))
        if any(run.alike for run in runs):
            return best_of(self.calls, self.result.other, now, runs)
        for stage in STAGES:
            until = self.until
            if stage == STAGES[-1] and any(run.reach > now.reach for run in runs):
                # Keep half of the time for a next cause.
                self.until -= max(0.0, until - time.monotonic()) / 2
            while True:
                self.explorer.run(now.changes)  # the run that is replayed
                runs += self.farther(now, screen.passed(*origins, stage))
                if screen.done or any(run.leaves(ALMOST, now) for run in runs):
                    break
            if screen.done and stage == STAGES[1]:
                runs += self.farther(now, of_constants(self.explorer, here, there, lost))
                lower = in_less_precision(self.explorer, here, there, lost)
                runs += self.farther(now, lower)
            self.until = until
            best = best_of(self.calls, self.result.other, now, runs)
            # Not half a cause, which only makes more operations match.
            farther = [
                run for run in best[:1] if run.reach[0] > now.reach[0] or run.leaves(SHARED, now)
            ]
            if any(settled(now, run, stage, self.calls, self.result.other) for run in farther):
                break
        return best

    def of_all_calls(self, now: Run) -> list[Run]:
        """Return runs with a setting changed in all calls of a function at once, the best first."""
        runs = self.farther(now, of_all_calls(now.trace, self.b), scoped=False)
        return best_of(self.calls, self.result.other, now, runs)

    def neutral(self, now: Run, here: Side, there: Side) -> list[Alteration]:
        """Return mutations that change gradients only and no value."""
        outside = now.comparison.outside
        wrong = {tensor for step, phase, tensor in outside if (step, phase) == (1, "gradient")}
        around = Surroundings(self.a, self.names, here, there)
        until = time.monotonic() + (self.until - time.monotonic()) / 2
        self.explorer.run(now.changes)  # the run that is replayed
        return list(neutral(self.explorer, here, around, wrong, lambda: time.monotonic() > until))

    def sharing(self) -> list[Alteration]:
        """Return mutations for parameters that only one side has.

        These are biases, and modules that one side uses in several places where the other has
        several.
        """
        changes, values = untied(self.explorer.places(), self.b, self.pairing)
        biases, begin = biased(self.b, self.pairing)
        self.explorer.begin(values | begin)
        return [*biases, *without(self.a, self.pairing), *changes, *shared(self.a, self.pairing)]

    def value_of(self, trace: Trace, side: Side, output: str) -> set[str]:
        """Return the name of the value that a module gave as its output, as a set of at most
        one."""
        array = trace.get("forward", 1, output)
        if array is None:
            return set()
        flat = array.ravel()
        same = (n for n, v in side.arrays.items() if np.array_equal(v.ravel(), flat))
        return set(list(same)[:1])

    def schedule(self, now: Run) -> list[Alteration]:
        """Return a mutation with one learning-rate factor per update, if single factors explain all
        updates."""
        factors: list[float] = []
        run: Run | None = now
        for step in range(1, now.comparison.steps + 1):
            if run is None or (c := rate(run.trace, self.b, step, self.names)) is None:
                return []
            factors.append(float(f"{c:.9g}"))
            change = Alteration("optimizer", "optimizer", (), "", "lr_schedule", tuple(factors))
            run = self.run([*now.changes, replace(change, value=(*factors, 1.0))])
        # Equal implausible factors come from a norm (such as clipping), not from a schedule.
        alike = max(factors) - min(factors) <= ALIKE * abs(factors[0])
        return [change] if not alike or all(map(written, factors)) else []
