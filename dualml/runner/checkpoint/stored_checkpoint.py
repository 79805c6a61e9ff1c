"""A checkpoint as seen by its reader: any slice of any tensor, from any format."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dualml.common.errors import UserError, did_you_mean, escape_unprintable
from dualml.common.former_members import keep_former_members
from dualml.runner.checkpoint.boxes import IndexBox, find_overlap, uncovered_boxes
from dualml.runner.checkpoint.kinds import STORAGE_DTYPES, Array, to_numbers
from dualml.runner.checkpoint.tensorfile import MAX_LISTED_NAMES, format_names, replaced_error
from dualml.runner.checkpoint.writing import WrittenFile, sha256

Shape = tuple[int, ...]
#: Maximum number of names suggested for an unknown one; all names of a large model would fill a
#: page.
MAX_SUGGESTIONS = 20


@dataclass(frozen=True)
class StoredShard:
    """A stored slice of a tensor.

    Attributes:
        file: that contains it.
        box: its position in the whole tensor.
        array: returns its bits (see `kinds`), mapped or read when it is called.
    """

    file: Path
    box: IndexBox
    array: Callable[[], Array] = field(compare=False)


@dataclass(frozen=True)
class StoredTensor:
    """A stored tensor: its element type (``F32``), its whole shape, and the slices in which it is
    stored, which cover it, each element once."""

    kind: str
    shape: Shape
    shards: tuple[StoredShard, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.elements * STORAGE_DTYPES[self.kind].itemsize

    def bits(self, box: IndexBox) -> Array:
        """Return a copy of a slice as bits; of the shards only the parts inside it are read."""
        result = np.empty(box.shape, STORAGE_DTYPES[self.kind])
        for shard in self.shards:
            if (common := shard.box.intersect(box)) is not None:
                part = shard.array()[common.slices_from(shard.box.offset)]
                result[common.slices_from(box.offset)] = part
        return result

    def iter_pieces(self, box: IndexBox, nbytes: int) -> Iterator[Array]:
        """Yield a slice as bits in C order, at most ``nbytes`` at a time."""
        for run in box.split_runs(max(1, nbytes // STORAGE_DTYPES[self.kind].itemsize)):
            yield self.bits(run)


@keep_former_members
@dataclass(frozen=True)
class Checkpoint:
    """The facts about a checkpoint that are known without reading its tensors.

    Attributes:
        path: of the file or folder.
        format: ``dualml``, ``safetensors``, ``dcp``, ``npz`` or ``trial``.
        tensors: name → tensor.
        step: number of updates made; None if unknown.
        layout, about: from its manifest.
        files: path → size and hash, of the files for which they are known.
    """

    path: Path
    format: str
    tensors: Mapping[str, StoredTensor]
    step: int | None = None
    layout: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[Path, WrittenFile] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def elements(self) -> int:
        """Elements of all tensors."""
        return sum(tensor.elements for tensor in self.tensors.values())

    def tensor(self, name: str) -> StoredTensor:
        """Return the tensor of this name.

        Raises:
            UserError: there is none of that name; the text lists similar ones.
        """
        if name not in self.tensors:
            known = sorted(self.tensors)
            some = (
                known
                if len(known) <= MAX_SUGGESTIONS
                else similar_names(name, known) or known[:MAX_SUGGESTIONS]
            )
            raise UserError(
                f"{self.path} has no tensor {escape_unprintable(name)!r}{did_you_mean(name, some)}"
            )
        return self.tensors[name]

    def read(self, name: str, where: Sequence[slice] | None = None, *, raw: bool = False) -> Array:
        """Return a copy of a tensor or of a slice of it.

        Args:
            name: of the tensor.
            where: one slice without a step for each axis; negative numbers count from the end.
            raw: return bfloat16 and 8-bit floats as bits in unsigned integers. Otherwise bfloat16
                is converted to float32, which represents all its values.

        Raises:
            UserError: there is no such tensor, a slice lies outside of it, or NumPy cannot compute
                with its type.
        """
        tensor = self.tensor(name)
        bits = tensor.bits(box_from_slices(name, tensor.shape, where))
        return bits if raw else to_numbers(tensor.kind, bits, name)

    def with_prefix(self, prefix: str) -> Checkpoint:
        """Return a checkpoint of the tensors whose names begin with ``prefix``, possibly none,
        under their names without it."""
        some = {
            name.removeprefix(prefix): tensor
            for name, tensor in self.tensors.items()
            if name.startswith(prefix)
        }
        return replace(self, tensors=some)

    def verify(self) -> None:
        """Read every file whose SHA-256 is known, and compare it; other files are not checked.

        Raises:
            UserError: a file was changed since it was written.
        """
        for path, written in self.files.items():
            try:
                there = sha256(path)
            except FileNotFoundError:
                raise replaced_error(path) from None
            if there != written.sha256:
                raise UserError(
                    f"{path}: its SHA-256 is {there[:16]}…, the manifest says "
                    f"{written.sha256[:16]}…: it was changed after it was written; take it from a "
                    "copy, or go back to an earlier checkpoint"
                )

    def check_model(self, expected: Mapping[str, Shape], whose: str) -> None:
        """Check that the checkpoint has exactly these tensors.

        Args:
            expected: name → shape.
            whose: the model they belong to, for the message.

        Raises:
            UserError: the tensors differ; the text lists names and shapes of both sides, and
                similar names.
        """
        here = {name: tensor.shape for name, tensor in self.tensors.items()}
        lost, more = sorted(expected.keys() - here.keys()), sorted(here.keys() - expected.keys())
        other = [n for n in expected if n in here and here[n] != tuple(expected[n])]
        first = other[:MAX_LISTED_NAMES]
        faults = [
            f"{escape_unprintable(n)}: {tuple(expected[n])} there, {here[n]} here" for n in first
        ]
        faults += [f"and {len(other) - MAX_LISTED_NAMES:,} more"] * (len(other) > MAX_LISTED_NAMES)
        for names, shapes, place in ((lost, expected, "there"), (more, here, "here")):
            if names:
                each = [
                    f"{escape_unprintable(n)} {tuple(shapes[n])}" for n in names[:MAX_LISTED_NAMES]
                ]
                rest = f" and {len(names) - MAX_LISTED_NAMES:,} more" * (
                    len(names) > MAX_LISTED_NAMES
                )
                faults.append(f"only {place}: {', '.join(each)}{rest}")
        pairs = [
            (name, near[0])
            for name in lost[:MAX_LISTED_NAMES]
            if (near := similar_names(name, more))
        ]
        if pairs:
            faults.append(f"near names: {', '.join(f'{a} – {b}' for a, b in pairs)}")
        if faults:
            raise UserError(
                f"{self.path} holds another model than {whose} ({len(here):,} tensors here, "
                f"{len(expected):,} there): {'; '.join(faults)}"
            )


def similar_names(name: str, known: Sequence[str]) -> list[str]:
    """Return up to three names in ``known`` that resemble ``name``; if none does, up to three that
    end with the part of ``name`` after its last ``/``, or with which ``name`` ends."""
    import difflib

    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    leaf = name.rpartition("/")[2]
    return near or [other for other in known if other.endswith(leaf) or name.endswith(other)][:3]


def box_from_slices(name: str, shape: Shape, where: Sequence[slice] | None) -> IndexBox:
    """Return the box that slices denote, as in NumPy: missing ones and None mean whole axes,
    negative numbers count from the end. Unlike there, none may lie outside.

    Raises:
        UserError: a slice has a step, is not a slice, or lies outside.
    """
    if where is None:
        return IndexBox.full(shape)
    where = tuple(where)
    if len(where) > len(shape) or any(
        not isinstance(s, slice) or s.step not in (None, 1) for s in where
    ):
        raise UserError(
            f"{name} has the shape {shape}: give at most {len(shape)} slices a:b; received {where}"
        )
    offset, counts = [], []
    for n, one in zip(shape, (*where, *[slice(None)] * (len(shape) - len(where))), strict=True):
        for end in (one.start, one.stop):
            if end is not None and not hasattr(end, "__index__"):
                raise UserError(f"{name}: {end} in {one} is no whole number")
            if end is not None and not -n <= end <= n:
                raise UserError(f"{name} has the shape {shape}; {where} lies outside")
        start, stop, _ = one.indices(n)
        offset.append(start)
        counts.append(max(0, stop - start))
    return IndexBox(tuple(offset), tuple(counts))


def make_stored_tensor(
    path: Path, name: str, kind: str, shape: Shape, shards: Sequence[StoredShard]
) -> StoredTensor:
    """Make a tensor from its slices; those without elements are dropped.

    Raises:
        UserError: they overlap, lie outside, or leave a part of it uncovered.
    """
    shown = escape_unprintable(name)
    for shard in shards:
        if not shard.box.fits(shape):
            raise UserError(f"{shard.file}: {shown}{shard.box} lies outside of its shape {shape}")
    boxes = [shard.box for shard in shards]
    if (two := find_overlap(boxes)) is not None:
        a, b = (shards[number] for number in two)
        raise UserError(
            f"{path}: {shown} is stored twice in part: {a.box} in {a.file.name} and {b.box} in "
            f"{b.file.name}"
        )
    if left := uncovered_boxes(shape, boxes, disjoint=True):
        count = sum(box.volume for box in left)
        raise UserError(
            f"{path}: {shown} {shape} is not whole: {left[0]} is in no file, {count:,} of "
            f"{math.prod(shape):,} elements in all"
        )
    there = tuple(shard for shard in shards if shard.box.volume)
    return StoredTensor(kind, shape, there)


def missing_files_error(path: Path, files: Sequence[Path], tensors: Sequence[str]) -> UserError:
    """Return the error for files that do not exist, with the tensors that are incomplete without
    them."""
    return UserError(
        f"{path}: {format_names(file.name for file in files)} "
        f"{'is' if len(files) == 1 else 'are'} missing; tensors that are not whole without: "
        f"{format_names(tensors)}; take the file from a copy, or go back to an earlier checkpoint"
    )
