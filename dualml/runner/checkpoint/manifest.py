"""The manifest ``checkpoint.json`` of a sharded checkpoint, written after every file it names.

A checkpoint is a folder. Its tensors are in a subfolder (``step00000100``), in one or more
safetensors files per rank that wrote. The manifest names the files; a new checkpoint becomes valid
when the manifest is replaced in one step.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from dualml.common.errors import UserError
from dualml.common.parse import from_json
from dualml.common.version import __version__
from dualml.experiment.store.jsonfile import Count, JsonFile, Record, Scalar, validate_record
from dualml.runner.checkpoint.disk import sync_to_disk
from dualml.runner.checkpoint.writing import WrittenFile

FILE = r"^step\d{8,19}(-\d{1,6})?/rank\d{1,6}(\.\d{1,9})?\.safetensors$"
FileName = Annotated[str, Field(pattern=FILE)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
PLACE = re.compile(r"step\d{8,19}(-\d{1,6})?")
#: Lock file held by the process that saves; it is empty, and is not removed.
LOCK = ".checkpoint.lock"
#: Pattern of the names of files that may be in a folder of tensors.
CHECKPOINT_FILES = re.compile(r"rank\d{1,6}(\.\d{1,9})?\.safetensors|\.?checkpoint\.json(\.\d+)?")


class FileRecord(Record):
    """Size in bytes and SHA-256 of a file."""

    bytes: Count
    sha256: Sha256


class TensorRecord(Record):
    """Element type and shape of a whole tensor; where its slices are is stored in their files."""

    type: str
    shape: list[Count]


class Manifest(Record):
    """The content of ``checkpoint.json``.

    Attributes:
        dualml: version that wrote it.
        step: number of updates made; None if unknown.
        layout: of the ranks that wrote it (``world_size``, ``data``, ``pipeline``, ``tensor``, …).
        about: further facts, chosen by whoever saved it.
        files: relative path → its size and hash.
        tensors: canonical name → type and shape.
    """

    dualml: str
    step: Count | None = None
    layout: dict[str, Scalar] = Field(default_factory=dict)
    about: dict[str, Any] = Field(default_factory=dict)
    files: dict[FileName, FileRecord]
    tensors: dict[str, TensorRecord]


MANIFEST = JsonFile("checkpoint.json", Manifest, version=1)


def check_describable(
    step: int | None, layout: Mapping[str, Any], about: Mapping[str, Any]
) -> None:
    """Raise `UserError` for values that a manifest cannot hold, before anything is written: a step
    that is no count, a layout of other than scalars, anything that JSON cannot hold. Keys inside
    the values of ``about`` that are no texts are accepted, and become texts."""
    given = {"step": step, "layout": dict(layout), "about": dict(about)}
    validate_record(
        Manifest, {**given, "dualml": "", "files": {}, "tensors": {}}, Path(MANIFEST.name)
    )
    for name, value in given.items():
        try:  # as its reader will; one level deeper, as it stands in the manifest
            from_json(json.dumps({name: value}, allow_nan=False).encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"{name} can hold what JSON can: {error}") from None


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder's lock inside the block, so that no other process saves into it; the folder
    is made if it is missing. A killed process releases the lock.

    Raises:
        UserError: another process saves into the folder, or it contains something else.
        OSError: it cannot be written.
    """
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    check_only_checkpoint(folder)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(
            f"another process saves into {folder} at this moment: wait for it, end it, or name "
            "another folder"
        ) from None
    except NotImplementedError:  # a file system without locks: `commit` looks at the files
        pass
    try:
        yield
    finally:
        lock.release()


def check_only_checkpoint(folder: Path) -> None:
    """Raise `UserError` for a folder without a manifest that contains anything but a lock and
    subfolders of tensors."""
    if not (folder / MANIFEST.name).exists():
        strange = [p.name for p in folder.iterdir() if p.name != LOCK and not is_step_folder(p)]
        if strange:
            raise UserError(
                f"{folder} has {sorted(strange)[0]} in it and is no checkpoint: name another folder"
            )


def make_step_folder(folder: Path, step: int) -> Path:
    """Make the subfolder for the tensors of a new checkpoint, next to those of the last valid one.

    Subfolders left by earlier writers that were killed before writing a manifest are removed.

    Raises:
        UserError: the folder contains something other than a checkpoint.
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    check_only_checkpoint(folder)
    remove_step_folders(folder, referenced_folders(folder))
    names = (f"step{step:08d}" + (f"-{n}" if n else "") for n in itertools.count())
    place = next(folder / name for name in names if not (folder / name).exists())
    place.mkdir()
    return place


def referenced_folders(folder: Path) -> set[str]:
    """Return the names of the subfolders with files of the manifest; empty without a manifest."""
    last = MANIFEST.read_if_present(folder)
    return set() if last is None else {name.partition("/")[0] for name in last.files}


def is_step_folder(path: Path) -> bool:
    """Return whether a path is a subfolder of tensors and contains nothing else."""
    return (
        PLACE.fullmatch(path.name) is not None
        and path.is_dir()
        and all(CHECKPOINT_FILES.fullmatch(inner.name) for inner in path.iterdir())
    )


def remove_step_folders(folder: Path, keep: set[str]) -> None:
    """Remove all subfolders of tensors except those called as in ``keep``; anything else in the
    folder stays."""
    for path in folder.iterdir():
        if path.name not in keep and is_step_folder(path):
            shutil.rmtree(path, ignore_errors=True)


def commit(
    place: Path,
    files: Mapping[str, WrittenFile],
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    *,
    step: int | None,
    layout: Mapping[str, Scalar],
    about: Mapping[str, Any],
) -> None:
    """Make the files in ``place`` the valid checkpoint of its parent folder, and remove that
    folder's other subfolders of tensors.

    Args:
        place: the subfolder of the tensors.
        files: name inside ``place`` → size and hash.
        tensors: name → type and shape.
        step: number of updates made; None if unknown.
        layout, about: as in `Manifest`.

    Raises:
        UserError: a file was changed after it was written, or the manifest cannot be read back.
    """
    folder = place.parent
    manifest = MANIFEST.make_record(
        {
            "dualml": __version__,
            "step": step,
            "layout": dict(layout),
            "about": dict(about),
            "files": {f"{place.name}/{name}": vars(file) for name, file in files.items()},
            "tensors": {n: {"type": kind, "shape": shape} for n, (kind, shape) in tensors.items()},
        }
    )
    for name, file in files.items():
        path = place / name
        if not path.is_file() or path.stat().st_size != file.bytes:
            raise UserError(
                f"{path} is not as it was written: another process has changed the folder"
            )
    sync_to_disk(place)
    MANIFEST.write(place, manifest)
    MANIFEST.read(place)  # an unreadable manifest must not replace the last valid one
    sync_to_disk(place / MANIFEST.name)
    os.replace(place / MANIFEST.name, folder / MANIFEST.name)
    sync_to_disk(folder)
    sync_to_disk(folder.parent)
    remove_step_folders(folder, {place.name})
