"""Candidates of a patch: the rewritings of a port that may undo a cause, the likeliest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from dualml.parity.patches.functions import (
    remove_terms,
    replace_functions,
    replace_operators,
    wrap_calls,
)
from dualml.parity.patches.novelty import Novelty
from dualml.parity.patches.orders import (
    exchange_parts,
    rearrange_parts,
    replace_operands,
    shift_numbers,
    swap_order,
    undo_factor,
)
from dualml.parity.patches.reference import reference_rewritings
from dualml.parity.patches.removals import release_gradients, remove_casts_and_rounding
from dualml.parity.patches.rewriting import PatchSite, Rewriting
from dualml.parity.patches.settings import setting_rewritings
from dualml.parity.patches.stated import restore_stated

Rewriter = Callable[[PatchSite], Iterator[Rewriting]]
#: Largest number of rewritings of one kind that are ranked.
MAX_PER_KIND = 400
#: What the cost of a further, equally good explanation adds.
PER_TIE = 0.3
#: Number of equally good explanations that are considered.
MAX_TIES = 3
#: Number of rewritings whose texts are compared with the original's.
MAX_RANKED = 150


#: Kind or action of a mutation → what may undo it; what stands first is not tried first, the costs
#: of the rewritings decide.
REWRITERS: Mapping[str, tuple[Rewriter, ...]] = {
    "set": (setting_rewritings,),
    "settings": (setting_rewritings,),
    "pad": (setting_rewritings,),
    "everywhere": (setting_rewritings,),
    "function": (replace_functions,),
    "instead": (replace_functions,),
    "form": (setting_rewritings, replace_functions, swap_order),
    "drop": (wrap_calls, replace_operands),
    "omit": (wrap_calls, replace_operands),
    "operand": (replace_operands, exchange_parts, remove_terms),
    "rename": (replace_operands, exchange_parts),
    "borrow": (replace_operands,),
    "earlier": (replace_operands, swap_order),
    "spans": (swap_order, replace_operands),
    "exchange": (exchange_parts, replace_operands),
    "reorder": (exchange_parts,),
    "outputs": (exchange_parts,),
    "swap": (swap_order,),
    "detach": (release_gradients,),
    "lower": (remove_casts_and_rounding,),
    "numbers": (replace_operators, shift_numbers, exchange_parts),
    "index": (shift_numbers, exchange_parts),
    "indices": (shift_numbers, exchange_parts),
    "shifted": (shift_numbers,),
    "twice": (remove_terms,),
    "dropout": (remove_terms,),
    "optimizer": (restore_stated, swap_order, replace_functions),
    "kind.extra": (remove_terms,),
    "kind.missing": (remove_terms, wrap_calls),
    "kind.mask": (replace_operators, shift_numbers, remove_terms, replace_functions),
    "kind.layout": (rearrange_parts,),
    "kind.constant": (undo_factor, replace_operators, shift_numbers, exchange_parts),
    "kind.dtype": (remove_casts_and_rounding,),
    "kind.gradient": (release_gradients,),
    "kind.parameters": (release_gradients, replace_operands),
    "kind.order": (swap_order,),
    "kind.operand": (replace_operands, exchange_parts, swap_order),
    "kind.function": (replace_functions, remove_terms),
    "kind.optimizer": (restore_stated,),
}


def rewritings(site: PatchSite) -> Iterator[Rewriting]:
    """Yield the rewritings that may undo the mutation of a site (`PatchSite.change`), at most
    `MAX_PER_KIND` of each kind, in no order of cost."""
    change = site.change
    action = str(change["action"]).removeprefix("line:")
    chosen = [*REWRITERS.get(action, ()), *REWRITERS.get(f"kind.{change['kind']}", ())]
    for rewriter in dict.fromkeys([*chosen, reference_rewritings]):
        with suppress(ValueError, RecursionError):  # a node without a position, or too deep
            yield from islice(rewriter(site), MAX_PER_KIND)


def ranked_texts(site: PatchSite, alterations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return whole texts of the port's file that may undo a cause, the likeliest first, each valid
    Python and different from the others and the present text.

    Args:
        alterations: the mutations that explain the cause equally well.
    """
    rows: list[Rewriting] = []
    for number, change in enumerate(alterations[:MAX_TIES]):
        tied = replace(site, change=change)
        rows += [replace(one, cost=one.cost + PER_TIE * number) for one in rewritings(tied)]
    texts: dict[str, float] = {}
    novelty = Novelty(site)
    for row in sorted(rows, key=lambda one: one.cost):
        if len(texts) >= MAX_RANKED:
            break
        with suppress(ValueError, SyntaxError):  # edits overlap, or make no valid source
            text = site.port.apply(row.edits)
            if text != site.port.text and text not in texts:
                texts[text] = row.cost + novelty.score(text, row.line)
    return sorted(texts, key=lambda text: texts[text])
