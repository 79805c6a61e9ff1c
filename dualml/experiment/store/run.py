"""A run in memory: trials with their curves, comparisons, and their grouping."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError
from dualml.common.former_members import former_names
from dualml.common.json_types import JsonMapping
from dualml.experiment.arm import Arm, make_arm
from dualml.experiment.batches import partition_key
from dualml.experiment.config_diff import ConfigDiff
from dualml.experiment.lenient import read_arm
from dualml.experiment.plan import Plan
from dualml.experiment.store.agreement import AgreementRecord
from dualml.experiment.store.manifest import DeviceMemory, LossScale, OffloadTraffic
from dualml.experiment.store.plan import plan_folder, restore_plan
from dualml.experiment.store.records import Array as Array
from dualml.experiment.store.records import Curve as Curve
from dualml.experiment.store.trial_comparison import Serial as Serial
from dualml.experiment.store.trial_comparison import TrialComparison as TrialComparison
from dualml.experiment.store.usage import Usage


@dataclass(frozen=True)
class Trial:
    """One arm on one backend with one seed. Values that it did not produce are None, or empty.

    Attributes:
        arm, seed: the experiment's arm and seed.
        backend: displayed name, unique over all folders; ``framework`` is the backend's own name.
        status: ``ok``, ``failed``, ``unsupported``, ``interrupted``, or ``unreadable`` if its
            curves or measurements cannot be read.
        reason: why the status is not ``ok``.
        wall_s, train_s: seconds of the whole process, and of the updates alone.
        final_loss, train_accuracy, test_accuracy: results at the end; accuracies are fractions.
        updates, sample_gradients: number of updates, and of gradients of single samples.
        peak_memory_mb: peak memory of its processes in MiB.
        how: communication primitive → how the communicator executed it.
        full_batch: whether every update sees all samples.
        curves: metric → its curve, as rank 0 recorded it; `dualml.experiment.store.table` has the
            curves of classes and of all ranks.
        folder: folder of the trial's files.
        world_size, processes: number of ranks requested, and of processes that trained.
        samples: for each rank, how many samples it trained on and the fingerprint of their order.
        step_s: quartiles of the seconds of an update.
        clock: clock of the seconds of updates and collectives, see `dualml.common.clock`; empty in
            runs of older versions.
        sent_bytes: bytes sent in an update by the rank that sends most.
        threads: threads per rank, if they were recorded for the trial itself.
        ranks: mean seconds per update of each rank, empty for one rank; ``times`` has the
            underlying points in time, for trials with a straggler only.
        communication_share: fraction of all ranks' time spent in communication.
        staleness: staleness of an asynchronous server's gradients, in updates.
        spent: activity → seconds spent on it.
        collectives: content of ``collectives.json``, for a trial that timed collectives.
        class_accuracy, confusion: accuracy per class on the test set at the end, and counts of
            samples by class (rows) and predicted class.
        best: results of the weights with the smallest validation loss, as in ``run.json``.
        loss_scale: loss scaling of a low-precision training; None without scaling.
        test_perplexity: perplexity on the test set at the end, for a text.
        samples_sha256: fingerprint of the samples of all ranks, update by update.
        apart: for each rank an array (averagings, 3) of update, divergence and drift; for arms
            whose ranks differ between averagings.
        split, memory: records of a split model, as in ``run.json``; ``timelines``: events of its
            ranks, with empty columns for a missing rank.
        device_memory: device memory of each rank in bytes.
        offload: bytes that each rank keeps outside of the device, and its transfers.
        usage: resource usage of the processes that were watched, in the order of ranks; others have
            no entry.
        agreement: evidence that its ranks trained one model; None for one rank, and if it was not
            checked.
        damage: one line for each existing file that cannot be read.
    """

    arm: str
    backend: str
    framework: str
    seed: int
    status: str
    reason: str
    wall_s: float | None
    train_s: float | None
    final_loss: float | None
    train_accuracy: float | None
    test_accuracy: float | None
    updates: float | None
    sample_gradients: float | None
    peak_memory_mb: float | None
    how: Mapping[str, Any]
    full_batch: bool
    curves: Mapping[str, Curve] = field(repr=False)
    folder: Path = field(repr=False)
    world_size: int = 1
    processes: int = 1
    samples: tuple[tuple[int, str], ...] = ()
    step_s: tuple[float, ...] = ()
    sent_bytes: float | None = None
    threads: int | None = None
    ranks: tuple[Mapping[str, float], ...] = ()
    communication_share: float | None = None
    staleness: Mapping[str, Any] | None = None
    spent: Mapping[str, float] = field(default_factory=dict)
    collectives: Mapping[str, Any] | None = field(default=None, repr=False)
    times: tuple[Mapping[str, Array], ...] = field(default=(), repr=False)
    class_accuracy: tuple[float | None, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()
    best: Mapping[str, Any] | None = field(default=None, repr=False)
    loss_scale: LossScale | None = None
    test_perplexity: float | None = None
    samples_sha256: str = ""
    apart: tuple[Array, ...] = field(default=(), repr=False)
    split: Mapping[str, Any] = field(default_factory=dict, repr=False)
    memory: tuple[Mapping[str, float], ...] = ()
    device_memory: tuple[DeviceMemory, ...] = ()
    offload: tuple[OffloadTraffic, ...] = ()
    timelines: tuple[Mapping[str, Array], ...] = field(default=(), repr=False)
    usage: tuple[Usage, ...] = ()
    agreement: AgreementRecord | None = None
    clock: str = ""
    damage: tuple[str, ...] = ()

    def __repr__(self) -> str:
        loss = "" if self.final_loss is None else f", loss {self.final_loss:.4g}"
        return f"<Trial {self.arm} · {self.backend} · seed {self.seed}: {self.status}{loss}>"

    @property
    def ok(self) -> bool:
        """Whether the trial's status is ``ok``."""
        return self.status == "ok"

    @property
    def device_bytes(self) -> int | None:
        """Bytes that an update needs on the device of the rank that needs most
        (`DeviceMemory.peak_bytes`); None unless they are known for every rank."""
        held = [rank.peak_bytes for rank in self.device_memory]
        known = [nbytes for nbytes in held if nbytes is not None]
        return max(known) if known and len(known) == len(held) else None

    @property
    def counted_bytes(self) -> int | None:
        """Measured bytes (`DeviceMemory.counted_bytes`) of the rank that has most, or None without
        a measurement."""
        return max((rank.counted_bytes for rank in self.device_memory), default=None)

    @property
    def throughput(self) -> float | None:
        """Sample gradients per second of training, of all ranks together; None if either is
        unknown."""
        if not self.train_s or self.sample_gradients is None:
            return None
        return self.sample_gradients / self.train_s


