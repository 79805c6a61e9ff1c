"""``run.json``: the experiment, the environments, and one entry for each trial."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dualml.errors import UserError, nearest
from dualml.experiment.schema import Experiment
from dualml.files import finite
from dualml.store.agreement import Agreement
from dualml.store.best import Best
from dualml.store.classification import Classification
from dualml.store.jsonfile import Count, JsonFile, Name, Number, Record
from dualml.store.protocol import Protocol, experiment_of

Status = Literal["ok", "failed", "unsupported", "interrupted"]
Key = tuple[str, str, int]  # arm, backend, seed
Environment = dict[str, str]
#: What a trial that trained and ended well has.
RESULTS = ("train_s", "final_loss", "train_accuracy", "test_accuracy", "updates")


class Staleness(Record):
    """Of an asynchronous server, in updates."""

    mean: Number
    max: Number
    ranks: list[Number]


class LossScale(Record):
    """Of a training in a lower precision: the scale after the last update, and updates skipped
    because a gradient was not finite."""

    last: Number
    skipped: Count


#: Mean seconds of an update: ``compute_s``, of it ``update_s`` after the aggregation, ``wait_s``,
#: ``transfer_s`` and ``step_s``, the whole. A table, because who measures it decides the order.
RankTimes = dict[str, Number]


class RankSamples(Record):
    """How many samples a rank trained on, and the SHA-256 of their indices in order."""

    n: Count
    sha256: str


class RankMemory(Record):
    """Most micro-batches between forward and backward pass, and bytes; those of samples and labels
    are what the rank has read of the data."""

    live: Number
    held_bytes: Number
    parameter_bytes: Number
    peak_memory_mb: Number
    sample_bytes: Number | None = None
    label_bytes: Number | None = None


class DeviceMemory(Record):
    """Of one rank, in bytes: `dualml.backend.Memory`, and the most that the device's allocator had
    given out during one update, the training set included. What nothing shows is null.

    Attributes:
        parameters: how many the plan says that the rank has.
    """

    parameters: Count | None = None
    weights: Count
    gradients: Count
    state: Count
    activations: Count | None = None
    buckets: Count = 0
    device_peak: Count | None = None

    @property
    def held(self) -> int | None:
        """The peak, or, where no allocator tells it, all that was counted; None where not all of
        it is seen."""
        if self.device_peak is not None or self.activations is None:
            return self.device_peak
        return self.counted

    @property
    def counted(self) -> int:
        """All that was seen."""
        seen = self.weights + self.gradients + self.state + self.buckets
        return seen + (self.activations or 0)


class OffloadTraffic(Record):
    """Of one rank, of all updates since the trial began or went on: what is moved
    (`dualml.offload.traffic.Traffic`), and the bytes kept in host memory and on disk."""

    host: Count
    disk: Count
    updates: Count
    made: Count
    rounds: Count
    to_device: Count
    to_host: Count
    copy_ns: Count
    read: Count
    written: Count
    read_ns: Count
    write_ns: Count
    wait_ns: Count


class LinkTraffic(Record):
    """Means per update."""

    source: Count
    target: Count
    bytes: Number
    messages: Number


class DeviceTransfers(Record):
    """Means per update, between two devices of one process."""

    rank: Count
    source: str
    target: str
    bytes: Number
    messages: Number


class SplitTimes(Record):
    """The bubble of a split model; empty where nothing was recorded."""

    bubble: Number = 0.0
    bubble_low: Number = 0.0
    bubble_high: Number = 0.0
    bubble_passes: Number = 0.0
    links: list[LinkTraffic] = []
    transfers: list[DeviceTransfers] = []
    updates: Count = 0


#: What the seconds of a trial were spent on, as far as the worker that reports knows: `SPENT`. The
#: rest of ``wall_s`` is ``start``: the process, its imports, the data, and what waited for a core.
SPENT = ("start", "compile", "train", "evaluate", "trace", "draws", "write")


class Resized(Record):
    """A trial that went on with another number of ranks ``after`` update ``step``, see
    `dualml.experiment.elastic.RULE`."""

    step: Count
    before: Count
    after: Count
    rule: str


class TrialRecord(Record):
    """One trial. What not every trial has stands in the order in which it is written."""

    arm: Name
    backend: Name
    seed: Count
    status: Status
    reason: str | None = None
    wall_s: Number | None = None
    train_s: Number | None = None
    final_loss: Number | None = None
    train_accuracy: Number | None = None
    test_accuracy: Number | None = None
    updates: Count | None = None
    sample_gradients: Count | None = None
    peak_memory_mb: Number | None = None
    plan_hash: str = ""
    how: dict[str, str] = {}
    world_size: Count = 1
    log: list[str] = []
    compile_s: Number | None = None
    test_loss: Number | None = None
    test_perplexity: Number | None = None
    class_accuracy: list[Number | None] = []
    confusion: list[list[Count]] = []
    classification: Classification | None = None
    best: Best | None = None
    samples_sha256: str = ""
    samples: list[RankSamples] = []
    step_s: list[Number] = []
    sent_bytes: Number | None = None
    staleness: Staleness | None = None
    measurements: Count | None = None
    memory: list[RankMemory] = []
    threads: str | Count | None = None
    ranks: list[RankTimes] = []
    communication_share: Number | None = None
    split: SplitTimes = SplitTimes()
    spent: dict[str, Number] = {}
    loss_scale: LossScale | None = None
    device_memory: list[DeviceMemory] = []
    offload: list[OffloadTraffic] = []
    agreement: Agreement | None = None
    clock: str = ""
    resized: list[Resized] = []

    @classmethod
    def fresh(cls, key: Key, plan_hash: str, world_size: int) -> TrialRecord:
        """A trial that has not been started."""
        arm, backend, seed = key
        begun = {"arm": arm, "backend": backend, "seed": seed}
        begun |= {"status": "interrupted", "reason": "not started"}
        numbers = dict.fromkeys(("wall_s", *RESULTS, "sample_gradients", "peak_memory_mb"))
        ranks = {"world_size": world_size} if world_size > 1 else {}
        return cls.model_validate({**begun, **numbers, "plan_hash": plan_hash, "how": {}, **ranks})

    def changed(self, **values: Any) -> TrialRecord:
        """The same trial, further on."""
        return TrialRecord.model_validate(finite({**self.describe(), **values}))

    @property
    def key(self) -> Key:
        return self.arm, self.backend, self.seed


class Options(Record):
    """What the user asked for on the command line and every worker is told.

    Attributes:
        busy: of each usable core, the share that others kept busy when the run began.
    """

    device: str = "auto"
    busy: list[Number] = []
    threads: Count = 1
    rendezvous: str = "auto"
    check: bool = False
    threads_asked: bool = False


class DataRecord(Record):
    """The dataset as it was found; of a text also how its samples are made."""

    name: str
    source: str
    sha256: str = ""
    notice: dict[str, str] | str | None = None
    train: Count
    validation: Count = 0
    test: Count
    mean: Number | list[Number] = 0.0
    std: Number | list[Number] = 1.0
    kind: str = "images"
    words: Count = 0
    length: Count = 0
    vocabulary: Count = 0
    vocabulary_sha256: str = ""
    pretrained: str = ""
    cut: Count = 0
    labels: bool = False
    tokens: str = "words"
    classes: list[str] = []
    path: str = ""


class RunRecord(Record):
    """A run, updated after every trial."""

    dualml: str = ""
    created: str = ""
    git: str | None = None
    name: str
    experiment: Protocol
    lang: Annotated[str, Field(pattern="^(en|zh)$")] = "en"
    options: Options = Options()
    data: DataRecord
    plan_hash: str
    plan_parts: dict[str, str] = {}
    environment: dict[Name, Environment] = {}
    trials: list[TrialRecord]

    @model_validator(mode="after")
    def _trials_belong(self) -> RunRecord:
        seen: set[Key] = set()
        for number, trial in enumerate(self.trials):
            arm = (self.experiment.get("arms") or {}).get(trial.arm)
            if arm is None:
                raise UserError(f"trials.{number}.arm: the experiment has no arm {trial.arm!r}")
            if trial.key in seen:
                raise UserError(f"trials.{number}: there are two of {trial.key}")
            ranks = trial.resized[-1].after if trial.resized else arm.get("world_size", 1)
            if trial.world_size not in (ranks, 1):
                raise UserError(
                    f"trials.{number}.world_size: the arm has {ranks} ranks; "
                    f"received {trial.world_size}"
                )
            seen.add(trial.key)
        return self

    def protocol(self, folder: Path) -> Experiment:
        """The experiment, as this version computes with it; `UserError` where it cannot."""
        return experiment_of(self.experiment, folder / RUN.name)

    def by_key(self) -> Mapping[Key, TrialRecord]:
        return {trial.key: trial for trial in self.trials}


RUN = JsonFile("run.json", RunRecord, version=1)


def check_run(folder: Path) -> None:
    """Raises `UserError` for a folder that is none of a run."""
    if not (folder / RUN.name).is_file():
        beside = (path.parent.name for path in folder.parent.glob(f"*/{RUN.name}"))
        hint = "" if folder.is_dir() else nearest(folder.name, beside, otherwise="")
        raise UserError(f"{folder} is not a run folder: it has no {RUN.name}{hint}")


def read_run(folder: Path) -> RunRecord:
    """Raises `UserError` for a folder that is none of a run, and for a damaged or newer file."""
    check_run(folder)
    return RUN.read(folder)
