"""Non-default rules of aggregation, each compared with the default one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.parallel.aggregation import ASYNCHRONOUS
from dualml.parallel.aggregation.settings import Aggregation
from dualml.report import ranks
from dualml.report.blocks import Cell
from dualml.report.columns import Columns, percent
from dualml.report.measures import drop_missing, loss_unit, mean_over_trials
from dualml.report.notes import Notes
from dualml.report.topics import table_section


@dataclass(frozen=True)
class CombinationRule:
    """A non-default way to combine the ranks' results.

    Args:
        applies: whether the aggregation settings of an arm use it.
        vary: the settings in which it alone differs from the arm it is compared with.
        plain: the aggregation settings of that arm.
        gradients: whether that arm may combine gradients where this one combines parameters.
    """

    applies: Callable[[Aggregation], bool]
    vary: tuple[str, ...]
    plain: Mapping[str, Any]
    gradients: bool = False


#: The first rule that applies is used.
RULES = {
    "sum_parameters": CombinationRule(
        lambda a: a.reduce == "sum" and a.of == "parameters",
        ("aggregation.reduce",),
        {"reduce": "weighted"},
    ),
    "max": CombinationRule(
        lambda a: a.reduce == "max",
        ("aggregation.reduce", "aggregation.strategy"),
        {"reduce": "weighted"},
    ),
    "median": CombinationRule(
        lambda a: a.reduce == "median",
        ("aggregation.reduce", "aggregation.strategy"),
        {"reduce": "weighted"},
    ),
    "layers": CombinationRule(lambda a: a.cut == "layers", ("aggregation.cut",), {"cut": "equal"}),
    "sum": CombinationRule(
        lambda a: a.reduce == "sum", ("aggregation.reduce", "optimizer.lr"), {"reduce": "weighted"}
    ),
    "uneven": CombinationRule(
        lambda a: a.reduce == "mean", ("aggregation.reduce",), {"reduce": "weighted"}
    ),
    "asynchronous": CombinationRule(
        lambda a: a.strategy == ASYNCHRONOUS,
        ("aggregation.strategy", "aggregation.arrival"),
        {"strategy": "all_reduce"},
        gradients=True,
    ),
    "neighbour": CombinationRule(
        lambda a: a.strategy == "neighbour",
        ("aggregation.strategy",),
        {"strategy": "all_reduce"},
        gradients=True,
    ),
    "local": CombinationRule(
        lambda a: a.every > 1, ("aggregation.every",), {"every": 1}, gradients=True
    ),
    "parameters": CombinationRule(lambda a: a.of == "parameters", ("aggregation.of",), {}),
    "compress": CombinationRule(
        lambda a: a.compress != "none",
        ("aggregation.compress", "aggregation.fraction"),
        {"compress": "none"},
    ),
    "one_by_one": CombinationRule(lambda a: not a.bucket_bytes, ("aggregation.bucket_bytes",), {}),
}


def compared_arms(run: RunData) -> Iterator[tuple[str, str, str | None]]:
    """Yield every arm that combines by a non-default rule, the name of the first of `RULES` that
    applies, and the arm it is compared with (None: there is none). Only unsplit arms with several
    ranks, a successful trial and no straggler."""
    for arm in ranks.multi_rank_arms(run):
        settings = ranks.aggregation(run, arm)
        name = next((name for name, rule in RULES.items() if rule.applies(settings)), "")
        if name and run.select(arm) and not ranks.straggler(run, arm):
            yield arm, name, _plain_partner(run, arm, RULES[name])


def _plain_partner(run: RunData, arm: str, rule: CombinationRule) -> str | None:
    """Return the arm with the default rule that is otherwise the same and has a successful trial,
    None without one."""

    def partner(*more: str, **plain: Any) -> str | None:
        def fits(other: str) -> bool:
            settings = ranks.aggregation(run, other).model_dump(include={*plain})
            return settings == plain and bool(run.select(other))

        return run.contrast.partner(arm, vary=(*rule.vary, *more), where=fits)

    exactly = partner(**rule.plain)
    if exactly is not None or not rule.gradients:
        return exactly
    return partner("aggregation.of", **rule.plain, of="gradients")


def _values(run: RunData, arm: str, backend: str) -> dict[str, Any]:
    """Return final loss (``loss``) and test accuracy as a fraction (``accuracy``), means over the
    seeds, and the median seconds of an update (``step``); None for what is unknown."""
    return {
        "loss": mean_over_trials(run, arm, backend, "final_loss"),
        "accuracy": mean_over_trials(run, arm, backend, "test_accuracy"),
        "step": ranks.median_step_seconds(run, arm, backend),
    }


def compared_places(run: RunData) -> list[tuple[str, str, str]]:
    """Return (arm, the arm it is compared with, backend) for every arm of `compared_arms`, if both
    succeeded on the backend."""
    return [
        (arm, other, backend)
        for arm, _, other in compared_arms(run)
        for _, backend in ranks.successful_places(run, [arm])
        if other is not None and run.select(other, backend)
    ]


def columns(
    run: RunData, words: Messages, records: Sequence[tuple[str, str, str]]
) -> Columns[tuple[str, str, str]]:
    """Return the columns of final loss, test accuracy and milliseconds of an update, below each the
    value of the compared arm, and of the settings in which the two differ."""

    def values(arm: str, other: str, backend: str) -> list[Cell]:
        own, plain = (_values(run, name, backend).values() for name in (arm, other))
        shown = zip((numbers.loss, percent, numbers.ms), own, plain, strict=True)
        return [Cell(text(a), note=text(b)) for text, a, b in shown]

    def differs(arm: str, other: str) -> str:
        keys = run.contrast.varying_keys([arm, other])
        return ", ".join(key.rpartition(".")[2] for key in keys)

    measured = (f"final_loss:{loss_unit(run)}", "test_accuracy:percent", "step:milliseconds")
    return {
        ("`arm`", "backend", "`against`"): lambda r: (r[0], r[2], r[1]),
        "`differs`": lambda r: differs(r[0], r[1]),
        measured: lambda r: values(*r),
    }


def findings(notes: Notes, run: RunData, records: Sequence[tuple[str, str, str]]) -> None:
    """Add sentences that compare each arm with another aggregation rule (`RULES`) with the arm that
    uses the default: losses and seconds of an update."""
    words = notes.words
    for arm, name, other in compared_arms(run):
        settings, n = ranks.aggregation(run, arm), ranks.world_size(run, arm)
        values = _format_comparison(run, words, arm, other) if other else []
        rates = [float(run.settings[a].optimizer.get("lr") or 0) for a in (arm, other or arm)]
        effective = n * rates[0]  # a sum is n times the mean
        if name == "sum":
            same = abs(effective - rates[1]) <= 1e-9 * rates[1]
            name = "sum_alone" if not values else "sum_same" if same else "sum"
        # fp16 halves each number; top-k sends chosen entries, each with a four-byte index.
        share = 0.5 if settings.compress == "fp16" else min(1.0, 2 * settings.fraction)
        if values or name == "sum_alone":
            notes.add(
                name,
                arm=arm,
                other=other,
                n=n,
                every=settings.every,
                values=values,
                saved=1 - share,
                rates=rates,
                effective=effective,
            )


def _format_comparison(run: RunData, words: Messages, arm: str, other: str) -> list[str]:
    """Return texts per backend: loss and seconds of an update, of both arms."""
    items = []
    for backend in run.backends:
        own, plain = (drop_missing(_values(run, name, backend)) for name in (arm, other))
        if {"loss", "step"} <= own.keys() & plain.keys():
            items.append(words("say.combination.item", backend=backend, own=own, other=plain))
    return items


TOPIC = table_section("combination", 405, reads=compared_places, columns=columns, findings=findings)
