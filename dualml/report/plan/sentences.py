"""A plan in sentences: the layout, its memory, its time, what limits it, what would be faster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dualml.common.words import Messages, numbers
from dualml.planning.cost.units import format_bytes, format_seconds
from dualml.planning.planner.alternatives import Alternative, fastest_overall, nearest_faster
from dualml.planning.planner.bottleneck import (
    BUBBLE,
    LARGE_BUBBLE,
    find_bubble_remedies,
    group_shares,
    message_parts,
)
from dualml.planning.planner.budget import TrainingBudget
from dualml.planning.planner.layout_plan import LayoutPlan
from dualml.report.plan.tables import describe_layout, format_count

#: Parts of the time or of the memory below this share are not reported.
MIN_REPORTED_SHARE = 0.005
#: Share of the time that another layout would gain without a bound from which it is reported.
MIN_GAIN = 0.02


def explain_plan(plan: LayoutPlan, words: Messages) -> Iterator[str]:
    """Yield the sentences that explain the layout that the answer is about: its time, its memory,
    what limits it, and what would be faster. Raise `UserError` if the request names no layout and
    none fits."""
    row, request = plan.answer_row, plan.request
    of, shape = plan.layouts.describe(row), plan.request.shape
    yield words(
        "planner.answer" if plan.layout_row is None else "planner.named",
        layout=describe_layout(plan, row, words),
        seconds=format_seconds(float(plan.update_seconds[row])),
        teraflops=numbers.factor(plan.utilisation(row) * request.cluster.peak / 1e12),
        share=numbers.percent(plan.utilisation(row)),
        hardware=numbers.percent(plan.hardware_utilisation(row)),
    )
    yield memory_sentence(plan, row, words)
    yield words("planner.takes", parts=words.join(time_shares(plan, row, words)))
    yield bottleneck_sentence(plan, words)
    yield from bubble_sentences(plan, row, words)
    if plan.layout_row is None:
        yield from unbound_sentences(plan, words)
    else:
        yield from alternative_sentences(plan, words)
    most, short = -(-shape.layers // of["pp"]), -shape.layers % of["pp"]
    if short and not of["first_layers"] and not of["last_layers"]:
        yield words("planner.uneven", pp=of["pp"], layers=shape.layers, most=most, least=most - 1)
    if of["zero"] >= 2 and of["pp"] > 1:
        yield words("planner.pipelined", zero=of["zero"])


def memory_sentence(plan: LayoutPlan, row: int, words: Messages) -> str:
    """Return the sentence about the bytes of the fullest device with the layout ``row`` (an index
    into ``plan.layouts``), and whether they fit."""
    total, limit = float(plan.peak_memory[row]), plan.request.cluster.memory
    parts = [
        f"{words(f'planner.part.{key}')} {format_bytes(size)}"
        for key, size in plan.memory.describe(row).items()
        if size >= MIN_REPORTED_SHARE * total
    ]
    return words(
        "planner.holds" if plan.fits[row] else "planner.exceeds",
        held=format_bytes(total),
        limit=format_bytes(limit),
        over=format_bytes(max(0.0, total - limit)),
        parts=words.join(parts),
    )


def time_shares(plan: LayoutPlan, row: int, words: Messages) -> list[str]:
    """Return the parts of the time of the layout ``row`` (an index into ``plan.layouts``) with
    their shares as texts, largest first, without those below `MIN_REPORTED_SHARE`."""
    total = float(plan.update_seconds[row])
    parts = sorted(plan.seconds.describe(row).items(), key=lambda item: -item[1])
    return [
        f"{words(f'planner.part.{key}')} {numbers.percent(part / total)}"
        for key, part in parts
        if part >= MIN_REPORTED_SHARE * total
    ]


def bottleneck_sentence(plan: LayoutPlan, words: Messages) -> str:
    """Return the sentence about what limits the layout that the answer is about, with the shares
    that its own time has: memory, the bubble, messages, or the device's work."""
    name, row = plan.binding, plan.answer_row
    parts, total = plan.seconds.describe(row), float(plan.update_seconds[row])
    shares = group_shares(parts)
    largest = max(message_parts(parts), key=lambda part: parts[part])
    values: dict[str, Any] = {
        "links": numbers.percent(shares["links"]),
        "bubble": numbers.percent(shares[BUBBLE]),
        "part": words(f"planner.part.{largest}"),
        "largest": numbers.percent(parts[largest] / total),
    }
    if name in parts:
        values["share"] = numbers.percent(plan.time_share(name))
    if name == "memory":
        values |= _unbound_values(plan, name, words)
    return words(f"planner.bound.{name}", **values)


