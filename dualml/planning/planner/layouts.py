"""Parallel layouts as columns: how many devices share what, for many layouts at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.planning.planner.shape import Shape

Ints = NDArray[np.int64]
RECOMPUTED = ("none", "selective", "full")
#: Maximum number of layouts in one search.
MAX_LAYOUTS = 1_000_000


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


DEFAULT_AXES = LayoutAxes(
    dp=1, pp=1, tp=1, cp=1, sp=False, zero=0, micro=1, recompute="none", chunks=1
)


@dataclass(frozen=True)
class Layouts:
    """A table of layouts with a column for each choice and a row for each layout, all integers.

    Args:
        dp: data parallelism: replicas, each with its own samples.
        pp: pipeline parallelism: stages.
        tp: tensor parallelism: devices that share every layer.
        cp: context parallelism: devices that share a sequence.
        sp: sequence parallelism: 1 if the tp devices share the sequence outside of matrices.
        zero: ZeRO's stage, 0 to 3, over dp · cp devices.
        micro: b, sequences per micro-batch.
        batch: B, sequences per update.
        recompute: index in ``RECOMPUTED``.
        chunks: v, stages of the interleaved schedule on each device; 1 is 1F1B.
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
        columns = {
            **layout,
            "batch": batch,
            "sp": int(layout["sp"]),
            "recompute": RECOMPUTED.index(layout["recompute"]),
        }
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
        return self.dp * self.cp

    @property
    def devices(self) -> Ints:
        """Number of devices of each layout."""
        return self.dp * self.pp * self.tp * self.cp

    def describe(self, row: int) -> JsonObject:
        """Return the layout in ``row``, from 0, as JSON-compatible values, with its number of
        micro-batches."""
        texts = {f.name: int(getattr(self, f.name)[row]) for f in fields(self)}
        given: dict[str, Any] = dict(texts)
        given |= {"sp": bool(texts["sp"]), "recompute": RECOMPUTED[texts["recompute"]]}
        return {**given, "micro_batches": int(self.micro_batches[row])}


@dataclass(frozen=True)
class SearchSpace:
    """The search space of layouts.

    Args:
        tensor: largest tp.
        context: largest cp.
        chunks: largest number of stages on a device.
        zero, recompute: allowed values.
        sequence: allowed values of sp where tp > 1.
    """

    tensor: int = 8
    context: int = 1
    chunks: int = 1
    zero: tuple[int, ...] = (0, 1, 2, 3)
    recompute: tuple[str, ...] = RECOMPUTED
    sequence: tuple[int, ...] = (0, 1)


def divisors(n: int) -> list[int]:
    """Return the divisors of n in ascending order; n up to 10¹²."""
    small = [k for k in range(1, int(n**0.5) + 1) if n % k == 0]
    return small + [n // k for k in reversed(small) if k * k != n]


def enumerate_layouts(shape: Shape, devices: int, batch: int, choices: SearchSpace) -> Layouts:
    """Return every layout of exactly ``devices`` devices that splits everything but the layers
    evenly.

    tp divides the numbers of heads and of key-value heads, and the feed-forward width; 2cp divides
    the sequence; pp is at most the number of layers (stages may differ by one layer); dp ·
    micro-batch divides the batch; with the interleaved schedule pp divides the micro-batches, and
    there is a layer for each of its pp · v stages.

    Raises:
        UserError: there is no layout, with the reason, or there are more than a million.
    """
    rows: list[Ints] = []
    count = 0
    for meshes in _meshes(shape, devices, batch, choices):
        block = _micro_batches(meshes, shape, batch, choices)
        count += len(block) * len(choices.zero) * len(choices.recompute)
        if count > MAX_LAYOUTS:
            raise UserError(
                f"more than {MAX_LAYOUTS:,} layouts of {devices:,} devices and a batch of "
                f"{batch:,}; "
                "vary less: --tensor, --zero, --recompute, --interleave"
            )
        rows.append(block)
    table = np.concatenate(rows) if rows else np.empty((0, 7), np.int64)
    if not len(table):
        raise UserError(_no_layout_reason(shape, devices, batch))
    names = ("dp", "pp", "tp", "cp", "sp", "micro", "chunks")
    recompute = [RECOMPUTED.index(name) for name in choices.recompute]
    pairs = [(zero, again) for zero in choices.zero for again in recompute]
    of_pairs = np.array(pairs, np.int64)
    each = {
        name: np.repeat(column, len(pairs)) for name, column in zip(names, table.T, strict=True)
    }
    zero, again = np.tile(of_pairs, (len(table), 1)).T
    layouts = Layouts(batch=np.full_like(zero, batch), zero=zero, recompute=again, **each)
    # Over one device there is nothing to shard.
    return layouts.select_rows((layouts.zero == min(choices.zero)) | (layouts.zero_devices > 1))


def _meshes(
    shape: Shape, devices: int, batch: int, choices: SearchSpace
) -> Sequence[tuple[int, int, int, int]]:
    """Return the allowed (dp, pp, tp, cp) whose product is the number of devices: see
    `enumerate_layouts`."""
    meshes = []
    for tp in divisors(devices):
        cut = any(size % tp for size in (shape.heads, shape.kv_heads, shape.ffn))
        if tp > choices.tensor or cut:
            continue
        for cp in divisors(devices // tp):
            if cp > choices.context or shape.sequence % (2 * cp if cp > 1 else 1):
                continue
            for pp in divisors(devices // (tp * cp)):
                dp = devices // (tp * cp * pp)
                if pp <= shape.layers and batch % dp == 0:
                    meshes.append((dp, pp, tp, cp))
    return meshes


def _micro_batches(
    mesh: tuple[int, int, int, int], shape: Shape, batch: int, choices: SearchSpace
) -> Ints:
    """Return the (dp, pp, tp, cp, sp, b, v) of a mesh, for every micro-batch and interleaving."""
    dp, pp, tp, _ = mesh
    rows = []
    for micro in divisors(batch // dp):
        m = batch // (dp * micro)
        for v in range(1, choices.chunks + 1 if pp > 1 else 2):
            if v > 1 and (m % pp or shape.layers < pp * v):
                continue
            rows += [(*mesh, sp, micro, v) for sp in (choices.sequence if tp > 1 else (0,))]
    return np.array(rows, np.int64)


def _no_layout_reason(shape: Shape, devices: int, batch: int) -> str:
    """Return the error message that no layout exists for these devices and this batch; checks
    nothing."""
    return (
        f"no mesh of {devices:,} devices divides {shape.heads} heads, {shape.kv_heads} of keys and "
        f"values, {shape.layers} layers and a batch of {batch:,} sequences; choose a batch that is "
        f"a multiple of {devices:,}, or another number of devices"
    )
