"""Split arms: how each is split, which whole-model arm it is compared with, and groups of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from dualml.common.errors import UserError
from dualml.common.words import Messages, numbers
from dualml.experiment.split import Split
from dualml.experiment.store.run import RunData
from dualml.parallel.split.mesh import Mesh
from dualml.parallel.split.schedule import Grid
from dualml.report import ranks


class SplitArm:
    """An arm whose ranks share one model.

    Attributes:
        split: its settings; ``plan``: its entry in the plan, empty without one.
        slow: whether one of its ranks has a handicap.
        mesh: replicas (data), pipeline ranks, ranks that share every split layer (tensor).
        depth: number of stages; without a plan one per pipeline rank.
        cut: layers at which stages 1, 2, … begin.
        is_pipelined: whether its micro-batches pass through one pipeline of several ranks.
        is_pure_pipeline, is_pure_tensor: whether it is only split by layer, or only inside layers.
    """

    def __init__(self, run: RunData, name: str) -> None:
        settings = run.settings[name]
        self.run, self.name, self.model = run, name, model_of(run, name)
        self.split = split = settings.split or Split()
        self.plan: Mapping[str, Any] = run.splits.get(name) or {}
        self.size, self.slow = ranks.world_size(run, name), settings.slow is not None
        sharing = split.tensor * split.context
        rest = max(1, self.size // (split.data * sharing))
        self.mesh = mesh = Mesh(split.data, rest, sharing)
        self.stages: list[list[str]] = list(self.plan.get("stages") or ())
        self.depth = len(self.stages) or mesh.pipeline
        self.cut: list[str] = list(self.plan.get("cut") or split.cut)
        self.schedule = "grid" if split.grid else split.schedule
        self.micro_batches, self.trainers = split.micro_batches, split.trainers
        self.rpc = split.engine == "rpc"
        self.devices: list[str] = list(self.plan.get("devices") or ())
        self.on_devices = split.engine == "devices"
        self.is_pipelined = mesh.pipeline > 1 and split.trainers == 1 and not self.rpc
        self.is_pure_pipeline = self.is_pipelined and mesh.tensor == mesh.data == 1
        self.is_pure_tensor = split.tensor > 1 and mesh.pipeline == mesh.data == 1

    @property
    def split_kinds(self) -> list[str]:
        """All ways in which the model is split, the most specific last: ``by_layer``, ``inside``
        (the layers), ``context``, ``mesh``, ``trainers``, ``asynchronous``, ``rpc``, ``devices``.
        They are names in the section ``split`` of `cards.read_formulas`."""
        there = {
            "by_layer": self.mesh.pipeline > 1,
            "inside": self.split.tensor > 1,
            "context": self.split.context > 1,
            "mesh": sum(self._axes) > 1,
            "trainers": self.trainers > 1,
            "asynchronous": self.split.arrival == "asynchronous",
            "rpc": self.rpc,
            "devices": self.on_devices,
        }
        return [way for way, holds in there.items() if holds]

    @property
    def main_split_kind(self) -> str:
        """The most specific way in which the model is split; ``by_layer`` if `split_kinds` is
        empty."""
        return next(reversed(self.split_kinds), "by_layer")

    @property
    def has_stages(self) -> bool:
        """Whether the model has several stages, on pipeline ranks or on devices of one process."""
        return self.mesh.pipeline > 1 or self.on_devices

    @property
    def _axes(self) -> tuple[bool, ...]:
        """Whether the mesh has several entries along data, pipeline and tensor."""
        return tuple(n > 1 for n in (self.mesh.data, self.mesh.pipeline, self.mesh.tensor))

    @property
    def plan_kind(self) -> tuple[Any, ...]:
        """A key that is equal for arms whose plans look alike when drawn."""
        shared = self.split.sequence, self.split.regather, self.split.context > 1
        return (
            *self._axes,
            self.depth > self.mesh.pipeline,
            self.trainers > 1,
            self.rpc,
            self.on_devices,
            *shared,
        )

    @cached_property
    def grid(self) -> Grid | None:
        """The pipeline schedule; None if the plan has none, or none that can be parsed, and for
        RPC."""
        plan = self.plan
        if not plan.get("grid") or self.rpc:
            return None
        place = list(plan["place"])
        owners = [min(rank, 1) for rank in place] if self.trainers > 1 else place
        with suppress(UserError, KeyError):
            return Grid.parse(plan["grid"], owners, plan["micro_batches"])
        return None

    @property
    def ideal_idle(self) -> float | None:
        """Share of idle ticks in the schedule if all passes take equally long; None without a
        schedule in which every pipeline rank has a row."""
        return self.grid.idle() if self.is_pipelined and self.grid else None

    def planned(self, key: str, what: str = "nbytes") -> float:
        """Return the sum of the quantity ``what`` (``nbytes``, ``messages`` or ``calls``) over the
        plan's ``links``, ``transfers`` or ``meetings`` (collectives), for a batch of the plan's
        size; 0 without a plan."""
        return float(sum(each[what] for each in self.plan.get(key) or ()))

    @property
    def crossing_bytes(self) -> float:
        """Planned bytes of an update over all links and in all collectives."""
        return sum(map(self.planned, ("links", "transfers", "meetings")))

    @property
    def crossing_calls(self) -> int:
        """Planned number of messages and collective calls of an update."""
        sent = self.planned("links", "messages") + self.planned("transfers", "messages")
        return int(sent + self.planned("meetings", "calls"))

    def parameters(self) -> str:
        """Return the parameter bytes of each rank in float32 as text, e.g. ``1.2 MiB · 1 MiB``; a
        dash without a plan."""
        sizes = [numbers.nbytes(4 * r["elements"]) for r in self.plan.get("ranks") or ()]
        return " · ".join(sizes) or numbers.NO_VALUE

    def cut_origin(self, words: Messages) -> str:
        """Return who chose the cut: the experiment file, or the quantity that was balanced."""
        return words(f"splits.cut_by.{'hand' if self.split.cut else self.split.balance}")

    def describe(self, words: Messages) -> str:
        """Describe the split, e.g. ``by layer in 2 stages, 1F1B, m = 4``."""
        parts = {"inside": self.split.tensor, "context": self.split.context, "data": self.mesh.data}
        if self.trainers == 1:
            parts = {"stages": self.depth if self.has_stages else 1, **parts}
        texts = [words(f"splits.how.{part}", n=n) for part, n in parts.items() if n > 1]
        if self.split.sequence:
            texts.append(words("splits.how.sequence"))
        if self.trainers > 1:
            served = words("splits.how.trainers", n=self.trainers)
            texts = [served, words(f"splits.how.{self.split.arrival}"), *texts]
        if self.rpc or self.is_pipelined:
            texts.append("RPC" if self.rpc else schedule_name(self.schedule, words))
        if self.on_devices:
            n = len(dict.fromkeys(self.split.devices))
            texts.append(words("splits.how.devices", n=n))
        if self.micro_batches > 1 and self.trainers == 1:
            texts.append(f"m = {self.micro_batches}")
        return words("list.comma").join(texts) or numbers.NO_VALUE


def model_of(run: RunData, arm: str) -> str:
    """Return the name of the arm's model, that of the experiment unless the arm has another one."""
    return run.settings[arm].variant or str(run.experiment.get("model") or "")


