"""Parallel layouts as columns: how many devices share what, for many layouts at once."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject

Ints = NDArray[np.int64]
#: What is recomputed: nothing, attention's scores, or whole layers.
RECOMPUTED = ("none", "selective", "full")
#: The same, and what PyTorch's selective checkpoints add: all of a layer but every second product
#: and attention.
RECOMPUTATIONS = (*RECOMPUTED, "operations")
#: Pipeline schedules. With more than one chunk ``1f1b`` is interleaved. ``zb-h1`` and ``zb-h2`` are
#: the zero-bubble schedules of Qi et al. 2023, ``dualpipe`` is DeepSeek-V3's.
SCHEDULES = ("1f1b", "zb-h1", "zb-h2", "dualpipe")


class LayoutAxes(TypedDict, total=False):
    """The choices of a single layout; see `Layouts`, whose columns they are."""

    dp: int
    pp: int
    tp: int
    cp: int
    sp: bool
    zero: int
    micro: int
    recompute: str
    chunks: int
    ep: int
    etp: int
    reshard: bool
    replicate: int
    schedule: str
    first_layers: int
    last_layers: int


#: Values of the columns that a table may leave out; 0 is explained in `Layouts`.
OPTIONAL_AXES = LayoutAxes(
    ep=1, etp=0, reshard=True, replicate=1, schedule="1f1b", first_layers=0, last_layers=0
)
DEFAULT_AXES = OPTIONAL_AXES | LayoutAxes(
    dp=1, pp=1, tp=1, cp=1, sp=False, zero=0, micro=1, recompute="none", chunks=1
)


def _absent() -> Ints:
    """Return an optional column that a table is made without: it has no rows."""
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Layouts:
    """A table of layouts with a column for each choice and a row for each layout, all integers.

    Args:
        dp: data parallelism: replicas, each with its own samples.
        pp: pipeline parallelism: stages.
        tp: tensor parallelism: devices that share every layer.
        cp: context parallelism: devices that share a sequence.
        sp: sequence parallelism: 1 if the tp devices share the sequence outside of matrices.
        zero: ZeRO's stage, 0 to 3, over dp · cp / replicate devices.
        micro: b, sequences per micro-batch.
        batch: B, sequences per update.
        recompute: index in ``RECOMPUTATIONS``.
        chunks: v, stages of the interleaved schedule on each device; 1 is 1F1B.
        ep: expert parallelism: devices over which the experts of a layer are distributed. With etp
            devices for each expert, ep · etp divides dp · cp · tp.
        etp: devices that share every expert; 0 means tp.
        reshard: 1 if ZeRO-3 frees the weights of a unit after its forward pass and gathers them
            again for the backward pass; 0 if it keeps them.
        replicate: groups of devices that each hold one sharded copy of the states (hybrid sharding,
            HSDP); 1 shards over all dp · cp devices.
        schedule: index in ``SCHEDULES``.
        first_layers, last_layers: layers of the first and of the last of all pp · chunks stages; 0
            means that the layers are distributed evenly (`memory.layers_in_stage`).
    """

    dp: Ints
    pp: Ints
    tp: Ints
    cp: Ints
    sp: Ints
    zero: Ints
    micro: Ints
    batch: Ints
    recompute: Ints
    chunks: Ints
    ep: Ints = field(default_factory=_absent)
    etp: Ints = field(default_factory=_absent)
    reshard: Ints = field(default_factory=_absent)
    replicate: Ints = field(default_factory=_absent)
    schedule: Ints = field(default_factory=_absent)
    first_layers: Ints = field(default_factory=_absent)
    last_layers: Ints = field(default_factory=_absent)

    def __post_init__(self) -> None:
        for name, value in encode_axes(OPTIONAL_AXES).items():
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(len(self.dp), value, np.int64))
        object.__setattr__(self, "etp", np.where(self.etp == 0, self.tp, self.etp))

    @classmethod
    def from_axes(cls, batch: int, **axes: Unpack[LayoutAxes]) -> Layouts:
        """Make a table with a single layout; axes that are not given have their defaults.

        Raises:
            UserError: a batch that does not divide into micro-batches.
        """
        layout = DEFAULT_AXES | axes
        dp, micro = layout["dp"], layout["micro"]
        if batch % (dp * micro):
            raise UserError(f"batch {batch} is no multiple of dp {dp} · micro-batch {micro}")
        columns = {**encode_axes(layout), "batch": batch}
        return cls(**{name: np.array([value], np.int64) for name, value in columns.items()})

    def __len__(self) -> int:
        return len(self.dp)

    def select_rows(self, rows: Any) -> Layouts:
        """Return a new table of the selected rows: their indices, or a mask of all rows."""
        return Layouts(*(getattr(self, f.name)[rows] for f in fields(self)))

    @property
    def micro_batches(self) -> Ints:
        """Number of micro-batches, m = B / (dp · b)."""
        return self.batch // (self.dp * self.micro)

    @property
    def zero_devices(self) -> Ints:
        """Number of devices N over which ZeRO shards."""
        return self.dp * self.cp // self.replicate

    @property
    def expert_devices(self) -> Ints:
        """Number of devices that hold the same part of the experts, over which ZeRO shards it:
        dp · cp · tp / (ep · etp · replicate), at least 1."""
        ranks = self.dp * self.cp * self.tp // (self.ep * self.etp * self.replicate)
        return np.maximum(ranks, 1)

    @property
    def devices(self) -> Ints:
        """Number of devices of each layout."""
        return self.dp * self.pp * self.tp * self.cp

    def describe(self, row: int) -> JsonObject:
        """Return the layout in ``row``, from 0, as JSON-compatible values, with its number of
        micro-batches."""
        texts = {f.name: int(getattr(self, f.name)[row]) for f in fields(self)}
        given: dict[str, Any] = dict(texts)
        given |= {"sp": bool(texts["sp"]), "recompute": RECOMPUTATIONS[texts["recompute"]]}
        given |= {"reshard": bool(texts["reshard"]), "schedule": SCHEDULES[texts["schedule"]]}
        return {**given, "micro_batches": int(self.micro_batches[row])}


def encode_axes(axes: LayoutAxes) -> dict[str, int]:
    """Return the choices as integers: the indices of names in ``RECOMPUTATIONS`` and ``SCHEDULES``,
    and 1 for true."""
    names: dict[str, tuple[str, ...]] = {"recompute": RECOMPUTATIONS, "schedule": SCHEDULES}
    values: dict[str, Any] = dict(axes)
    return {
        name: names[name].index(value) if name in names else int(value)
        for name, value in values.items()
    }
