"""Checks that every communicator must pass, run on each rank of a group.

A check collects its failures instead of stopping at the first: a rank that left early would leave
the others waiting. `run_all` runs the checks one after the other in one group of processes and
returns the failures of each; `test_communicator.py` turns each check into a test.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from conformance import (
    checks_claims,
    checks_coordinates,
    checks_groups,
    checks_messages,
    checks_primitives,
)
from conformance.checks_claims import disagreements

from dualml.algorithms.communicator import DTYPES, Communicator
from dualml.algorithms.communicator.rendezvous import all_gather_via_store
from dualml.common.errors import CommunicationError
from dualml.parallel.aggregation import STRATEGIES

__all__ = ["CHECKS", "disagreements", "run_all"]

Check = Callable[[Communicator], None]
PRIMITIVES = (
    "all_reduce",
    "reduce",
    "broadcast",
    "gather",
    "all_gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "exchange",
)


def _checks() -> dict[str, Check]:
    """Return all checks by name."""
    found: dict[str, Check] = {
        "arithmetic": checks_claims.check_arithmetic,
        "refusals": checks_claims.check_refusals,
        "how": checks_claims.check_how,
        "barrier": checks_groups.check_barrier,
        "asynchronous": checks_groups.check_asynchronous,
        "large_messages": checks_groups.check_large_messages,
        "order_of_messages": checks_groups.check_order_of_messages,
        "coordinates": checks_coordinates.check_coordinates,
        "ring_by_layers": checks_coordinates.check_ring_by_layers,
        "subgroup": checks_groups.check_subgroup,
        "tags": checks_messages.check_tags,
        "any_source": checks_messages.check_any_source,
        "async_op": checks_messages.check_async_op,
        "async_messages": checks_messages.check_async_messages,
    }
    for dtype in checks_messages.WHOLE:
        found[f"bitwise-{dtype}"] = partial(checks_messages.check_bitwise, dtype=dtype)
    for name in PRIMITIVES:
        for dtype in DTYPES:
            check = getattr(checks_primitives, f"check_{name}")
            found[f"{name}-{dtype}"] = partial(check, dtype=dtype)
    for name, kind in STRATEGIES.items():
        # The neighbours' mean is no sum of integers.
        for dtype in ("float32", "int64") if kind.exact else ("float32",):
            check = checks_claims.check_strategy
            found[f"strategy-{name}-{dtype}"] = partial(check, name=name, dtype=dtype)
    return found


#: Name → check, in the order they run.
CHECKS = _checks()


def run_all(comm: Communicator, argument: Any = None) -> dict[str, str]:
    """Run every check, or those that ``argument`` names; return this rank's failures by check (""
    for none). After a check that a rank could not finish, the group may be unusable and the rest is
    skipped.
    """
    told: dict[str, str] = {}
    for number, name in enumerate(argument or CHECKS):
        try:
            CHECKS[name](comm)
            told[name] = ""
        except AssertionError as error:
            told[name] = str(error) or "an assertion failed"
        except BaseException:
            told[name] = traceback.format_exc()
        place = comm.context
        note = "lost" if told[name].startswith("Traceback") else ""
        limit = place.timeout + 10  # the others may be waiting for this rank inside the check
        try:
            notes = all_gather_via_store(
                place.store, f"after{number}", place.rank, range(place.size), note, limit, name
            )
        except CommunicationError as error:
            notes = {place.rank: str(error)}
        if any(notes.values()):
            rest = list(argument or CHECKS)[number + 1 :]
            return told | dict.fromkeys(rest, f"not run: the group did not survive {name}")
    return told
