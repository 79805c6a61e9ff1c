"""Enumerate the mutations to try on one operation.

They are derived from the operation itself: each setting takes neighbouring values and those of the
other side, each input and output gets another arrangement, each term is left out or doubled, and
each operand is replaced by another value of its shape. Known mistakes (`known_mistakes`) are tried
first; a mutation is accepted only if it reproduces the numbers of the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dualml.parity.causes import function_mutations, tensor_mutations
from dualml.parity.causes.known_mistakes import put_mistakes_first
from dualml.parity.causes.mutation import Mutation, MutationContext, Shape
from dualml.parity.causes.mutation_site import MutationSite
from dualml.parity.models.operations import Operation

#: Every group of mutations, likely ones first.
GROUPS: tuple[Callable[[MutationSite], Iterator[Mutation]], ...] = (
    function_mutations.changed_attributes,
    function_mutations.changed_numbers,
    function_mutations.dropped_calls,
    function_mutations.other_functions,
    function_mutations.changed_settings,
    function_mutations.other_unary_functions,
    tensor_mutations.changed_operands,
    tensor_mutations.reordered_parts,
    tensor_mutations.changed_selections,
    tensor_mutations.shifted_labels,
    tensor_mutations.swapped_calls,
    function_mutations.added_calls,
    tensor_mutations.transformed_outputs,
    tensor_mutations.transformed_inputs,
    tensor_mutations.rearranged_axes,
)
#: Number of first groups whose mutations make nearly all known mistakes.
MISTAKE_GROUPS = 6


def candidate_mutations(
    operation: Operation, shapes: Sequence[Shape], context: MutationContext
) -> Iterator[Mutation]:
    """Yield every mutation to try on one operation: known mistakes, then likely ones first.

    Args:
        shapes: shapes of its tensor inputs.
    """
    site = MutationSite(operation, shapes, context)
    yield from put_mistakes_first(
        [change for group in GROUPS[:MISTAKE_GROUPS] for change in group(site)]
    )
    for group in GROUPS[MISTAKE_GROUPS:]:  # numerous: made as they are tried
        yield from group(site)
