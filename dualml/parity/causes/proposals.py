"""The sources of mutations on a model's graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from dualml.parity.causes.assessment import GROUPS
from dualml.parity.causes.candidate_filter import STAGES, CandidateFilter
from dualml.parity.causes.constants import constant_mutations, precision_mutations
from dualml.parity.causes.context import ContextBuilder
from dualml.parity.causes.global_settings import global_mutations
from dualml.parity.causes.gradient_only import gradient_only_mutations
from dualml.parity.causes.gradients import gradient_mutations
from dualml.parity.causes.graph_state import GraphState
from dualml.parity.causes.inquiry import Proposal, Source, SourceName
from dualml.parity.causes.joint_changes import joint_mutations
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.optimizer_lines import line_mutations
from dualml.parity.causes.output_order import output_order_mutations
from dualml.parity.causes.prefilter import recorded_gradients
from dualml.parity.causes.ratios import is_plausible_factor, update_ratio
from dualml.parity.causes.runs import MutatedRun
from dualml.parity.causes.sharing import (
    bias_mutations,
    neutral_parameter_mutations,
    sharing_mutations,
    untying_mutations,
)
from dualml.parity.causes.stated import stated_mutations
from dualml.parity.causes.stated_slices import confirm_nearby
from dualml.parity.causes.tables import OPTIMIZER_NUMBERS
from dualml.parity.causes.tensors import training_mutations
from dualml.parity.causes.updates import update_mutations
from dualml.parity.causes.weight_norms import norm_axis_mutations

#: Relative distance up to which learning-rate factors count as equal.
LR_FACTOR_RTOL = 0.01

#: Returns whether the time is up.
Deadline = Callable[[], bool]


def stated_settings(state: GraphState, source: Source, is_late: Deadline) -> Proposal:
    """Propose the settings that both sides state differently and that bring the values of their own
    modules closer to the other side's, in replays of single calls."""
    host, trace = state.host, state.now.trace
    changes = stated_mutations(trace.operations, host.b.operations, host.stated)
    if not changes:
        return Proposal()
    state.replay_now()
    found = confirm_nearby(host.explorer, changes, trace, host.b, host.stated.pairs)
    return Proposal(tuple(found), True, len(changes))


def shared_parameters(state: GraphState, source: Source, is_late: Deadline) -> Proposal:
    """Propose mutations for parameters that only one side has, and register initial values for new
    ones: biases, and modules that one side uses in several places where the other has several."""
    host = state.host
    if not any(host.pairing.unpaired_parameters):
        return Proposal()
    changes, values = untying_mutations(host.explorer.shared_aliases(), host.b, host.pairing)
    biases, begin = bias_mutations(host.b, host.pairing)
    host.explorer.set_initial_values(values | begin)
    neutral = neutral_parameter_mutations(host.a, host.pairing)
    return Proposal((*biases, *neutral, *changes, *sharing_mutations(host.a, host.pairing)))


def joint_changes(state: GraphState, source: Source, is_late: Deadline) -> Proposal:
    """Propose mutations of several calls at once, and, if there is no mutation so far, those of a
    weight norm with its length. Registers the other side's arrays that they use with the
    explorer."""
    axes = () if state.now.changes else norm_axis_mutations(state.host)
    here, there = state.operands
    changes = joint_mutations(here, there, state.host.names)
    indices = [one.old[0] for one in changes if one.action == "addend" and one.old is not None]
    known = {name: there.arrays.get(name, there.values.arrays.get(name)) for name in indices}
    state.host.explorer.set_constants({n: np.asarray(x) for n, x in known.items() if x is not None})
    return Proposal((*axes, *changes))


def near_operations(state: GraphState, source: Source, is_late: Deadline) -> Proposal:
    """Propose the mutations of operations around the first unmatched values that reproduce one,
    from a stage of the search; asked again for the same stage, those that follow."""
    region = source.region
    screen = state.filters.get(region)
    if screen is None:
        screen = CandidateFilter(
            state.host, state.now.trace, *state.operands, state.unmatched[region]
        )
        state.filters[region] = screen
    state.replay_now()
    before = screen.tried
    found = screen.survivors(state.origins(region), STAGES[source.stage], is_late)
    return Proposal(tuple(found), screen.done, screen.tried - before)