@dataclass(frozen=True)
class RunData:
    """One run folder, or several of the same plan taken together.

    ``dealt``: partition key → statistics of each epoch's partition, from the plan; ``splits``: the
    plan of each split arm; ``models``: model → its specification, these three empty if no arm needs
    the plan; ``serial``: comparisons of n workers and methods with one process; ``lowered``:
    comparisons of low-precision methods with dualml's own arm in that precision; ``findings``:
    causes of its differences, by language; ``damage``: one line per file of the run that cannot be
    read; ``changed``: why a plan is not the one that was frozen.
    """

    folders: tuple[Path, ...]
    meta: Mapping[str, Any]
    environment: Mapping[str, Mapping[str, Any]]
    trials: tuple[Trial, ...]
    comparisons: tuple[TrialComparison, ...] | None
    parity_settings: Mapping[str, Any]
    serial: tuple[Serial, ...] = ()
    lowered: tuple[Serial, ...] = ()
    cost: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    dealt: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict, repr=False)
    splits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    findings: tuple[Mapping[str, str], ...] = ()
    damage: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def unreadable(self) -> list[str]:
        """One line for each existing file that cannot be read."""
        return [*self.damage, *(line for trial in self.trials for line in trial.damage)]

    @property
    def judged(self) -> list[Serial]:
        """Comparisons of ``serial`` with a verdict: n workers, or a method, with one process that
        they must equal."""
        return [s for s in self.serial if s.verdict]

    @property
    def experiment(self) -> JsonMapping:
        """The experiment's settings."""
        return self.meta.get("experiment") or {}

    @property
    def arms(self) -> dict[str, JsonMapping]:
        """Arm → its settings, of the arms that have trials, whatever their status: in the
        experiment's order, then any it does not name."""
        known = self.experiment.get("arms") or {}
        ran = list(dict.fromkeys(t.arm for t in self.trials))
        order = [a for a in known if a in ran] + [a for a in ran if a not in known]
        return {arm: known.get(arm) or {} for arm in order}

    @property
    def backends(self) -> list[str]:
        """Displayed names of the backends, the reference first."""
        return sorted(dict.fromkeys(t.backend for t in self.trials), key=self._rank)

    def _rank(self, backend: str) -> tuple[int, int]:
        """Return the sort key of a backend: the reference first, then PyTorch, MindSpore and
        others."""
        rank = {"numpy": 0, "torch": 1, "mindspore": 2}
        names = list(dict.fromkeys(t.backend for t in self.trials))
        return rank.get(self.framework(backend), 9), names.index(backend)

    def framework(self, backend: str) -> str:
        """Return the backend's own name (``torch``) for a displayed name; an unknown name
        unchanged."""
        return next((t.framework for t in self.trials if t.backend == backend), backend)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the trials, sorted."""
        return sorted({t.seed for t in self.trials})

    @property
    def text(self) -> bool:
        """Whether the samples are windows of a text."""
        return (self.meta.get("data") or {}).get("kind") == "text"

    @property
    def train_size(self) -> int | None:
        """Number of training samples that the run uses, or None if it is not recorded."""
        data = self.meta.get("data") or self.experiment.get("data") or {}
        return data.get("train")

    @functools.cached_property
    def contrast(self) -> ConfigDiff:
        """Comparison of the settings of the arms that have trials."""
        return ConfigDiff(
            self.arms,
            {arm: plan["cut"] for arm, plan in self.splits.items() if plan.get("cut") is not None},
        )

    @functools.cached_property
    def settings(self) -> dict[str, Arm]:
        """Arm → its typed settings; for a newer version the keys that this version knows."""
        return {arm: read_arm(given) for arm, given in self.arms.items()}

    @functools.cached_property
    def plan(self) -> Plan | None:
        """The frozen plan, for those who need its samples; None if it cannot be read, or is not the
        one that ran."""
        try:
            return restore_plan(plan_folder(self.folders[0]), self.meta.get("plan_hash"))
        except UserError:
            return None

    def deals(self, arm: str, seed: int) -> tuple[JsonMapping, ...]:
        """Return the statistics of an arm's partition in each epoch; empty without a partition."""
        return self.dealt.get(partition_key_of(self.arms.get(arm) or {}, seed), ())

    def groups(self) -> dict[str, list[str]]:
        """Return group → its arms that have trials, whatever their status, with the group ``main``
        first; an arm without a group belongs to ``main``."""
        groups: dict[str, list[str]] = {}
        for arm, settings in self.arms.items():
            groups.setdefault(settings.get("group") or "main", []).append(arm)
        return dict(sorted(groups.items(), key=lambda item: item[0] != "main"))

    def main_arms(self) -> list[str]:
        """Return the training arms of the first group that has any, with the group ``main`` before
        others; empty if no arm trains."""
        for arms in self.groups().values():
            if train := [a for a in arms if self.arms[a].get("kind", "train") == "train"]:
                return train
        return []

    def select(self, arm: str, backend: str | None = None, *, ok: bool = True) -> list[Trial]:
        """Return the trials of an arm, sorted by seed, on the backend of this displayed name (None:
        on all); only successful ones unless ``ok=False``."""
        trials = [t for t in self.trials if t.arm == arm and backend in (None, t.backend)]
        return sorted((t for t in trials if t.ok or not ok), key=lambda t: t.seed)


def partition_key_of(settings: JsonMapping, seed: int) -> str:
    """Return the key of the partition (`partition_key`) of an arm with these settings for a seed;
    empty without a partition, and if this version cannot read the settings."""
    if not settings.get("partition"):
        return ""
    return _key(json.dumps(settings, sort_keys=True, default=str), seed)


@functools.lru_cache(maxsize=4096)
def _key(settings: str, seed: int) -> str:
    """Return the `partition_key` of an arm from its settings as JSON; empty if they cannot be
    read."""
    try:
        return partition_key(make_arm(json.loads(settings)), seed)
    except (UserError, ValueError):
        return ""


__getattr__ = former_names(__name__, {"Comparison": "TrialComparison"})
