"""``run.json``: the experiment, the environments, and one record per trial."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dualml.common.errors import UserError, did_you_mean
from dualml.common.files import nonfinite_to_none
from dualml.experiment.schema import Experiment
from dualml.experiment.store.agreement import AgreementRecord
from dualml.experiment.store.best import BestRecord
from dualml.experiment.store.classification import Classification
from dualml.experiment.store.jsonfile import Count, JsonFile, Name, Number, Record
from dualml.experiment.store.protocol import Protocol, parse_experiment

Status = Literal["ok", "failed", "unsupported", "interrupted"]
Key = tuple[str, str, int]  # arm, backend, seed
Environment = dict[str, str]
#: Fields that a trial which trained and ended well has.
RESULTS = ("train_s", "final_loss", "train_accuracy", "test_accuracy", "updates")


class Staleness(Record):
    """Staleness of an asynchronous server's gradients, in updates."""

    mean: Number
    max: Number
    ranks: list[Number]


class LossScale(Record):
    """Loss scaling of a low-precision training: the scale after the last update, and the number of
    updates skipped because of a non-finite gradient."""

    last: Number
    skipped: Count


#: Mean seconds of an update: ``compute_s``, its part ``update_s`` after the aggregation,
#: ``wait_s``, ``transfer_s``, and ``step_s`` in total. It is a table, because the measuring code
#: decides the order.
RankTimes = dict[str, Number]


class RankSamples(Record):
    """Number of samples that a rank trained on, and the SHA-256 of their indices in order."""

    n: Count
    sha256: str


class RankMemory(Record):
    """Memory of a rank of a split model: the most micro-batches between forward and backward pass,
    and bytes; ``sample_bytes`` and ``label_bytes`` are what it has read of the data."""

    live: Number
    held_bytes: Number
    parameter_bytes: Number
    peak_memory_mb: Number
    sample_bytes: Number | None = None
    label_bytes: Number | None = None


class DeviceMemory(Record):
    """Memory of one rank in bytes: `dualml.backend.MemoryUsage`, and the peak of the device's
    allocator during one update, including the training set. Null: not measurable.

    Attributes:
        parameters: number of parameters that the rank has according to the plan.
    """

    parameters: Count | None = None
    weights: Count
    gradients: Count
    state: Count
    activations: Count | None = None
    buckets: Count = 0
    device_peak: Count | None = None

    @property
    def peak_bytes(self) -> int | None:
        """Peak bytes of the allocator or, without one, the sum of all parts; None if a part is
        unknown."""
        if self.device_peak is not None or self.activations is None:
            return self.device_peak
        return self.counted_bytes

    @property
    def counted_bytes(self) -> int:
        """Sum of the bytes of weights, gradients, state, buckets and, if they were measured,
        activations; ``device_peak`` does not count."""
        seen = self.weights + self.gradients + self.state + self.buckets
        return seen + (self.activations or 0)


class OffloadTraffic(Record):
    """Transfers of one rank in all updates since the trial started or resumed
    (`dualml.parallel.offload.traffic.OffloadCounters`), and the bytes kept in host memory and on
    disk."""

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
    """Mean traffic per update between two ranks."""

    source: Count
    target: Count
    bytes: Number
    messages: Number


class DeviceTransfers(Record):
    """Mean traffic per update between two devices of one process."""

    rank: Count
    source: str
    target: str
    bytes: Number
    messages: Number


class SplitTimes(Record):
    """Pipeline bubble and traffic of a split model; empty where nothing was recorded."""

    bubble: Number = 0.0
    bubble_low: Number = 0.0
    bubble_high: Number = 0.0
    bubble_passes: Number = 0.0
    links: list[LinkTraffic] = []
    transfers: list[DeviceTransfers] = []
    updates: Count = 0


#: Activities whose seconds a trial records, as far as the reporting worker knows them. The rest of
#: ``wall_s`` is ``start``: the process, its imports, the data, and waiting for a core.
TIMED_ACTIVITIES = ("start", "compile", "train", "evaluate", "trace", "draws", "write")


class ResizeRecord(Record):
    """A change of a trial's number of ranks after update ``step``, see
    `dualml.experiment.elastic.RULE`."""

    step: Count
    before: Count
    after: Count
    rule: str


class TrialRecord(Record):
    """The record of one trial. Optional fields stand in the order in which they are written."""

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
    best: BestRecord | None = None
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
    agreement: AgreementRecord | None = None
    clock: str = ""
    resized: list[ResizeRecord] = []

    @classmethod
    def fresh(cls, key: Key, plan_hash: str, world_size: int) -> TrialRecord:
        """Make the record of the trial ``key`` (arm, backend, seed) that has not been started: its
        status is ``interrupted``, its results are None."""
        arm, backend, seed = key
        begun = {"arm": arm, "backend": backend, "seed": seed}
        begun |= {"status": "interrupted", "reason": "not started"}
        numbers = dict.fromkeys(("wall_s", *RESULTS, "sample_gradients", "peak_memory_mb"))
        ranks = {"world_size": world_size} if world_size > 1 else {}
        return cls.model_validate({**begun, **numbers, "plan_hash": plan_hash, "how": {}, **ranks})

    def with_values(self, **values: Any) -> TrialRecord:
        """Return a copy of the record with these fields replaced; NaN and infinities become
        None."""
        return TrialRecord.model_validate(nonfinite_to_none({**self.describe(), **values}))

    @property
    def key(self) -> Key:
        """Arm, backend and seed, which identify the trial."""
        return self.arm, self.backend, self.seed


class Options(Record):
    """The user's command-line options, which every worker receives.

    Attributes:
        busy: share of each usable core that other processes kept busy when the run began.
    """

    device: str = "auto"
    busy: list[Number] = []
    threads: Count = 1
    rendezvous: str = "auto"
    check: bool = False
    threads_asked: bool = False


class DataRecord(Record):
    """The dataset as it was found; for a text also how its samples are made."""

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
    """The content of ``run.json``, updated after every trial."""

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
        """Raise `UserError` for a trial without an arm, listed twice, or with a number of ranks
        that its arm cannot have."""
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

    def to_experiment(self, folder: Path) -> Experiment:
        """Return the experiment as this version understands it; raise `UserError`, which names the
        file in ``folder``, if it cannot."""
        return parse_experiment(self.experiment, folder / RUN.name)

    def by_key(self) -> Mapping[Key, TrialRecord]:
        """Return key → trial record."""
        return {trial.key: trial for trial in self.trials}


RUN = JsonFile("run.json", RunRecord, version=1)


def check_run(folder: Path) -> None:
    """Raise `UserError` unless ``folder`` is a run folder, which has a file ``run.json``; its
    content is not checked."""
    if not (folder / RUN.name).is_file():
        beside = (path.parent.name for path in folder.parent.glob(f"*/{RUN.name}"))
        hint = "" if folder.is_dir() else did_you_mean(folder.name, beside, fallback="")
        raise UserError(f"{folder} is not a run folder: it has no {RUN.name}{hint}")


def read_run(folder: Path) -> RunRecord:
    """Read ``run.json``; raise `UserError` if the folder is no run folder, or the file is damaged
    or newer."""
    check_run(folder)
    return RUN.read(folder)