def schedule_name(name: str, words: Messages) -> str:
    """Return the name of a pipeline schedule in the reader's language; an unknown one unchanged."""
    return words.get(f"splits.schedule.{name}", name)


class Splits:
    """The split arms of a run, in the experiment's order."""

    def __init__(self, run: RunData) -> None:
        self.run = run
        names = [arm for arm in ranks.training_arms(run) if ranks.is_split(run, arm)]
        self.by_name = {name: SplitArm(run, name) for name in names}

    def __iter__(self) -> Iterator[SplitArm]:
        return iter(self.by_name.values())

    def __bool__(self) -> bool:
        return bool(self.by_name)

    @property
    def pipelines(self) -> list[SplitArm]:
        """The arms whose stages follow a pipeline schedule."""
        return [arm for arm in self if arm.is_pipelined]

    def whole_model_arm(self, arm: SplitArm) -> str | None:
        """Return the single-rank arm that trains the same whole model, None without one."""
        judged = (s.against for s in self.run.serial if s.arm == arm.name)
        vary = ("split", "world_size", "slow")
        return next((name for name in judged if name in self.run.arms), None) or (
            self.run.contrast.partner(
                arm.name,
                vary=vary,
                where=lambda name: (
                    ranks.world_size(self.run, name) == 1 and not ranks.is_split(self.run, name)
                ),
            )
        )

    @cached_property
    def families(self) -> dict[str | None, list[SplitArm]]:
        """Whole-model arm → the arms that split its model; None for arms without one."""
        families: dict[str | None, list[SplitArm]] = {}
        for arm in self:
            families.setdefault(self.whole_model_arm(arm), []).append(arm)
        return families

    def groups(self, among: Sequence[SplitArm], *vary: str) -> list[list[SplitArm]]:
        """Return groups of two or more of the arms ``among`` that have a successful trial and
        differ in nothing but the settings ``vary``."""
        names = [arm.name for arm in among if self.run.select(arm.name)]
        groups = self.run.contrast.groups(names, vary=vary)
        return [[self.by_name[name] for name in group] for group in groups if len(group) > 1]

    def partners(self, arm: SplitArm, *vary: str) -> list[SplitArm]:
        """Return the other split arms of the run that differ from ``arm`` in nothing but the
        settings ``vary``, whether or not they ran."""
        names = self.run.contrast.partners(arm.name, vary=vary)
        return [self.by_name[name] for name in names if name in self.by_name]

    def straggler_pairs(self) -> list[tuple[SplitArm, SplitArm]]:
        """Return the arms with a slow rank, each with the same arm without it; only pairs of split
        arms in which both have a successful trial."""
        pairs = {
            arm: self.run.contrast.arm_without_straggler(arm.name, where=self.run.select)
            for arm in self
            if arm.slow and self.run.select(arm.name)
        }
        return [(arm, self.by_name[b]) for arm, b in pairs.items() if b in self.by_name]


def without_straggler(arms: Iterable[SplitArm]) -> list[SplitArm]:
    """Return the arms without a slow rank."""
    return [arm for arm in arms if not arm.slow]
