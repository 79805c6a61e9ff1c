"""Show the arms of an experiment as tables: one per group, with the settings that vary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from dualml.algorithms.optim import LRSchedule
from dualml.common.json_types import JsonMapping
from dualml.common.words import Messages, numbers
from dualml.experiment.arm import Arm
from dualml.experiment.keys import AGGREGATION, ARM, SPLIT, present_table, stored_name
from dualml.experiment.schema import Experiment
from dualml.parallel.aggregation.settings import Aggregation
from dualml.report.blocks import Column, Table

#: Setting → its unit, a key of the message section ``unit``.
UNITS = {"batch_size": "samples", "seconds": "seconds"}
#: Settings that are numbers.
NUMBERS = ("world_size", "optimizer.lr", "samples", "updates", "epochs", *UNITS)


def arm_tables(experiment: Experiment, words: Messages) -> Iterator[Table]:
    """Yield one table per group, with the settings that differ between its arms, by TOML key. The
    caption has those that the group shares but not all arms of the experiment."""
    everywhere = shared_items([arm_settings(arm) for arm in experiment.arms.values()])
    for group in experiment.groups():
        arms = {n: arm_settings(a) for n, a in experiment.arms.items() if a.group == group}
        shared = shared_items(list(arms.values()))
        keys = dict.fromkeys(key for values in arms.values() for key in values)
        varied = [key for key in keys if key not in shared]
        name = words.get(f"group.{group}", group)
        own = {key: value for key, value in shared.items() if key not in everywhere}
        caption = group if name == group else f"{group} ({name})"
        caption += words("list.colon") + format_settings(own, words) if own else ""
        rows = [
            [
                arm,
                *(values.get(key) or default_setting(experiment.arms[arm], key) for key in varied),
            ]
            for arm, values in arms.items()
        ]
        columns = [Column("arm", words("column.arm"))]
        columns += [
            Column(key, key, setting_unit(key, words), "number" if key in NUMBERS else "text")
            for key in varied
        ]
        yield Table(group, caption, columns, rows)


def describe_common(experiment: Experiment, words: Messages) -> str:
    """Describe what all arms share: model, loss, data, seeds, and settings that do not differ."""
    protocol = {
        "model": experiment.model,
        "loss": experiment.loss,
        "data": experiment.data.name,
        "seeds": ", ".join(map(str, experiment.seeds)),
    }
    shared = shared_items([arm_settings(arm) for arm in experiment.arms.values()])
    return format_settings({**protocol, **shared}, words)


def shared_items(many: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the items, key and value, that all mappings share; there is at least one mapping."""
    return {k: v for k, v in many[0].items() if all(other.get(k) == v for other in many)}


def format_settings(values: Mapping[str, str], words: Messages) -> str:
    """Format settings as a list in prose, with the units of values that begin with a digit."""
    parts = []
    for key, value in values.items():
        measure = setting_unit(key, words) if value[:1].isdigit() else ""
        parts.append(f"{key} {value} {measure}".rstrip())
    return words("list.comma").join(parts)


def setting_unit(key: str, words: Messages) -> str:
    """Return the unit of a setting, or an empty string."""
    return words(f"unit.{UNITS[key]}") if key in UNITS else ""


def arm_settings(arm: Arm) -> dict[str, str]:
    """Return the settings of an arm as text, by TOML key: those of every arm, such as world size,
    optimizer, learning rate and batch size, and others that differ from their defaults. An arm that
    measures messages has its world size, strategies, sizes and seconds only."""
    values = {"world_size": str(arm.world_size)}
    if arm.kind != "train":
        return values | {
            "strategies": ", ".join(arm.strategies),
            "sizes": ", ".join(map(numbers.nbytes, arm.sizes)),
            "seconds": f"{arm.seconds:g}",
        }
    values |= {
        "optimizer": format_choice(arm.rule, without="lr"),
        "optimizer.lr": f"{arm.rule.lr:g}",
        "schedule": "" if arm.plan_schedule == LRSchedule() else format_choice(arm.plan_schedule),
        "batch_size": str(arm.batch_size or "full"),
        "samples": str(arm.samples or ""),
        "updates": str(arm.updates or ""),
        "epochs": "" if arm.updates else f"{arm.epochs:g}",
        "partition": "" if arm.plan_partition is None else format_choice(arm.plan_partition),
    }
    named = ("dealt_to", "cores", "model", "method", "launcher", "zero")
    values |= {key: str(getattr(arm, key) or "") for key in named}
    values["zero_reduce"] = arm.zero_reduce if arm.zero_reduce != "reduce_scatter" else ""
    values |= present_table({"zero_lower": arm.zero_lower}, ARM) if arm.zero_lower else {}
    values["backends"] = ", ".join(arm.backends)
    values["recompute"] = "" if arm.recompute == "none" else format_value(arm.recompute)
    asked = arm.plan_precision
    if asked.is_low:
        values["precision"] = asked.type
        values["loss_scale"] = "" if asked.loss_scale is None else format_value(asked.loss_scale)
    combined = arm.aggregation.model_dump(exclude_defaults=True, exclude={"strategy"})
    combined = present_table(combined, AGGREGATION)
    strategy = arm.aggregation.strategy
    ours = arm.split is None and not arm.method
    if ours and (arm.world_size > 1 or strategy != Aggregation().strategy):
        values["aggregation"] = format_call(strategy, combined)
    values |= {
        f"recurrent.{key}": format_value(value)
        for key, value in arm.recurrent.explicit_values.items()
    }
    split = present_table(arm.split.describe(), SPLIT) if arm.split else {}
    values |= {f"split.{key}": format_value(value) for key, value in split.items()}
    if arm.offload is not None:
        if arm.world_size == 1:
            values["aggregation"] = format_call("", combined)
        values["offload"] = format_call("", arm.offload.model_dump(exclude_defaults=True))
    values["slow"] = format_call("", arm.slow.model_dump(exclude_defaults=True) if arm.slow else {})
    return {key: value for key, value in present_table(values, ARM).items() if value}


def default_setting(arm: Arm, key: str) -> str:
    """Return the value of a setting that this arm leaves at its default and another arm of the
    group changes, or an empty string.

    Only settings of a split, the precision and recomputation have such a default.
    """
    if key in ("precision", "recompute") and arm.kind == "train" and not arm.method:
        return format_value(getattr(arm, key))
    table, _, name = key.partition(".")
    if arm.split is None or table != "split":
        return ""
    return format_value(getattr(arm.split, stored_name(name, SPLIT)))


def format_choice(described: Any, without: str = "") -> str:
    """Format a dataclass as its name, or its kind, and the fields that differ from the defaults,
    except ``without``.

    Example: ``sgd(momentum=0.9)``.
    """
    values = {
        f.name: getattr(described, f.name)
        for f in fields(described)
        if getattr(described, f.name) != f.default and f.name not in (without, "kind")
    }
    return format_call(getattr(described, "name", getattr(described, "kind", "")), values)


def format_call(name: str, values: JsonMapping) -> str:
    """Format a name and its settings: ``name(key=value, …)``; the name alone without settings, and
    the settings alone without a name."""
    inside = ", ".join(f"{key}={format_value(value)}" for key, value in values.items())
    return f"{name}({inside})" if name and inside else name or inside


def format_value(value: Any) -> str:
    """Format a value for display: text without quotes, floats with at most six digits, and a list
    separated by commas, without brackets."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(format_value, value))
    return str(value)
