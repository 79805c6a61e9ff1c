"""The content of ``plan.json``: experiment, models, partitions of the samples, and split models."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, PlainValidator, model_validator

from dualml.algorithms.model.layers import LAYERS
from dualml.algorithms.model.spec import ModelSpec
from dualml.common.errors import UserError
from dualml.common.files import convert_read_errors
from dualml.experiment.store.jsonfile import Count, Name, Number, Record
from dualml.experiment.store.manifest import DataRecord
from dualml.experiment.store.protocol import Protocol

#: Types of the fields that every layer has.
COMMON_FIELDS = {"name": "str", "type": "str"}


def _model(value: Any) -> ModelSpec:
    """Parse a model specification from its JSON value; raise `UserError` if it is none."""
    with convert_read_errors("not a model"):
        for layer in value["layers"]:
            kinds = {f.name: f.type for f in fields(LAYERS[layer["type"]])} | COMMON_FIELDS
            for name, field in layer.items():
                if type(field).__name__ not in (kind := kinds[name], "int" * (kind == "float")):
                    raise UserError(f"not a model: {name} of a layer is no {kind}")
        return ModelSpec.restore(value)


Model = Annotated[ModelSpec, PlainValidator(_model), PlainSerializer(ModelSpec.describe)]


class PartitionStatsRecord(Record):
    """Statistics of a partition in one epoch, see `dualml.parallel.partition.stats`."""

    samples: Count
    sizes: list[Count]
    missed: Count
    repeated: Count
    shared: Count
    sha256: str
    histogram: list[list[Count]] | None = None
    labels: list[int] | None = None
    emd: list[Number | None] | None = None
    js: list[Number | None] | None = None
    disjoint: bool
    covering: bool

    @model_validator(mode="after")
    def _ranks_agree(self) -> PartitionStatsRecord:
        """Raise `UserError` unless every column has an entry per rank, and every histogram row one
        per label."""
        for name in ("histogram", "emd", "js"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.sizes):
                raise UserError(f"{name} has {len(column)} ranks, sizes {len(self.sizes)}")
        width = len(self.labels or ())
        if any(len(row) != width for row in self.histogram or ()):
            raise UserError(f"histogram has rows that are not of {width} labels")
        return self


class MeshRecord(Record):
    """Numbers of data, pipeline and tensor parallel ranks."""

    data: Count
    pipeline: Count
    tensor: Count


class SliceRecord(Record):
    """Part of a parameter that a rank holds."""

    shape: list[Count]
    part: str


class SplitRank(Record):
    """One rank of a split model: its coordinates, its stages and its parameters."""

    rank: Count
    data: Count
    pipeline: Count
    tensor: Count
    stages: list[Count]
    parameters: dict[str, SliceRecord]
    elements: Count
    live: Count


class PlannedLink(Record):
    """Traffic from one rank to another in an update."""

    source: Count
    target: Count
    messages: Count
    nbytes: Count
    what: str


class PlannedTransfers(Record):
    """Transfers of a process from one of its devices to another in an update."""

    rank: Count
    source: str
    target: str
    what: str
    messages: Count
    nbytes: Count


class PlannedCollective(Record):
    """A collective of some ranks in an update."""

    ranks: list[Count]
    kind: str
    calls: Count
    nbytes: Count


class PlannedSplit(Record):
    """A split model's plan for one arm, as `dualml split --json` prints it."""

    cut: list[str]
    model: str
    mesh: MeshRecord
    stages: list[list[str]]
    place: list[Count]
    trainers: Count
    styles: dict[str, str]
    schedule: str
    micro_batches: Count
    grid: list[list[str]]
    batch: Count
    ranks: list[SplitRank]
    engine: str = "messages"
    driver: Count = 0
    devices: list[str] = []
    transfers: list[PlannedTransfers] = []
    shared: Literal["", "sequence", "context"] = ""
    links: list[PlannedLink]
    meetings: list[PlannedCollective]

    @model_validator(mode="after")
    def _numbers_fit(self) -> PlannedSplit:
        """Raise `UserError` unless ranks are numbered in order from 0, and every rank or stage
        named exists."""
        n, mesh = len(self.ranks), self.mesh
        if not n or [r.rank for r in self.ranks] != list(range(n)):
            raise UserError("ranks are not numbered from 0")
        axes = {"data": mesh.data, "pipeline": mesh.pipeline, "tensor": mesh.tensor}
        for r in self.ranks:
            for axis, size in axes.items():
                if getattr(r, axis) >= size:
                    raise UserError(f"ranks.{r.rank}.{axis} is beyond the mesh, {size}")
            if any(stage >= len(self.stages) for stage in r.stages):
                raise UserError(f"ranks.{r.rank}.stages: there are {len(self.stages)} stages")
        if self.driver >= n:
            raise UserError(f"driver: there are {n} ranks")
        for number, link in enumerate(self.links):
            if max(link.source, link.target) >= n:
                raise UserError(f"links.{number}: there are {n} ranks")
        for number, meeting in enumerate(self.meetings):
            if not meeting.ranks or max(meeting.ranks) >= n:
                raise UserError(f"meetings.{number}: there are {n} ranks")
        return self


class InitialFile(Record):
    """The file from which the initial weights were read."""

    path: str
    bytes: Count
    sha256: str


class PlanRecord(Record):
    """The content of ``plan.json``."""

    hash: str
    parts: dict[str, str]
    data: DataRecord
    model: Model
    experiment: Protocol
    deals: dict[str, list[PartitionStatsRecord]] = {}
    models: dict[Name, Model] = {}
    splits: dict[Name, PlannedSplit] = {}
    initial: InitialFile | None = None

    @model_validator(mode="after")
    def _splits_are_of_arms(self) -> PlanRecord:
        """Raise `UserError` for a split plan of an arm that the experiment does not split."""
        for name in self.splits:
            arm = (self.experiment.get("arms") or {}).get(name)
            if arm is None or arm.get("split") is None:
                raise UserError(f"splits.{name}: the experiment splits no such arm")
        return self
