"""Candidates of a patch: the rewritings of a port that may undo a cause, the likeliest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from dualml.parity.patches.functions import (
    confused_operators,
    extra_calls,
    missing_calls,
    other_functions,
)
from dualml.parity.patches.left_out import casts, stopped_gradients
from dualml.parity.patches.novelty import Novelty
from dualml.parity.patches.orders import (
    exchanged,
    nested_orders,
    other_names,
    rearranged,
    scaled,
    shifted_numbers,
)
from dualml.parity.patches.reference import reference_rewritings
from dualml.parity.patches.rewriting import PatchSite, Rewriting
from dualml.parity.patches.settings import setting_rewritings
from dualml.parity.patches.stated import stated_in_original

Rewriter = Callable[[PatchSite], Iterator[Rewriting]]
#: Largest number of rewritings of one kind that are ranked.
MAX_PER_KIND = 400
#: What the rank of a further, equally good explanation adds.
PER_TIE = 0.3
#: Number of equally good explanations that are considered.
MAX_TIES = 3
#: Number of rewritings whose texts are compared with the original's.
MAX_RANKED = 150


#: Kind or action of a mutation → what may undo it; what stands first is not tried first, the ranks
#: of the rewritings decide.
REWRITERS: Mapping[str, tuple[Rewriter, ...]] = {
    "set": (setting_rewritings,),
    "settings": (setting_rewritings,),
    "pad": (setting_rewritings,),
    "everywhere": (setting_rewritings,),
    "function": (other_functions,),
    "instead": (other_functions,),
    "form": (other_functions, nested_orders),
    "drop": (missing_calls, other_names),
    "omit": (missing_calls, other_names),
    "operand": (other_names, exchanged, extra_calls),
    "rename": (other_names, exchanged),
    "borrow": (other_names,),
    "earlier": (other_names, nested_orders),
    "spans": (nested_orders, other_names),
    "exchange": (exchanged, other_names),
    "reorder": (exchanged,),
    "outputs": (exchanged,),
    "swap": (nested_orders,),
    "detach": (stopped_gradients,),
    "lower": (casts,),
    "numbers": (confused_operators, shifted_numbers, exchanged),
    "index": (shifted_numbers, exchanged),
    "indices": (shifted_numbers, exchanged),
    "shifted": (shifted_numbers,),
    "twice": (extra_calls,),
    "dropout": (extra_calls,),
    "optimizer": (stated_in_original, nested_orders, other_functions),
    "kind.extra": (extra_calls,),
    "kind.missing": (extra_calls, missing_calls),
    "kind.mask": (confused_operators, shifted_numbers, extra_calls, other_functions),
    "kind.layout": (rearranged,),
    "kind.constant": (scaled, confused_operators, shifted_numbers, exchanged),
    "kind.dtype": (casts,),
    "kind.gradient": (stopped_gradients,),
    "kind.parameters": (stopped_gradients, other_names),
    "kind.order": (nested_orders,),
    "kind.operand": (other_names, exchanged, nested_orders),
    "kind.function": (other_functions, extra_calls),
    "kind.optimizer": (stated_in_original,),
}


def rewritings(site: PatchSite) -> Iterator[Rewriting]:
    """Yield the rewritings that may undo one mutation at a place."""
    change = site.change
    action = str(change["action"]).removeprefix("line:")
    chosen = [*REWRITERS.get(action, ()), *REWRITERS.get(f"kind.{change['kind']}", ())]
    for rewriter in dict.fromkeys([*chosen, reference_rewritings]):
        with suppress(ValueError):  # a node without a position
            yield from islice(rewriter(site), MAX_PER_KIND)


def ranked_texts(site: PatchSite, alterations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the texts of the port's file that may undo a cause, the likeliest first, each valid
    Python and different from the others.

    Args:
        alterations: the mutations that explain the cause equally well.
    """
    rows: list[Rewriting] = []
    for number, change in enumerate(alterations[:MAX_TIES]):
        tied = replace(site, change=change)
        rows += [replace(one, rank=one.rank + PER_TIE * number) for one in rewritings(tied)]
    texts: dict[str, float] = {}
    novelty = Novelty(site)
    for row in sorted(rows, key=lambda one: one.rank):
        if len(texts) >= MAX_RANKED:
            break
        with suppress(ValueError, SyntaxError):  # edits overlap, or make no valid source
            text = site.port.apply(row.edits)
            if text != site.port.text and text not in texts:
                texts[text] = row.rank + novelty.score(text, row.line)
    return sorted(texts, key=lambda text: texts[text])
