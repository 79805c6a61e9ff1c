"""Select the mutations that deserve a whole run: those that reproduce unmatched values."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dualml.parity.causes.assessment import FITTED
from dualml.parity.causes.context import ContextBuilder
from dualml.parity.causes.exchanged_settings import exchanged_settings
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.mutations import candidate_mutations
from dualml.parity.causes.permutation_search import find_element_orders
from dualml.parity.causes.ratios import common_ratio
from dualml.parity.causes.scopes import widen_to_line
from dualml.parity.causes.spans import SpanFinder
from dualml.parity.causes.swaps import group_by_line, swap_mutations
from dualml.parity.causes.tables import SINGLE_CALL_ACTIONS
from dualml.parity.models.judge import JudgingSettings
from dualml.parity.models.operations import Operation, call_number, content_key
from dualml.parity.models.trace import Trace
from dualml.parity.models.value_matching import TraceOperand, ValueIndex, index_values


@dataclass(frozen=True)
class SearchStage:
    """A set of mutations that are tried together.

    Attributes:
        settings: whether only settings of operations are changed.
        calls: how many calls behind the changed one are replayed.
    """

    settings: bool
    calls: int


#: Simple and near mutations come before numerous and far ones; the search ends once one explains.
STAGES = (SearchStage(True, 4), SearchStage(False, 4), SearchStage(False, 30))
#: Number of first unmatched operations that are mutated; of those behind, twice as many are.
SITES = 10
#: Number of first and of last unmatched operations of the other side whose numbers are tried as
#: constants of a mutation.
MAX_DONOR_OPERATIONS = 8
#: Number of mutations of one call before it is the next call's turn.
TURN = 24
#: Number of elements of an array that are examined; with fewer than MIN_DISTINCT_ELEMENTS distinct
#: ones a match proves little, and only MAX_WEAK_MUTATIONS mutations that match nothing else are
#: tried.
SAMPLE_ELEMENTS, MIN_DISTINCT_ELEMENTS, MAX_WEAK_MUTATIONS = 256, 5, 20
#: A factor this near to one is rounding.
ROUNDING = 1e-5
#: Kinds of mutations that are most numerous and least promising.
UNPROMISING_KINDS = ("constant", "dtype", "layout")
#: Number of first unmatched operations around which spans of calls are moved.
SPANNED = 4
#: A stage ends with more than MAX_SURVIVORS survivors. After MAX_IDLE_GROUPS groups since the first
#: survivor, the survivors so far are tried in whole runs before the stage continues.
MAX_SURVIVORS, MAX_IDLE_GROUPS = 160, 3000


class Prober(Protocol):
    """A model whose calls can be replayed under a mutation."""

    def probe(
        self, change: Mutation, calls: int, visit: Callable[[str, NDArray[Any]], bool]
    ) -> None:
        """Replay a mutated call of the first step and up to ``calls`` later calls whose inputs
        change. ``visit`` gets name and array of each output that is not bitwise as recorded, and
        ends the replay by returning False.

        Raises:
            Exception: the framework refuses the mutation, or it would kill the process.
        """
        ...


class FilterHost(Protocol):
    """The host that a candidate filter works for: its traces, names and model.

    Attributes:
        a, b: the recorded traces of the side that is mutated and of the other side.
        settings: how the two sides are compared.
        names: the other side's parameters → this side's, both with the prefix ``parameter:``.
    """

    a: Trace
    b: Trace
    settings: JudgingSettings
    names: dict[str, str]

    @property
    def explorer(self) -> Prober:
        """The model in which mutations are replayed."""
        ...


class CandidateFilter:
    """A filter that replays mutations of the operations around the first unmatched values.

    Args:
        host: the host of the search, see `FilterHost`.
        trace: the current trace of this side.
        here, there: the operations of this side and of the other side.
        unmatched: names of the unmatched values of either side.
    """

    def __init__(
        self,
        host: FilterHost,
        trace: Trace,
        here: TraceOperand,
        there: TraceOperand,
        unmatched: tuple[set[str], set[str]],
    ) -> None:
        self.host, self.trace, self.here, self.there, self.unmatched = (
            host,
            trace,
            here,
            there,
            unmatched,
        )
        self.order = {name: i for i, name in enumerate(there.arrays)}
        # Without unmatched values there, the other side ends earlier, at a value inside this side.
        names = unmatched[1] or {name for name in there.final_values if name in self.order}
        wanted = sorted(names, key=self.order.__getitem__)
        self.wanted: ValueIndex = index_values(host.b, host.settings.margin, wanted)
        self.known_lines = group_by_line(here.operations)
        self.spans = SpanFinder(
            here.operations,
            here.consumers,
            here.input_shapes(),
        )
        self.surroundings = ContextBuilder(host.a, host.names, here, there)
        #: Arrays with few distinct numbers, such as masks and indices, match by chance.
        self.informative = {
            name
            for name, array in self.wanted.arrays.items()
            if name in there.final_values
            or np.unique(array.ravel()[:SAMPLE_ELEMENTS]).size >= MIN_DISTINCT_ELEMENTS
        }
        self.matches_by_output: dict[tuple[int, str, str], list[str]] = {}
        #: Mutations that changed a value, grouped by call, expression and line.
        self.active_groups: list[list[Mutation]] = []
        self.changed_count = 0
        #: Number of mutations that were tried in a replay.
        self.tried = 0
        self.stage: SearchStage | None = None
        self.waiting: Iterator[list[Mutation]] = iter(())
        #: Whether all mutations of the stage were tried.
        self.done = True

    def survivors(
        self,
        origins: tuple[Sequence[Operation], Sequence[Operation]],
        stage: SearchStage,
        is_late: Callable[[], bool],
    ) -> list[Mutation]:
        """Return the mutations that deserve a whole run, the most promising first.

        These are the untested `fitted_mutations`, unless the stage changes settings only or is
        continued; then the mutations that reproduce unmatched values of the other side in a replay,
        those that reproduce the latest ones first; at the end up to MAX_WEAK_MUTATIONS whose
        matches prove little. Mutations are tried until the time is up or enough survive. `done` is
        False if it stopped because survivors should be tried first; called again for the same
        stage, it then continues.

        Args:
            origins: the first operations with unmatched values, of this side and of the other.
            stage: the mutations to try, and how far to replay.
            is_late: returns whether the time is up.
        """
        rows: list[tuple[tuple[float, ...], Mutation]] = []
        weak: list[Mutation] = []
        lost = [one for one in self.there.operations if set(one.output_names()) & self.unmatched[1]]
        own, others = origins
        nearest = [*others[:4], *lost[:MAX_DONOR_OPERATIONS], *lost[-MAX_DONOR_OPERATIONS:]]
        others = list({one.number: one for one in nearest}.values())
        sites = self.candidate_sites(own)
        again = stage == self.stage
        if not again:
            self.stage, self.waiting = stage, self.mutation_groups(sites, others, stage)
        self.done, idle = True, 0
        for group in self.waiting:
            if is_late() or len(rows) > MAX_SURVIVORS:
                break
            alive = []
            for scope in group:
                before = self.changed_count
                hits = self.matched_values(scope, self.replay_depth(scope, stage, own))
                alive += [scope] if self.changed_count > before else []
                if strong := [self.order[name] for name in hits if name in self.informative]:
                    rows.append(((-max(strong), -len(strong), len(rows)), scope))
                    break
                if hits:
                    weak.append(scope)
            if alive and stage == STAGES[1]:
                self.active_groups.append(alive)
            idle += bool(rows)
            if idle > MAX_IDLE_GROUPS:
                self.done = False
                break
        rows.sort(key=lambda row: row[0])
        fits = [] if stage.settings or again else self.fitted_mutations(sites)
        return [*fits, *self.deduplicate(change for _, change in rows), *weak[:MAX_WEAK_MUTATIONS]]

    def mutation_groups(
        self, sites: Sequence[Operation], others: Sequence[Operation], stage: SearchStage
    ) -> Iterator[list[Mutation]]:
        """Yield groups of mutations, to be tried in order until one matches: the mutation at its
        call, then at all calls of its expression and of its line.

        In the last stage the groups are those that changed a value in the second stage; they are
        taken out of `active_groups`, and the other arguments do not count.

        Args:
            sites: the operations to mutate.
            others: operations of the other side whose numbers and operands are tried.
        """
        if stage == STAGES[-1]:  # all that changed a value when fewer calls were replayed
            self.active_groups.sort(key=lambda group: group[0].kind in UNPROMISING_KINDS)
            alive, self.active_groups = self.active_groups, []
            return iter(alive)
        changes = self.candidates(sites, others, stage)
        return (widen_to_line(change, self.trace.operations) for change in changes)

    def deduplicate(self, changes: Iterable[Mutation]) -> list[Mutation]:
        """Return the mutations without those that change the same expression in another iteration
        of a loop.

        The first one remains; it is later tried at all of them.
        """
        kept: dict[Any, Mutation] = {}
        for change in changes:
            place = self.trace.operations[change.sites[0]].place
            key = repr(change.with_sites(())), place or change.sites, len(change.sites)
            kept.setdefault(key, change)
        return list(kept.values())

    def candidates(
        self, sites: Sequence[Operation], others: Sequence[Operation], stage: SearchStage
    ) -> Iterator[Mutation]:
        """Yield the mutations of all sites: up to TURN of each site in turn, until none are left;
        likely ones of each site first.

        The first stage also exchanges settings, see `exchanged_settings`; the second also moves
        spans of calls at the first SPANNED sites, see `SpanFinder`.

        Args:
            sites: the operations to mutate.
            others: operations of the other side whose numbers and operands are tried.
        """
        waiting = [self.candidates_at(site, others, stage) for site in sites]
        if stage == STAGES[0]:
            waiting += [exchanged_settings(self.trace.operations, site) for site in sites]
        if stage == STAGES[1]:
            waiting = [
                *(self.spans.mutations(site) for site in sites[:SPANNED]),
                *waiting,
            ]
        while waiting:
            left = []
            for one in waiting:
                chosen = list(islice(one, TURN))
                yield from chosen
                if chosen:
                    left.append(one)
            waiting = left

    def candidates_at(
        self, site: Operation, others: Sequence[Operation], stage: SearchStage
    ) -> Iterator[Mutation]:
        """Yield all mutations of one operation for a stage: only those of attributes if the stage
        changes settings alone, else also `swap_mutations` of its line."""
        around = self.surroundings.build_context(site, others)
        if not stage.settings:
            yield from dict.fromkeys(swap_mutations(site.number, self.known_lines, around.shapes))
        shapes = [around.shapes.get(name, ()) for name in site.inputs]
        for change in candidate_mutations(site, shapes, around):
            if not stage.settings or change.kind == "attribute":
                yield change

    def fitted_mutations(self, sites: Sequence[Operation]) -> list[Mutation]:
        """Return up to eight mutations that turn the unmatched first output of a site into an
        unmatched value of the other side, by one factor or another order of the elements."""
        candidates = []
        wanted = {name: self.host.b.find_array("operation", 1, name) for name in self.unmatched[1]}
        for site in sites:
            for key in site.output_names()[:1]:
                x = self.here.arrays.get(key)
                for y in wanted.values():
                    if key not in self.unmatched[0] or x is None or y is None or x.size != y.size:
                        continue
                    candidates += [
                        Mutation("layout", "output", (site.number,), site.name, "", order)
                        for order in find_element_orders(x, y)
                    ]
                    if x.dtype.kind == "f":
                        c = common_ratio(x.ravel(), y.ravel())
                        if c is not None and c and abs(c - 1) > ROUNDING:
                            candidates.append(
                                Mutation(
                                    "constant",
                                    "output",
                                    (site.number,),
                                    site.name,
                                    "",
                                    ("scale", float(f"{c:.9g}")),
                                    FITTED if x.size == 1 else None,
                                )
                            )
        return list(dict.fromkeys(candidates))[:8]

    def candidate_sites(self, origins: Sequence[Operation]) -> list[Operation]:
        """Return the operations to mutate, each once: the first SITES with unmatched values
        (``origins``), up to three calls before these, and up to twice as many further ones with
        unmatched values.

        Those before count because a fused kernel also has values that the other side does not
        share.
        """
        sites = {one.number: one for one in origins[:SITES]}
        for one in origins[:SITES]:
            front = list(one.inputs)
            for _ in range(3):
                before = [
                    self.here.operations[number]
                    for n in front
                    if (number := call_number(n)) is not None
                ]
                sites |= {b.number: b for b in before}
                front = [n for b in before for n in b.inputs]
        order = [one.number for one in origins[:SITES]]
        rest = sorted(set(sites) - set(order), reverse=True)
        later = [
            one.number
            for one in self.here.operations
            if any(k in self.unmatched[0] for k in one.output_names())
        ]
        chosen = dict.fromkeys([*order, *rest, *later[: 2 * SITES]])
        return [self.here.operations[number] for number in chosen]

    def replay_depth(
        self, change: Mutation, stage: SearchStage, origins: Sequence[Operation]
    ) -> int:
        """Return how many calls behind a mutation to replay.

        ``stage.calls`` in the stage with many near mutations or without ``origins``; else at least
        as many, and enough to reach the first unmatched values.
        """
        if stage == STAGES[1] or not origins:
            return stage.calls
        return max(stage.calls, origins[0].number - change.sites[0] + STAGES[0].calls)

    def matched_values(self, change: Mutation, calls: int) -> list[str]:
        """Return the names of the other side's unmatched values that a mutation reproduces, in a
        replay; of its final values if none is unmatched.

        Counts the mutation as tried, and in `changed_count` if it changed a value. If the framework
        refuses it, the outputs before the refusal count.

        Args:
            calls: how many calls behind the mutation are replayed.
        """
        self.tried += 1
        names: list[str] = []
        #: The output of the call determines everything behind it.
        given: tuple[int, str, str] | None = None
        other = False

        def visit(name: str, array: NDArray[Any]) -> bool:
            """Search an output among the unmatched values; return whether to continue."""
            nonlocal given, names, other
            if not other:
                was = self.here.arrays.get(name)
                other = was is None or not np.array_equal(was, array)
                self.changed_count += other
            if given is None and len(change.sites) == 1 and change.action in SINGLE_CALL_ACTIONS:
                given = (calls, name, content_key(array))
                if given in self.matches_by_output:
                    names = self.matches_by_output[given]
                    return False
            nothing = array.size < 2 or (array.dtype.kind == "f" and not np.isfinite(array).any())
            if (nothing or not self.unmatched[1]) and name not in self.here.final_values:
                return True
            partner = self.wanted.find(array, self.here.values.widths.get(name, 0.0))
            if partner is not None:
                names.append(partner)
            return True

        # If the framework refuses the mutation, the outputs before count.
        with contextlib.suppress(Exception):
            self.host.explorer.probe(change, calls, visit)
        if given is not None:
            self.matches_by_output[given] = names
        return names
