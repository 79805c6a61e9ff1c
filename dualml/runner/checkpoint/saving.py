"""Save a checkpoint from all ranks: each writes its slices, then rank 0 writes the manifest."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.common.errors import UserError, escape_unprintable
from dualml.common.json_types import JsonMapping
from dualml.experiment.store.jsonfile import Scalar
from dualml.parallel.split.shards import all_gather_arrays
from dualml.runner.checkpoint.boxes import IndexBox, find_overlap, uncovered_boxes
from dualml.runner.checkpoint.disk import check_free_space, describe_write_error
from dualml.runner.checkpoint.kinds import STORAGE_DTYPES, Array
from dualml.runner.checkpoint.manifest import (
    MANIFEST,
    check_describable,
    commit,
    lock_folder,
    make_step_folder,
    referenced_folders,
)
from dualml.runner.checkpoint.sharded import file_metadata
from dualml.runner.checkpoint.slices import Slice
from dualml.runner.checkpoint.stored_checkpoint import Shape
from dualml.runner.checkpoint.writing import PlannedTensor, WrittenFile, write_safetensors

#: Bytes that are copied at once from an array that is not contiguous.
COPY_CHUNK_BYTES = 8 * 2**20


class SliceInfo(NamedTuple):
    """Description of a slice that ranks exchange: name, element type, shape of the whole, box."""

    name: str
    kind: str
    shape: Shape
    box: IndexBox

    @classmethod
    def from_numbers(cls, name: str, kind: str, *numbers: Sequence[int]) -> SliceInfo:
        """Make the description from its JSON form: ``numbers`` are the whole shape, the offset and
        the slice's shape."""
        whole, offset, own = map(tuple, numbers)
        return cls(name, kind, whole, IndexBox(offset, own))

    @property
    def nbytes(self) -> int:
        """Bytes of the slice."""
        return self.box.volume * STORAGE_DTYPES[self.kind].itemsize


def save(
    comm: Communicator,
    slices: Iterable[Slice],
    folder: Path | str,
    *,
    step: int,
    layout: Mapping[str, Scalar] | None = None,
    about: JsonMapping | None = None,
) -> None:
    """Save what all ranks hold; every rank calls this with the same folder.

    A slice that several ranks hold is written by one of them. The checkpoint already in the folder
    stays valid until all ranks have written and the manifest is replaced; then it is removed. An
    interruption at any moment leaves one of the two.

    Args:
        comm: the communicator of the ranks.
        slices: of this rank; the slices of all ranks together cover every tensor.
        folder: the same for all ranks; created if it does not exist.
        step: number of updates made.
        layout: of the ranks; ``world_size`` is added.
        about: JSON values to store with it.

    Raises:
        UserError: on every rank: slices overlap or leave something uncovered, the folder cannot be
            written, another process saves into it, or the disk is full.
    """
    with contextlib.ExitStack() as held:
        save_locked(comm, slices, Path(folder), step, layout or {}, about or {}, held)


def save_locked(
    comm: Communicator,
    slices: Iterable[Slice],
    folder: Path,
    step: int,
    layout: Mapping[str, Scalar],
    about: Mapping[str, Any],
    held: contextlib.ExitStack,
) -> None:
    """Save the slices as `save` does; rank 0 holds the folder's lock until the caller closes
    ``held``. All ranks call it."""
    own: list[Slice] = []
    rank = comm.rank

    def collect_slices() -> tuple[list[Any], str]:
        check_describable(step, layout, about)
        own.extend(slices)
        described = [(s.name, s.kind, s.shape, s.offset, s.array.shape) for s in own]
        if rank:
            return described, ""
        held.enter_context(lock_folder(folder))
        return described, make_step_folder(folder, step).name

    answers = gather_results(comm, folder, collect_slices)
    place = folder / answers[0][1]
    try:
        ranks = [[SliceInfo.from_numbers(*described) for described in each] for each, _ in answers]
        tensors, deal = merge_slices(ranks), assign_writers(ranks)
        parts = [
            split_into_files([ranks[r][i].name for i in owned]) for r, owned in enumerate(deal)
        ]
        count = sum(map(len, parts))

        def write_files() -> dict[str, dict[str, Any]]:
            if rank == 0:
                each = (ranks[r][i].nbytes for r, owned in enumerate(deal) for i in owned)
                check_free_space(place, sum(each))
            files = {}
            for number, part in enumerate(parts[rank]):
                name = f"rank{rank}.{number}.safetensors" if number else f"rank{rank}.safetensors"
                chosen = [own[deal[rank][i]] for i in part]
                files[name] = vars(write_slices(place / name, chosen, step, count))
            return files

        written = gather_results(comm, folder, write_files)

        def commit_manifest() -> None:
            files = {n: WrittenFile(**w) for each in written for n, w in each.items()}
            whose = {**layout, "world_size": comm.size}
            commit(place, files, tensors, step=step, layout=whose, about=about)

        gather_results(comm, folder, commit_manifest if rank == 0 else lambda: None)
    except UserError:
        if rank == 0 and place.name not in referenced_folders(folder):
            shutil.rmtree(place, ignore_errors=True)
        raise


