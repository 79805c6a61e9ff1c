"""Split arms: how each is split, which whole model it is held against, which belong together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualml.experiment.split import Split
from dualml.report import numbers, ranks
from dualml.report.model import Run
from dualml.report.words import Words

DEFAULTS: Mapping[str, Any] = Split().model_dump(mode="json")


def split_arms(run: Run) -> list[str]:
    return [arm for arm in ranks.training(run) if ranks.split(run, arm)]


def split(run: Run, arm: str) -> dict[str, Any]:
    """The arm's settings, with what the file leaves out."""
    return {**DEFAULTS, **(run.arms[arm].get("split") or {})}


def plan(run: Run, arm: str) -> Mapping[str, Any]:
    """What the plan says of the arm; empty where there is none."""
    return run.splits.get(arm) or {}


def model(run: Run, arm: str) -> str:
    return str(run.arms[arm].get("model") or run.experiment.get("model") or "")


@dataclass(frozen=True)
class Mesh:
    """Replicas, ranks of the pipeline, ranks that share every split layer."""

    data: int
    pipeline: int
    tensor: int

    def __str__(self) -> str:
        return f"{self.data} × {self.pipeline} × {self.tensor}"


def mesh(run: Run, arm: str) -> Mesh:
    told = split(run, arm)
    data, tensor = int(told["data"]), int(told["tensor"])
    return Mesh(data, max(1, ranks.size(run, arm) // (data * tensor)), tensor)


def stages(run: Run, arm: str) -> int:
    """How many there are; without a plan one for each rank of the pipeline."""
    return len(plan(run, arm).get("stages") or ()) or mesh(run, arm).pipeline


def cut(run: Run, arm: str) -> list[str]:
    """Layers at which stages 1, 2, … begin."""
    return list(plan(run, arm).get("cut") or split(run, arm)["cut"])


def piped(run: Run, arm: str) -> bool:
    """Whether stages lie on different ranks, and the micro-batches go through one pipeline."""
    told = split(run, arm)
    return mesh(run, arm).pipeline > 1 and told["trainers"] == 1 and told["engine"] != "rpc"


def inside(run: Run, arm: str) -> bool:
    """Whether its layers are split inside and nothing else is."""
    shape = mesh(run, arm)
    return shape.tensor > 1 and shape.pipeline == shape.data == 1


def by_layer(run: Run, arm: str) -> bool:
    """Whether it is split by layer and in no other way."""
    shape = mesh(run, arm)
    return piped(run, arm) and shape.tensor == shape.data == 1


def schedule(run: Run, arm: str) -> str:
    told = split(run, arm)
    return "grid" if told["grid"] else str(told["schedule"])


def micro_batches(run: Run, arm: str) -> int:
    return int(split(run, arm)["micro_batches"])


def whole(run: Run, arm: str) -> str | None:
    """The arm that trains the same with the whole model on one rank."""
    for s in run.serial:
        if s.arm == arm and s.against in run.arms:
            return s.against
    mine = ranks.key(run, arm, "split", "world_size", "slow")
    for other in ranks.training(run):
        alone = ranks.size(run, other) == 1 and not ranks.split(run, other)
        if alone and ranks.key(run, other, "split", "world_size", "slow") == mine:
            return other
    return None


def families(run: Run) -> dict[str | None, list[str]]:
    """Whole arm → the arms that split it; None for those without one."""
    found: dict[str | None, list[str]] = {}
    for arm in split_arms(run):
        found.setdefault(whole(run, arm), []).append(arm)
    return found


def identity(run: Run, arm: str, *without: str) -> str:
    """Settings but those named, of the split ones as ``split.schedule``, as text; the cut counts,
    not how it was found."""
    told = {**split(run, arm), "cut": cut(run, arm)}
    names = {name.removeprefix("split.") for name in without if name.startswith("split.")}
    left = {k: v for k, v in told.items() if k not in {"balance", "stages", *names}}
    others = [name for name in without if not name.startswith("split.")]
    return ranks.key(run, arm, "split", *others) + json.dumps(left, sort_keys=True)


def alike(run: Run, arms: Sequence[str], *without: str) -> list[list[str]]:
    """Groups of arms that differ in nothing else; only those of two and more."""
    found: dict[str, list[str]] = {}
    for arm in arms:
        found.setdefault(identity(run, arm, *without), []).append(arm)
    return [group for group in found.values() if len(group) > 1]


def healthy(run: Run, arms: Sequence[str]) -> list[str]:
    """Those without a handicap."""
    return [arm for arm in arms if not ranks.slow(run, arm)]


def base_of(run: Run, arm: str) -> str | None:
    """The same arm without its handicap."""
    mine = identity(run, arm, "slow")
    for other in healthy(run, split_arms(run)):
        if identity(run, other, "slow") == mine and run.select(other):
            return other
    return None


def kind(run: Run, arm: str) -> tuple[Any, ...]:
    """What makes a plan look different from others: what it is split in, and how often."""
    shape, told = mesh(run, arm), split(run, arm)
    return (
        *(n > 1 for n in (shape.data, shape.pipeline, shape.tensor)),
        stages(run, arm) > shape.pipeline,
        told["trainers"] > 1,
        told["engine"],
    )


def told(run: Run, arm: str, words: Words) -> str:
    """``by layer in 2 stages, 1F1B, m = 4``."""
    shape, s = mesh(run, arm), split(run, arm)
    parts = []
    if s["trainers"] > 1:
        parts.append(words("splits.told.trainers", n=s["trainers"]))
        parts.append(words(f"splits.told.{s['arrival']}"))
    elif shape.pipeline > 1:
        parts.append(words("splits.told.stages", n=stages(run, arm)))
    if shape.tensor > 1:
        parts.append(words("splits.told.inside", n=shape.tensor))
    if shape.data > 1:
        parts.append(words("splits.told.data", n=shape.data))
    if s["engine"] == "rpc":
        parts.append("RPC")
    elif shape.pipeline > 1 and s["trainers"] == 1:
        parts.append(called(schedule(run, arm), words))
    if s["micro_batches"] > 1 and s["trainers"] == 1:
        parts.append(f"m = {s['micro_batches']}")
    return words("list.comma").join(parts) or numbers.NONE


def called(name: str, words: Words) -> str:
    """A schedule's name."""
    return words.either(f"splits.schedule.{name}", name)
