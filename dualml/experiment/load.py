"""Loading of an experiment from TOML: settings for small data, quick settings, overrides,
validation."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dualml.common.errors import UserError, did_you_mean
from dualml.common.files import read_toml
from dualml.common.json_types import JsonMapping
from dualml.common.strict_model import clip_text, describe_validation_error, first_problem, key_path
from dualml.experiment.arm import Arm
from dualml.experiment.check_models import reset_unused_settings
from dualml.experiment.find import locate
from dualml.experiment.keys import WrittenKeys
from dualml.experiment.overrides import apply_override, locate_error, locate_line, merge_tables
from dualml.experiment.schema import Experiment

#: Number of training samples below which the file's ``[small]`` table applies.
SMALL = 10_000


def load(
    lab: str,
    *,
    overrides: Sequence[str] = (),
    arms: Sequence[str] = (),
    seeds: Sequence[int] = (),
    data: str | None = None,
    model: str | None = None,
    quick: bool = False,
    small: bool = False,
    world_size: int | None = None,
) -> Experiment:
    """Load an experiment as it will run; notices about former names of keys go to standard error.

    Args:
        lab: a name (``lab1``) or a path to a TOML file.
        overrides: ``KEY=VALUE`` with a dotted key of the file and a TOML value.
        arms: names of arms or groups to run, or ``all``; default: the group ``main``, and every arm
            where there is none. An arm with several world sizes names all it expands to.
        seeds, data, model: values that replace those of the file.
        quick: apply the file's ``[quick]`` table: the same protocol on less data, with at most
            ``updates`` updates if it sets that number, and, without ``arms``, only the arms that
            its ``select`` names.
        small: apply the file's ``[small]`` table: the same protocol for small data, with
            ``epochs_times`` passes for each epoch; with ``quick`` also its ``[quick.small]`` table.
        world_size: number of ranks of every arm that has several.

    Raises:
        UserError: the file, an override or a name is invalid.
    """
    path = locate(lab)
    table, keys = read_toml(path), WrittenKeys()
    keys.store(table, str(path), lambda key: locate_line(list(key), path))
    faster, smaller = pop_overlay(table, "quick", path), pop_overlay(table, "small", path)
    if small:
        merge_tables(table, smaller)
    if quick:
        if not faster:
            raise UserError(f"{path}: this experiment has no [quick] table; leave out --quick")
        chosen, few = faster.pop("select", []), pop_overlay(faster, "small", path)
        if not isinstance(chosen, list) or not all(isinstance(word, str) for word in chosen):
            raise UserError(f"{path}: quick.select must be a list of names; received {chosen!r}")
        cap_updates(table, faster.pop("updates", None))
        merge_tables(table, faster)
        if small:
            merge_tables(table, few)
        table["quick"] = True
        arms = arms or [rename_resized(word, table, world_size) for word in chosen]
    if small:
        multiply_epochs(table)
    resolve_paths(table, path.parent)
    if any(text.partition("=")[0].strip() == "pretrained" for text in overrides):
        drop_vocabulary_size(table)
    applied = [(text, apply_override(table, text, keys)) for text in overrides]
    resolve_paths(table, Path.cwd())
    if seeds:
        table["seeds"] = list(seeds)
    if data is not None:
        table["data"] = {**table["data"], "name": data} if is_table(table, "data") else data
    if model is not None:
        table["model"] = model
    origins = expand_world_sizes(table, world_size)
    try:
        experiment = Experiment.model_validate(table)
    except ValidationError as error:
        loc = key_path(first_problem(error)["loc"])
        if loc[:1] == ["arms"] and len(loc) > 1:
            loc[1] = origins.get(loc[1], loc[1])
        origin = locate_error(loc, keys.path_of(loc), path, applied, bool(seeds))
        reason = describe_validation_error(error, Experiment, path_of=keys.path_of)
        if world_size is not None and "world_size" in reason:
            origin = f"--world-size {world_size}"
        if model is not None and loc == ["model"]:
            origin = f"--model {clip_text(model)}"
        raise UserError(f"{origin}: {keys.text_of(reason, loc)}") from None
    selected = select_arms(experiment, arms, origins)
    keys.print_notices()
    return selected


def pop_overlay(table: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    """Remove the table ``key``, which overrides others, from ``table`` and return it; empty if
    there is none. Raise `UserError` if it is no table."""
    more = table.pop(key, {})
    if not isinstance(more, dict):
        raise UserError(f"{path}: [{key}] must be a table; received {clip_text(repr(more))}")
    return more


def resolve_paths(table: dict[str, Any], base: Path) -> None:
    """Make the paths of initial weights, pretrained models and engine configurations in ``table``,
    an experiment file's content, absolute, in place: a relative path is taken relative to
    ``base``."""
    for key in ("pretrained", "initial"):
        if isinstance(given := table.get(key), str) and given:
            table[key] = os.path.abspath(base / Path(given).expanduser())
    for arm in table["arms"].values() if is_table(table, "arms") else ():
        given = arm.get("method_config") if isinstance(arm, dict) else None
        if isinstance(given, str) and given:
            arm["method_config"] = os.path.abspath(base / Path(given).expanduser())


def cap_updates(table: dict[str, Any], most: Any) -> None:
    """Limit the ``updates`` of every arm that sets them to ``most``, in place; None changes
    nothing. Raise `UserError` unless ``most`` is a whole number from 1."""
    if most is None:
        return
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise UserError(f"quick.updates must be a whole number of at least 1; received {most!r}")
    for arm in table["arms"].values() if is_table(table, "arms") else ():
        if isinstance(arm, dict) and isinstance(arm.get("updates"), int):
            arm["updates"] = min(arm["updates"], most)


def multiply_epochs(table: dict[str, Any]) -> None:
    """Multiply every arm's epochs by ``epochs_times``, in place, except for arms with ``updates``
    or with ``batch_size`` 0."""
    times = table.get("epochs_times", 1)
    for arm in table["arms"].values() if is_table(table, "arms") else ():
        if not isinstance(arm, dict) or arm.get("updates") or arm.get("batch_size") == 0:
            continue
        epochs = arm.get("epochs", Arm.model_fields["epochs"].default)
        if isinstance(times, int | float) and isinstance(epochs, int | float):
            arm["epochs"] = epochs * times


def expand_world_sizes(table: dict[str, Any], world_size: int | None = None) -> dict[str, str]:
    """Replace, in place, each arm of ``table`` that lists world sizes by one arm per size, as
    ``ring`` with ``[2, 4]`` by ``ring-n2`` and ``ring-n4``; return new name → original name of
    these.

    ``world_size``, if given, is first set in every arm whose world size is not 1, and as
    ``dealt_to`` in every arm that has this key; arms whose partition lists something for each rank
    (``fractions``, ``assigned``) keep their numbers.

    Raises:
        UserError: ``world_size`` above 1 where no arm has several ranks, an empty list of sizes, or
            two arms of one name.
    """
    arms = table.get("arms")
    if not isinstance(arms, dict):
        return {}
    several = False
    expanded: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, arm in arms.items():
        sizes = arm.get("world_size", 1) if isinstance(arm, dict) else 1
        if world_size is not None and isinstance(arm, dict) and not lists_shares(arm):
            if sizes != 1:
                several = True
                sizes = [world_size] if isinstance(sizes, list) else world_size
                arm["world_size"] = sizes
            if arm.get("dealt_to"):
                arm["dealt_to"] = world_size
        if not isinstance(sizes, list):
            expanded[name] = arm
            continue
        if not sizes:
            raise UserError(f"arms.{name}.world_size is an empty list; name at least one size")
        for size in sizes:
            one = f"{name}-n{size}"
            if one in arms or one in expanded:
                raise UserError(f"arms.{name}.world_size = {sizes}: there are two arms {one}")
            expanded[one] = {**arm, "world_size": size}
            origins[one] = name
    if world_size is not None and world_size > 1 and not several:
        raise UserError(
            f"--world-size {world_size}: no arm of {table.get('name')} has several ranks, "
            "but those that list something for each of them"
        )
    table["arms"] = expanded
    return origins


def lists_shares(arm: JsonMapping) -> bool:
    """Return whether an arm, as the file has it, lists the share or the labels of each of its
    ranks, which decides how many there are."""
    return is_table(arm, "partition") and bool({"fractions", "assigned"} & arm["partition"].keys())


def rename_resized(name: str, table: JsonMapping, world_size: int | None) -> str:
    """Return the name that an arm such as ``ring-n2`` has with ``world_size`` ranks, as
    ``ring-n4``; the name itself if ``world_size`` is None, the name has no such end, or the file
    has an arm of that name."""
    if world_size is None or name in (table.get("arms") or {}):
        return name
    return re.sub(r"-n\d+$", f"-n{world_size}", name)


def is_table(table: JsonMapping, key: str) -> bool:
    """Return whether ``key`` is in ``table`` and its value is a table."""
    return isinstance(table.get(key), dict)


def drop_vocabulary_size(table: dict[str, Any]) -> None:
    """Remove the vocabulary size ``data.words`` from a file's table, in place, if it has one: a
    pretrained model brings its vocabulary."""
    if is_table(table, "data"):
        table["data"].pop("words", None)


def select_arms(
    experiment: Experiment, chosen: Sequence[str], origins: Mapping[str, str] | None = None
) -> Experiment:
    """Return a copy of the experiment with only the named arms, those of named groups, and those
    expanded from a named arm (``origins``: new name → original name), in the experiment's order.
    Without ``chosen``: the group ``main``, or all arms where there is none. Settings of models that
    no remaining arm trains are dropped. Raise `UserError` for an unknown name."""
    arms, origins = experiment.arms, origins or {}
    if not chosen:
        chosen = ["main"] if "main" in experiment.groups() else ["all"]
    keep: dict[str, None] = {}
    for word in chosen:
        if word in arms:
            keep[word] = None
            continue
        members = [n for n, arm in arms.items() if word in ("all", arm.group, origins.get(n))]
        if not members:
            known = [*arms, *experiment.groups(), *origins.values(), "all"]
            hint = did_you_mean(word, list(dict.fromkeys(known)))
            raise UserError(f"{experiment.name} has no arm {word!r}{hint}")
        keep.update(dict.fromkeys(members))
    kept = {n: arms[n] for n in arms if n in keep}
    unused = reset_unused_settings(experiment.model, kept)
    return experiment.model_copy(update={"arms": kept, **unused})
