"""Convert a checkpoint to another format or another number of files, piece by piece.

The output is written next to its target under a temporary name, and renamed when it is complete and
on disk. An interruption leaves nothing under the requested name.
"""

from __future__ import annotations

import functools
import glob
import os
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from dualml.algorithms.communicator.parts import part_lengths
from dualml.common.errors import UserError, did_you_mean
from dualml.common.files import write_json
from dualml.runner.checkpoint import npz, writing
from dualml.runner.checkpoint.boxes import IndexBox
from dualml.runner.checkpoint.disk import FULL, check_free_space, describe_write_error, sync_to_disk
from dualml.runner.checkpoint.manifest import commit, make_step_folder
from dualml.runner.checkpoint.sharded import file_metadata
from dualml.runner.checkpoint.sources import INDEX, PICKLES, is_part
from dualml.runner.checkpoint.stored_checkpoint import Checkpoint, Shape, StoredTensor
from dualml.runner.checkpoint.writing import PlannedTensor, WrittenFile

#: Bytes read at once.
READ_CHUNK_BYTES = 8 * 2**20
MAX_SHARDS = 100_000
#: Bytes needed beyond the tensors, for headers and manifests.
METADATA_BYTES = 64 * 2**10


def convert(source: Checkpoint, target: Path | str, to: str = "", shards: int | None = None) -> str:
    """Write all tensors of a checkpoint in another format, bit for bit.

    Args:
        source: the checkpoint to read.
        target: a new file or folder.
        to: one of `TARGETS`; by default derived from the name of ``target``, else ``dualml``.
        shards: largest number of files. Tensors are split along their first axis in ``dualml`` and
            ``dcp``; in ``safetensors`` they stay whole. 1 by default.

    Returns:
        The format.

    Raises:
        UserError: ``to`` or ``shards`` is invalid; the target exists already (an empty folder may,
            for a folder), has a name that its reader would not accept, or lies in the source; the
            disk is full, a file of the source was changed, or the format does not support the dtype
            or the name of a tensor.
    """
    target = Path(target)
    to = to or {".safetensors": "safetensors", ".npz": "npz"}.get(target.suffix, "dualml")
    if to not in TARGETS:
        raise UserError(f"--to {to!r}{did_you_mean(to, TARGETS)}")
    single = to == "npz" or (to == "safetensors" and target.suffix == ".safetensors")
    count = 1 if shards is None else shards
    if not 1 <= count <= MAX_SHARDS:
        raise UserError(f"--shards is from 1 to {MAX_SHARDS:,}; received {count}")
    if single and count > 1:
        raise UserError(
            f"{target} is one file and --shards is {count}: name a folder, with --to safetensors"
        )
    check_target(source, target, single)
    source.verify()
    target.absolute().parent.mkdir(parents=True, exist_ok=True)
    check_free_space(target.absolute().parent, source.nbytes + METADATA_BYTES)
    remove_leftovers(target.absolute())
    fresh = target.absolute().with_name(f"{temporary_prefix(target.absolute())}{os.getpid()}")
    try:
        TARGETS[to](source, fresh, count if not single else 0)
        if fresh.is_dir():
            sync_to_disk(fresh)
        os.replace(fresh, target)
        sync_to_disk(target.absolute().parent)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise UserError(f"{describe_write_error(error, target)}; nothing is left of it") from None
    finally:
        remove_tree(fresh)
    return to


def check_target(source: Checkpoint, target: Path, single: bool) -> None:
    """Raise `UserError` for a target that must not be written, or not under that name; an empty
    folder may be replaced by a new one, unless ``single``: the target is a file."""
    empty = not single and not target.is_symlink() and target.is_dir() and not any(target.iterdir())
    if empty and target.samefile(Path.cwd()):
        raise UserError(f"{target} is the folder you are in: name a new one")
    if os.path.lexists(target) and not empty:
        raise UserError(f"{target} is there already: name another one, or remove it")
    if single and (is_part(target.name) or target.suffix in PICKLES):
        raise UserError(
            f"{target.name} is what a file of another kind is called, or one of several: name "
            "another one"
        )
    if source.path.is_dir() and target.resolve().is_relative_to(source.path.resolve()):
        raise UserError(f"{target} lies in {source.path}, which is read: name another place")


def temporary_prefix(target: Path) -> str:
    """Return the beginning of the name under which ``target`` is written before it is renamed; the
    process id follows it."""
    return f".{target.name}.dualml-{socket.gethostname()}-"


def remove_leftovers(target: Path) -> None:
    """Remove temporary files of this target left by processes of this host that were killed.

    A file with this process's own id comes from an earlier process: ids repeat in containers.
    """
    for path in target.parent.glob(f"{glob.escape(temporary_prefix(target))}*"):
        number = path.name.removeprefix(temporary_prefix(target))
        if not number.isdecimal() or len(number) > 9:
            continue
        if int(number) == os.getpid() or not psutil.pid_exists(int(number)):
            remove_tree(path)