def unbound_sentences(plan: LayoutPlan, words: Messages) -> Iterator[str]:
    """Yield one sentence about the bound (`LayoutPlan.bounds`: memory, the bubble, messages) whose
    absence would let another layout save the largest share of the time; nothing if this share is
    below `MIN_GAIN`. Bounds without which the same layout is fastest do not count, nor does memory
    if `bottleneck_sentence` named it."""
    row = plan.answer_row
    others = {
        name: share
        for name, share in plan.bounds.items()
        if plan.unbound_rows[name] != row and (name, plan.binding) != ("memory", "memory")
    }
    name = max(others, key=lambda bound: others[bound], default="")
    if name and others[name] >= MIN_GAIN:
        yield words(f"planner.free.{name}", **_unbound_values(plan, name, words))


def _unbound_values(plan: LayoutPlan, name: str, words: Messages) -> dict[str, str]:
    """Return the values of the sentence about the bound ``name``: the layout that is fastest
    without it, its seconds and bytes, and the share of the time that it saves."""
    row = plan.unbound_rows[name]
    return {
        "layout": describe_layout(plan, row, words),
        "seconds": format_seconds(float(plan.update_seconds[row])),
        "bytes": format_bytes(float(plan.peak_memory[row])),
        "share": numbers.percent(plan.bounds[name]),
    }


def bubble_sentences(plan: LayoutPlan, row: int, words: Messages) -> Iterator[str]:
    """Yield a sentence for each change that would make the bubble of a layout smaller (more stages
    on a device, more micro-batches), or one if none would; nothing if the bubble is small."""
    bubble = group_shares(plan.seconds.describe(row))[BUBBLE]
    if bubble <= LARGE_BUBBLE:
        return
    remedies = find_bubble_remedies(plan, row)
    for remedy in remedies:
        yield words(
            f"planner.remedy.{remedy.kind}",
            value=f"{remedy.value:,}",
            bubble=numbers.percent(remedy.bubble),
            saved=numbers.percent(remedy.saved),
        )
    if not remedies:
        yield words("planner.remedy.none", bubble=numbers.percent(bubble))


def alternative_sentences(plan: LayoutPlan, words: Messages) -> Iterator[str]:
    """Yield the sentences about layouts that are faster than the one that the request names or, if
    that does not fit, about those that fit: single changes, and the fastest layout of all."""
    row = plan.answer_row
    near, best = nearest_faster(plan, row), fastest_overall(plan, row)
    kind = "faster" if plan.fits[row] else "fitting"
    if near:
        each = [_describe_alternative(plan, one, words) for one in near]
        yield words(f"planner.near.{kind}", list=words.semicolons(each))
    else:
        yield words(f"planner.near.not_{kind}")
    if best is not None and best.row not in [one.row for one in near[:1]]:
        yield words(
            "planner.near.best",
            layout=describe_layout(plan, best.row, words),
            alternative=_describe_saving(plan, best, words),
        )
    if not len(plan.ranked_rows):
        yield words("planner.near.nothing")


def _describe_alternative(plan: LayoutPlan, one: Alternative, words: Messages) -> str:
    """Return a clause with the changes of an alternative, and what they save."""
    changes = ", ".join(
        f"{axis} {_format_value(old)} → {_format_value(new)}"
        for axis, (old, new) in one.changes.items()
    )
    return f"{changes}: {_describe_saving(plan, one, words)}"


def _describe_saving(plan: LayoutPlan, one: Alternative, words: Messages) -> str:
    """Return a clause with the time of an alternative, and the part that shrinks."""
    return words(
        "planner.near.saving" if one.saved > 0 else "planner.near.slower",
        seconds=format_seconds(float(plan.update_seconds[one.row])),
        saved=numbers.percent(abs(one.saved)),
        part=words(f"planner.part.{one.part}"),
        part_saved=numbers.percent(one.part_saved),
    )


def _format_value(value: Any) -> str:
    """Format the value of an axis: truth as 0 or 1."""
    return str(int(value) if isinstance(value, bool) else value)


def budget_sentence(budget: TrainingBudget, price: float | None, words: Messages) -> str:
    """Return the sentence about days, device-hours and cost of a number of tokens; without a cost
    if ``price``, that of a device-hour, is None."""
    return words(
        "planner.budget" if price is None else "planner.budget_cost",
        tokens=format_count(budget.tokens),
        updates=f"{budget.updates:,}",
        days=numbers.factor(budget.days),
        hours=f"{budget.device_hours:,.0f}",
        price=price,
        cost="" if budget.cost is None else f"{budget.cost:,.0f}",
    )