def inserted_numbers(state: GraphState, source: Source, is_late: Deadline) -> Proposal:
    """Propose mutations that insert constants and tables of the other side (source ``constants``),
    or its low-precision results (source ``precision``)."""
    make = constant_mutations if source.name == "constants" else precision_mutations
    unmatched = state.unmatched[source.region]
    return Proposal(tuple(make(state.host.explorer, *state.operands, unmatched)))


def gradients(state: GraphState, source: Source, is_late: Deadline) -> Proposal:
    """Propose mutations that affect only gradients."""
    host, now = state.host, state.now
    here, _ = state.operands
    return Proposal(tuple(gradient_mutations(now.trace, host.b, here, now.comparison, host.names)))


def gradients_alone(state: GraphState, source: Source, is_late: Deadline) -> Proposal:
    """Propose mutations of calls that change wrong gradients of the first step and no value."""
    outside = state.now.comparison.outside
    wrong = {tensor for step, phase, tensor in outside if (step, phase) == (1, "gradient")}
    here, there = state.operands
    around = ContextBuilder(state.host.a, state.host.names, here, there)
    state.replay_now()
    found = gradient_only_mutations(state.host.explorer, here, around, wrong, is_late)
    return Proposal(tuple(found))


def training(state: GraphState, source: Source, is_late: Deadline) -> Proposal:
    """Propose a learning-rate schedule where weights differ, and to freeze or train the parameters
    that only one side trains."""
    host = state.host
    return Proposal((*schedules(state), *training_mutations(host.a, host.b, host.names)))


def updates(state: GraphState, source: Source, is_late: Deadline) -> Proposal:
    """Propose mutations of the optimizer: a schedule, its settings and rule, and its lines."""
    host, trace = state.host, state.now.trace
    changes = update_mutations(
        trace, host.b, state.now.comparison, host.explorer.optimizer_groups(), host.names
    )
    if state.first.phase == "update":
        calls = host.explorer.trace_update(recorded_gradients(trace, 1)[0])
        changes += line_mutations(calls, OPTIMIZER_NUMBERS)
    return Proposal((*schedules(state), *changes))


def schedules(state: GraphState) -> Iterator[Mutation]:
    """Yield at most one mutation with a learning-rate factor per update, if single factors explain
    all updates; nothing if the difference begins before the updates."""
    if GROUPS[state.first.phase] != 2:
        return
    host, now = state.host, state.now
    factors: list[float] = []
    run: MutatedRun | None = now
    change = Mutation("optimizer", "optimizer", (), "", "lr_schedule")
    for step in range(1, now.comparison.steps + 1):
        if run is None or (c := update_ratio(run.trace, host.b, step, host.names)) is None:
            return
        factors.append(float(f"{c:.9g}"))
        run = host.run_mutated([*now.changes, replace(change, value=(*factors, 1.0))])
    # Equal implausible factors come from a norm (such as clipping), not from a schedule.
    alike = max(factors) - min(factors) <= LR_FACTOR_RTOL * abs(factors[0])
    if not alike or all(map(is_plausible_factor, factors)):
        yield replace(change, value=tuple(factors))


#: Name of a source → what it proposes.
SOURCES: Mapping[SourceName, Callable[[GraphState, Source, Deadline], Proposal]] = {
    "stated": stated_settings,
    "sharing": shared_parameters,
    "returned": lambda state, *_: Proposal(tuple(output_order_mutations(state.now.trace))),
    "joint": joint_changes,
    "near": near_operations,
    "constants": inserted_numbers,
    "precision": inserted_numbers,
    "global": lambda state, *_: Proposal(tuple(global_mutations(state.now.trace, state.host.b))),
    "training": training,
    "update": updates,
    "gradient": gradients,
    "gradient only": gradients_alone,
}