def gather_results(comm: Communicator, folder: Path, work: Callable[[], object]) -> list[Any]:
    """Run ``work`` on every rank and return the results of all ranks, in the order of ranks, on
    each of them; they pass through JSON. If it fails on one rank, all fail. All ranks call it.

    Args:
        comm: the communicator of the ranks.
        folder: of the checkpoint, for the message.
        work: called without arguments; its result must be JSON-serializable.

    Raises:
        UserError: with the number of the rank that failed, and its reason.
    """
    value: object = None
    fault, cause = "", None
    try:
        value = work()
    except Exception as error:  # whatever it is, the others wait for a word of this rank
        fault, cause = describe_write_error(error, folder), error
    text = np.frombuffer(json.dumps([value, fault]).encode(), np.uint8)
    answers = [
        json.loads(each["text"].tobytes()) for each in all_gather_arrays(comm, {"text": text})
    ]
    for rank, (_, fault) in enumerate(answers):
        if fault:
            raise UserError(f"rank {rank}: {fault}; {describe_last_checkpoint(folder)}") from cause
    return [value for value, _ in answers]


def describe_last_checkpoint(folder: Path) -> str:
    """Return the part of an error message that says which earlier checkpoint is still valid, or
    that there was none."""
    last = MANIFEST.read_if_present(folder)
    if last is None:
        return "there was no checkpoint before"
    return f"the checkpoint of step {last.step} in {folder} is as it was"


def merge_slices(ranks: Sequence[Sequence[SliceInfo]]) -> dict[str, tuple[str, Shape]]:
    """Merge the ranks' slices: return the element type and shape of every tensor.

    Raises:
        UserError: ranks disagree, their slices overlap without being equal, or something is
            uncovered.
    """
    tensors: dict[str, tuple[str, Shape]] = {}
    boxes: dict[str, dict[IndexBox, int]] = {}
    first: dict[str, int] = {}
    for rank, held in enumerate(ranks):
        for name, kind, shape, box in held:
            known = tensors.setdefault(name, (kind, shape))
            if known != (kind, shape):
                raise UserError(
                    f"{escape_unprintable(name)} is {known[0]} {known[1]} on rank {first[name]} "
                    f"and {kind} {shape} on rank {rank}"
                )
            first.setdefault(name, rank)
            boxes.setdefault(name, {}).setdefault(box, rank)
    for name, (_, shape) in tensors.items():
        there = list(boxes[name])
        if (two := find_overlap(there)) is not None:
            a, b = (f"{there[i]} of rank {boxes[name][there[i]]}" for i in two)
            raise UserError(
                f"{escape_unprintable(name)} {shape}: the slices {a} and {b} overlap in part"
            )
        if left := uncovered_boxes(shape, there, disjoint=True):
            raise UserError(f"{escape_unprintable(name)} {shape}: no rank holds {left[0]}")
    return tensors


def assign_writers(ranks: Sequence[Sequence[SliceInfo]]) -> list[list[int]]:
    """Assign every slice to one rank that writes it; return, per rank, the indices of its slices.

    Of equal slices one is written, by the rank that has least to write so far; large slices are
    assigned first, and the lowest rank wins a tie. Slices without elements are left out, unless
    their whole tensor has none.
    """
    holders: dict[tuple[str, IndexBox], list[tuple[int, int]]] = {}
    for rank, held in enumerate(ranks):
        there = set()
        for number, one in enumerate(held):
            key = (one.name, one.box)
            if key not in there and (one.box.volume or not math.prod(one.shape)):
                holders.setdefault(key, []).append((rank, number))
                there.add(key)
    deal: list[list[int]] = [[] for _ in ranks]
    load = [0] * len(ranks)

    def size(places: list[tuple[int, int]]) -> int:
        rank, number = places[0]
        return ranks[rank][number].nbytes

    for places in sorted(holders.values(), key=lambda p: (len(p) > 1, -size(p))):
        rank, number = min(places, key=lambda place: (load[place[0]], place[0]))
        deal[rank].append(number)
        load[rank] += size(places)
    return [sorted(own) for own in deal]


def split_into_files(names: Sequence[str]) -> list[list[int]]:
    """Group slices by file, so that a file holds at most one slice of each tensor, under the
    tensor's name. ``names`` has the tensor of each slice; return, per file, the indices of its
    slices."""
    parts: list[list[int]] = []
    count: dict[str, int] = {}
    for number, name in enumerate(names):
        part = count[name] = count.get(name, -1) + 1
        if part == len(parts):
            parts.append([])
        parts[part].append(number)
    return parts


def write_slices(path: Path, slices: Sequence[Slice], step: int, files: int) -> WrittenFile:
    """Write a safetensors file of slices, with their positions, ``step`` and the number of
    ``files`` as metadata; return its size and hash."""
    planned = {s.name: PlannedTensor(s.kind, s.array.shape, piece_reader(s.array)) for s in slices}
    return write_safetensors(
        path, planned, file_metadata({s.name: (s.box, s.shape) for s in slices}, step, files)
    )


def piece_reader(array: Array) -> Callable[[], Iterator[Array]]:
    """Return a function that yields an array in pieces of at most `COPY_CHUNK_BYTES`, in C order;
    each call begins anew."""

    def pieces() -> Iterator[Array]:
        for box in IndexBox.full(array.shape).split_runs(COPY_CHUNK_BYTES // array.itemsize):
            yield array[box.slices]

    return pieces
