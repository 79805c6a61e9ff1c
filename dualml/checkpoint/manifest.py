"""``checkpoint.json``: what a sharded checkpoint is, written after everything that it names.

A checkpoint is a folder. Its tensors stand in a folder of their own inside (``step00000100``), one
safetensors file or more for each rank that wrote. The manifest names the files; replacing it, in
one step, is what makes a new checkpoint of them.
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

from dualml.checkpoint.disk import synced
from dualml.checkpoint.writing import Written
from dualml.errors import UserError
from dualml.parse import from_json
from dualml.store.jsonfile import Count, JsonFile, Record, Scalar, checked
from dualml.version import __version__

FILE = r"^step\d{8,19}(-\d{1,6})?/rank\d{1,6}(\.\d{1,9})?\.safetensors$"
FileName = Annotated[str, Field(pattern=FILE)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
PLACE = re.compile(r"step\d{8,19}(-\d{1,6})?")
#: Held by the one that saves; empty, and left where it is.
LOCK = ".checkpoint.lock"
#: What may be in such a folder.
OWN = re.compile(r"rank\d{1,6}(\.\d{1,9})?\.safetensors|\.?checkpoint\.json(\.\d+)?")


class FileRecord(Record):
    """Of a file."""

    bytes: Count
    sha256: Sha256


class TensorRecord(Record):
    """Of a whole tensor; where its slices are, their files say."""

    type: str
    shape: list[Count]


class Manifest(Record):
    """What the checkpoint is of.

    Attributes:
        step: updates made; None: unknown.
        layout: of the ranks that wrote it (``world_size``, ``data``, ``pipeline``, ``tensor``, …).
        about: what else who saved it wants to know of it.
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


def check(step: int | None, layout: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Raises `UserError` for what a manifest cannot say, before anything is written."""
    given = {"step": step, "layout": dict(layout), "about": dict(about)}
    checked(Manifest, {**given, "dualml": "", "files": {}, "tensors": {}}, Path(MANIFEST.name))
    for name, value in given.items():
        try:  # as its reader will; one level deeper, as it stands in the manifest
            from_json(json.dumps({name: value}, allow_nan=False).encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"{name} can hold what JSON can: {error}") from None


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else saves into the folder meanwhile; a process that is killed lets go of it.

    Raises:
        UserError: another one does, or the folder has something else in it.
        OSError: it cannot be written.
    """
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    check_own(folder)
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


def check_own(folder: Path) -> None:
    """Raises `UserError` for a folder that has something else in it."""
    if not (folder / MANIFEST.name).exists():
        strange = [p.name for p in folder.iterdir() if p.name != LOCK and not is_place(p)]
        if strange:
            raise UserError(
                f"{folder} has {sorted(strange)[0]} in it and is no checkpoint: name another folder"
            )


def prepare(folder: Path, step: int) -> Path:
    """Make the folder for the tensors of a new checkpoint, beside those of the last good one.

    What earlier writers left that were ended before their manifest is removed.

    Raises:
        UserError: the folder has something else in it.
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    check_own(folder)
    forget(folder, kept(folder))
    names = (f"step{step:08d}" + (f"-{n}" if n else "") for n in itertools.count())
    place = next(folder / name for name in names if not (folder / name).exists())
    place.mkdir()
    return place


def kept(folder: Path) -> set[str]:
    """The folders that the manifest names."""
    last = MANIFEST.read_if_there(folder)
    return set() if last is None else {name.partition("/")[0] for name in last.files}


def is_place(path: Path) -> bool:
    """Whether it is a folder of tensors, with nothing in it that a checkpoint has not."""
    return (
        PLACE.fullmatch(path.name) is not None
        and path.is_dir()
        and all(OWN.fullmatch(inner.name) for inner in path.iterdir())
    )


def forget(folder: Path, keep: set[str]) -> None:
    """Remove folders of tensors but for these."""
    for path in folder.iterdir():
        if path.name not in keep and is_place(path):
            shutil.rmtree(path, ignore_errors=True)


def commit(
    place: Path,
    files: Mapping[str, Written],
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    *,
    step: int | None,
    layout: Mapping[str, Scalar],
    about: Mapping[str, Any],
) -> None:
    """Make the files in ``place`` the checkpoint of the folder that it is in.

    Args:
        files: name inside ``place`` → what was written.
        tensors: name → type and shape.

    Raises:
        UserError: a file is not as it was written, or the manifest is none that can be read.
    """
    folder = place.parent
    manifest = MANIFEST.made(
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
    synced(place)
    MANIFEST.write(place, manifest)
    MANIFEST.read(place)  # what its reader refuses must not take the place of the last good one
    synced(place / MANIFEST.name)
    os.replace(place / MANIFEST.name, folder / MANIFEST.name)
    synced(folder)
    synced(folder.parent)
    forget(folder, {place.name})
