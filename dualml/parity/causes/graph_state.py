"""The difference that one run leaves, on both sides of a model comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from math import prod
from typing import Protocol

import numpy as np

from dualml.common.tensor_files import array_shape
from dualml.parity.causes.assessment import GROUPS
from dualml.parity.causes.candidate_filter import CandidateFilter
from dualml.parity.causes.explanation import Explorer
from dualml.parity.causes.inquiry import Survey
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.prefilter import Prefilter
from dualml.parity.causes.runs import MutatedRun
from dualml.parity.causes.stated import StatedSettings
from dualml.parity.causes.tensors import add_buffer_outputs
from dualml.parity.models.judge import JudgingSettings
from dualml.parity.models.operations import Operation
from dualml.parity.models.partners import Pairing
from dualml.parity.models.trace import Trace
from dualml.parity.models.value_matching import TraceOperand, match_values

#: Regions of a survey: the values where the difference begins, and all that are unmatched.
FIRST_VALUES, ALL_VALUES = "first", "all"


class Sides(Protocol):
    """The two sides that are compared, see `dualml.parity.causes.graph_host.GraphHost`."""

    a: Trace
    b: Trace
    explorer: Explorer
    settings: JudgingSettings
    pairing: Pairing
    names: dict[str, str]
    stated: StatedSettings

    def run_mutated(
        self, changes: Sequence[Mutation], steps: int | None = None
    ) -> MutatedRun | None:
        """Run the model under mutations, and compare the run with the other side."""
        ...


class GraphState:
    """The difference that one run leaves.

    Args:
        host: the two sides.
        now: the run, with the mutations found so far; it must have a first divergence.
    """

    def __init__(self, host: Sides, now: MutatedRun) -> None:
        first = now.comparison.first
        assert first is not None
        self.host, self.now, self.first = host, now, first
        self.filters: dict[str, CandidateFilter] = {}

    @cached_property
    def prefilter(self) -> Prefilter:
        """The cheap test of a mutation that is added to the run."""
        return Prefilter(self.now, self.host.b, self.host.pairing, self.host.explorer)

    @cached_property
    def operands(self) -> tuple[TraceOperand, TraceOperand]:
        """The operations of both sides, with their values matched."""
        host, trace = self.host, self.now.trace
        here, there = match_values(trace, host.b, host.settings.margin, host.pairing.pairs)
        if self.first.phase == "state":  # a buffer that the model itself writes
            add_buffer_outputs(self.now, host.b, here, there, host.names)
        return here, there

    @cached_property
    def unmatched(self) -> Mapping[str, tuple[set[str], set[str]]]:
        """Region → names of the values of either side that are to be explained there."""
        here, there = self.operands
        lost = begun = here.unmatched(), there.unmatched()
        if self.first.phase == "forward":  # the beginning, which later values may hide
            begun = (
                lost[0] | output_value(self.now.trace, here, self.first.tensor),
                lost[1] | output_value(self.host.b, there, self.first.other),
            )
        return {FIRST_VALUES: begun, ALL_VALUES: lost}

    def origins(self, region: str) -> tuple[Sequence[Operation], Sequence[Operation]]:
        """Return the operations of either side at which the values of a region become unmatched."""
        own, other = self.unmatched[region]
        here, there = self.operands
        return here.origins(own), there.origins(other)

    @cached_property
    def survey(self) -> Survey:
        """The beginning of the difference on both sides."""
        begun, lost = self.unmatched[FIRST_VALUES], self.unmatched[ALL_VALUES]
        written = self.first.phase == "state" and bool(lost[0])
        computed = GROUPS[self.first.phase] == 0 or written
        regions: tuple[str, ...] = ()
        if computed and self.first.step == 1 and any(begun):
            # Where it begins inside the margin, perhaps for another reason, both are searched.
            regions = (FIRST_VALUES, ALL_VALUES) if begun != lost and lost[0] else (FIRST_VALUES,)
        places = [next(iter(side), None) for side in self.origins(FIRST_VALUES)]
        return Survey(regions, *places)

    def replay_now(self) -> None:
        """Record the first step under the mutations found so far, so that replays start from it."""
        self.host.explorer.record(self.now.changes)


def output_value(trace: Trace, side: TraceOperand, output: str) -> set[str]:
    """Return the name of the first value that equals a module's output in the first step, as a set
    of at most one."""
    array = trace.find_array("forward", 1, output)
    if array is None:
        return set()
    flat = array.ravel()
    sizes = {n: prod(array_shape(side.arrays, n)) for n in side.arrays}
    same = (
        n
        for n, size in sizes.items()
        if size == flat.size and np.array_equal(side.arrays[n].ravel(), flat)
    )
    return set(islice(same, 1))
