"""Split arms: how each is split, which whole model it is compared with, which belong together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from dualml.errors import UserError
from dualml.experiment.split import Split
from dualml.report import ranks
from dualml.split.mesh import Mesh
from dualml.split.schedule import Grid
from dualml.store.run import Run
from dualml.words import Words, numbers


class SplitArm:
    """An arm whose ranks share one model.

    Attributes:
        split: its settings; ``plan``: what the plan says of it, empty where there is none.
        slow: whether one of its ranks has a handicap.
        mesh: replicas, ranks of the pipeline, ranks that share every split layer.
        depth: the number of stages; without a plan one for each rank of the pipeline.
        cut: layers at which stages 1, 2, … begin.
        piped: whether its micro-batches go through one pipeline of several ranks.
        by_layer, inside: whether it is a pipeline, or split inside its layers, and nothing else.
    """

    def __init__(self, run: Run, name: str) -> None:
        settings = run.settings[name]
        self.run, self.name, self.model = run, name, model_of(run, name)
        self.split = split = settings.split or Split()
        self.plan: Mapping[str, Any] = run.splits.get(name) or {}
        self.size, self.slow = ranks.size(run, name), settings.slow is not None
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
        self.piped = mesh.pipeline > 1 and split.trainers == 1 and not self.rpc
        self.by_layer = self.piped and mesh.tensor == mesh.data == 1
        self.inside = split.tensor > 1 and mesh.pipeline == mesh.data == 1

    @property
    def ways(self) -> list[str]:
        """All in which it is split, keys of `splitting.WAYS`, the one that says most last."""
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
    def way(self) -> str:
        """The one of them that says most."""
        return next(reversed(self.ways), "by_layer")

    @property
    def layered(self) -> bool:
        """Whether it has several stages: on ranks of a pipeline, or on devices of a process."""
        return self.mesh.pipeline > 1 or self.on_devices

    @property
    def _axes(self) -> tuple[bool, ...]:
        """Whether it is split in data, pipeline, tensor."""
        return tuple(n > 1 for n in (self.mesh.data, self.mesh.pipeline, self.mesh.tensor))

    @property
    def look(self) -> tuple[Any, ...]:
        """What makes its plan look different from others: in what it is split, and how often."""
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
        """Its schedule; None where the plan has none that can be read."""
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
        """Share of idle ticks, all passes being equally long; only of ranks with a row each."""
        return self.grid.idle() if self.piped and self.grid else None

    def planned(self, key: str, what: str = "nbytes") -> float:
        """Sum over the plan's ``links``, ``transfers`` or ``meetings``; with a batch as large as
        the plan's."""
        return float(sum(each[what] for each in self.plan.get(key) or ()))

    @property
    def crossing_bytes(self) -> float:
        """Of an update over all links and in all collectives."""
        return sum(map(self.planned, ("links", "transfers", "meetings")))

    @property
    def crossing_calls(self) -> int:
        sent = self.planned("links", "messages") + self.planned("transfers", "messages")
        return int(sent + self.planned("meetings", "calls"))

    def parameters(self) -> str:
        """Bytes of each rank's."""
        sizes = [numbers.nbytes(4 * r["elements"]) for r in self.plan.get("ranks") or ()]
        return " · ".join(sizes) or numbers.NONE

    def cut_by(self, words: Words) -> str:
        """Who chose the cut: the file, or what was to be even."""
        return words(f"splits.cut_by.{'hand' if self.split.cut else self.split.balance}")

    def how(self, words: Words) -> str:
        """``by layer in 2 stages, 1F1B, m = 4``."""
        parts = {"inside": self.split.tensor, "context": self.split.context, "data": self.mesh.data}
        if self.trainers == 1:
            parts = {"stages": self.depth if self.layered else 1, **parts}
        texts = [words(f"splits.how.{part}", n=n) for part, n in parts.items() if n > 1]
        if self.split.sequence:
            texts.append(words("splits.how.sequence"))
        if self.trainers > 1:
            served = words("splits.how.trainers", n=self.trainers)
            texts = [served, words(f"splits.how.{self.split.arrival}"), *texts]
        if self.rpc or self.piped:
            texts.append("RPC" if self.rpc else schedule_name(self.schedule, words))
        if self.on_devices:
            n = len(dict.fromkeys(self.split.devices))
            texts.append(words("splits.how.devices", n=n))
        if self.micro_batches > 1 and self.trainers == 1:
            texts.append(f"m = {self.micro_batches}")
        return words("list.comma").join(texts) or numbers.NONE


def model_of(run: Run, arm: str) -> str:
    return run.settings[arm].variant or str(run.experiment.get("model") or "")


def schedule_name(name: str, words: Words) -> str:
    return words.either(f"splits.schedule.{name}", name)


class Splits:
    """The split arms of a run, in the experiment's order."""

    def __init__(self, run: Run) -> None:
        self.run = run
        names = [arm for arm in ranks.training(run) if ranks.split(run, arm)]
        self.by_name = {name: SplitArm(run, name) for name in names}

    def __iter__(self) -> Iterator[SplitArm]:
        return iter(self.by_name.values())

    def __bool__(self) -> bool:
        return bool(self.by_name)

    @property
    def pipelines(self) -> list[SplitArm]:
        """Those whose stages follow a schedule."""
        return [arm for arm in self if arm.piped]

    def whole(self, arm: SplitArm) -> str | None:
        """The arm that trains the same with the whole model on one rank."""
        judged = (s.against for s in self.run.serial if s.arm == arm.name)
        vary = ("split", "world_size", "slow")
        return next((name for name in judged if name in self.run.arms), None) or (
            self.run.contrast.partner(
                arm.name,
                vary=vary,
                where=lambda name: (
                    ranks.size(self.run, name) == 1 and not ranks.split(self.run, name)
                ),
            )
        )

    @cached_property
    def families(self) -> dict[str | None, list[SplitArm]]:
        """Whole arm → the arms that split it; None for those without one."""
        families: dict[str | None, list[SplitArm]] = {}
        for arm in self:
            families.setdefault(self.whole(arm), []).append(arm)
        return families

    def groups(self, among: Sequence[SplitArm], *vary: str) -> list[list[SplitArm]]:
        """Those that ran and differ in nothing else; of two and more."""
        names = [arm.name for arm in among if self.run.select(arm.name)]
        groups = self.run.contrast.groups(names, vary=vary)
        return [[self.by_name[name] for name in group] for group in groups if len(group) > 1]

    def partners(self, arm: SplitArm, *vary: str) -> list[SplitArm]:
        """The other split arms that differ from one in nothing else."""
        names = self.run.contrast.partners(arm.name, vary=vary)
        return [self.by_name[name] for name in names if name in self.by_name]

    def slowed(self) -> list[tuple[SplitArm, SplitArm]]:
        """Arms with a slow rank, each with the arm that does the same without."""
        pairs = {
            arm: self.run.contrast.without_slow_node(arm.name, where=self.run.select)
            for arm in self
            if arm.slow and self.run.select(arm.name)
        }
        return [(arm, self.by_name[b]) for arm, b in pairs.items() if b in self.by_name]


def healthy(arms: Iterable[SplitArm]) -> list[SplitArm]:
    """Those without a slow rank."""
    return [arm for arm in arms if not arm.slow]