def remove_tree(path: Path) -> None:
    """Remove a folder with its content, or a file, if it exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def plan_tensor(tensor: StoredTensor, box: IndexBox) -> PlannedTensor:
    """Describe a slice of a stored tensor as a tensor to be written, read piece by piece."""
    return PlannedTensor(
        tensor.kind, box.shape, functools.partial(tensor.iter_pieces, box, READ_CHUNK_BYTES)
    )


def plan_whole_tensors(source: Checkpoint, names: Sequence[str]) -> dict[str, PlannedTensor]:
    """Return the tensors ``names`` of a checkpoint, each unsplit, as tensors to be written."""
    return {
        n: plan_tensor(source.tensors[n], IndexBox.full(source.tensors[n].shape)) for n in names
    }


def to_safetensors(source: Checkpoint, fresh: Path, count: int) -> None:
    """Write all tensors, each whole, into the new file ``fresh`` if ``count`` is 0; else into the
    new folder ``fresh`` in Hugging Face's layout, with at most ``count`` files and, for several,
    their index."""
    if count == 0:
        writing.write_safetensors(
            fresh,
            plan_whole_tensors(source, list(source.tensors)),
            file_metadata(None, source.step, 1),
        )
        return
    fresh.mkdir()
    files = assign_to_files(source, count)
    names = [f"model-{n:05}-of-{len(files):05}.safetensors" for n in range(1, len(files) + 1)]
    names = names if len(files) > 1 else ["model.safetensors"]
    about = file_metadata(None, source.step, len(files))
    for name, own in zip(names, files, strict=True):
        writing.write_safetensors(fresh / name, plan_whole_tensors(source, own), about)
    places = {n: name for name, own in zip(names, files, strict=True) for n in own}
    if len(files) == 1:
        return
    index = {"metadata": {"total_size": source.nbytes}, "weight_map": places}
    write_json(fresh / INDEX, index)
    sync_to_disk(fresh / INDEX)


def assign_to_files(source: Checkpoint, count: int) -> list[list[str]]:
    """Assign whole tensors, in their order, to at most ``count`` files of nearly equal size; return
    the names of the tensors in each. No file is empty, unless there are no tensors."""
    files: list[list[str]] = [[] for _ in range(count)]
    at, total = 0, max(1, source.nbytes)
    for name, tensor in source.tensors.items():
        middle = at + tensor.nbytes / 2
        files[min(count - 1, int(middle * count / total))].append(name)
        at += tensor.nbytes
    return [names for names in files if names] or [[]]


def slice_for_files(source: Checkpoint, count: int) -> list[dict[str, IndexBox]]:
    """Return, for each of at most ``count`` files, its slice of each tensor: nearly equal parts
    along the first axis, at most one per tensor. A tensor with fewer rows than files, a scalar or
    one without elements is in some of the files only; no file is empty."""
    files: list[dict[str, IndexBox]] = [{} for _ in range(count)]
    for number, (name, tensor) in enumerate(source.tensors.items()):
        if not tensor.elements or not tensor.shape or count == 1:
            files[number % count][name] = IndexBox.full(tensor.shape)
            continue
        first = 0
        for file, rows in zip(files, part_lengths(tensor.shape[0], count), strict=True):
            if rows:
                file[name] = IndexBox.full(tensor.shape).narrow(0, first, first + rows)
                first += rows
    return [file for file in files if file] or [{}]


def write_sliced(
    source: Checkpoint, folder: Path, count: int, name_of: Callable[[int], str]
) -> dict[str, WrittenFile]:
    """Write the tensors split over at most ``count`` files; return file name → size and hash.

    ``name_of`` returns the name of a file for its number, from 0.
    """
    files, written = slice_for_files(source, count), {}
    for number, boxes in enumerate(files):
        tensors = {name: plan_tensor(source.tensors[name], box) for name, box in boxes.items()}
        shapes = {name: (box, source.tensors[name].shape) for name, box in boxes.items()}
        about = file_metadata(shapes, source.step, len(files))
        written[name_of(number)] = writing.write_safetensors(
            folder / name_of(number), tensors, about
        )
    return written


def to_dualml(source: Checkpoint, fresh: Path, count: int) -> None:
    """Write a checkpoint into the folder ``fresh`` in dualml's own format: tensors split over at
    most ``count`` files, and a manifest."""
    place = make_step_folder(fresh, source.step or 0)
    files = write_sliced(source, place, count, lambda number: f"rank{number}.safetensors")
    tensors: Mapping[str, tuple[str, Shape]]
    tensors = {name: (tensor.kind, tensor.shape) for name, tensor in source.tensors.items()}
    layout = {"world_size": len(files)}
    commit(place, files, tensors, step=source.step, layout=layout, about=source.about)


def to_dcp(source: Checkpoint, fresh: Path, count: int) -> None:
    """Write the new folder ``fresh`` for `torch.distributed.checkpoint`: tensors split over at most
    ``count`` files, with the names that torch's safetensors writer uses for several ranks."""
    fresh.mkdir()
    write_sliced(
        source, fresh, count, lambda n: f"shard-{n + 1:05}-model-00001-of-00001.safetensors"
    )


def to_npz(source: Checkpoint, fresh: Path, count: int) -> None:
    """Write all tensors of a checkpoint into the new NumPy archive ``fresh``; ``count`` has no
    effect."""
    npz.write_archive(fresh, plan_whole_tensors(source, list(source.tensors)))


#: Format → function that writes it into a new file or folder.
TARGETS: dict[str, Callable[[Checkpoint, Path, int], None]] = {
    "dualml": to_dualml,
    "safetensors": to_safetensors,
    "dcp": to_dcp,
    "npz": to_npz,
}
