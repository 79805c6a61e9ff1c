"""Locations of a dataset's files on this machine, and the check of the files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dualml.common.errors import UserError
from dualml.common.files import write_bytes
from dualml.common.machine import cache_dir
from dualml.experiment.data import archive, cifar, idx
from dualml.experiment.data.registry import DatasetInfo, IdxFile, RecordFile, RecordInfo

Kind = Literal["env", "cache"]


@dataclass(frozen=True)
class DatasetFolder:
    """A folder with the files of one dataset; ``kind`` says how it was found."""

    kind: Kind
    folder: Path


def env_dir() -> Path | None:
    """Return the folder ``DUALML_DATA``, or None if the variable is unset or empty.

    Raises:
        UserError: the variable names no folder.
    """
    chosen = os.environ.get("DUALML_DATA")
    if not chosen:
        return None
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise UserError(
            f"DUALML_DATA={chosen} is not a folder; remedy: name a folder that holds mnist/, "
            "or unset DUALML_DATA"
        )
    return folder


def locate(info: DatasetInfo) -> DatasetFolder | None:
    """Return the first folder that holds all of the dataset's files (`find_dataset_file`): in
    ``DUALML_DATA``, then in the cache; None if there is none. Contents are not checked.

    A cache that lacks some files is an interrupted download and counts as empty.

    Raises:
        UserError: ``DUALML_DATA`` names no folder, or holds some of the files but not all of them.
    """
    env = env_dir()
    places = [] if env is None else [DatasetFolder("env", env / name) for name in info.folders]
    for place in [*places, DatasetFolder("cache", cache_folder(info))]:
        there = [file for file in info.files if find_dataset_file(place.folder, file) is not None]
        if len(there) == len(info.files) > 0:
            return place
        if there and place.kind == "env":
            missing = [file.name for file in info.files if file not in there]
            raise UserError(
                f"{place.folder} is incomplete: expected {len(info.files)} files, found "
                f"{len(there)}; missing: {', '.join(missing)}; remedy: {info.env_remedy}"
            )
    return None


def cache_folder(info: DatasetInfo) -> Path:
    """Return the path of the dataset's folder in the cache, which may not exist."""
    return cache_dir() / info.folders[0]


def find_file(folder: Path, name: str) -> Path | None:
    """Return the path of the file ``name`` in ``folder`` or, if there is none, of ``name.gz``; None
    if both are missing."""
    paths = (folder / name, folder / f"{name}.gz")
    return next((path for path in paths if path.is_file()), None)


def find_dataset_file(folder: Path, file: IdxFile | RecordFile) -> Path | None:
    """Return the path of a dataset's file in ``folder``: an IDX file also as ``.gz``, a record file
    plain; None if it is missing."""
    if isinstance(file, IdxFile):
        return find_file(folder, file.name)
    return folder / file.name if (folder / file.name).is_file() else None


def read_verified(
    path: Path, file: IdxFile | RecordFile, remedy: str, packed: bytes | None = None
) -> bytes:
    """Return the uncompressed bytes of ``path`` after all checks against ``file``.

    Args:
        path: an IDX file, plain or gzip, or a record file, which must be plain; with ``packed``,
            only its name.
        remedy: what the user should do about a bad file, for error messages.
        packed: the file's content, if it is in memory and was never written to disk; else None.

    Raises:
        UserError: no gzip or IDX file, cut off, another shape, or another checksum.
    """
    if isinstance(file, RecordFile):
        return cifar.read_verified_records(path, file, remedy, packed)
    data = idx.read_unpacked(path, remedy, packed, file.size)
    shape = file.shape
    idx.parse(data, path, dtype="uint8", ndim=len(shape), shape=shape, remedy=remedy)
    idx.check_digest(path, data, file.checksum, remedy, " (of the uncompressed bytes)")
    return data


def verify_files(
    info: DatasetInfo, folder: Path, remedy: str
) -> list[tuple[IdxFile | RecordFile, Path, str | None]]:
    """Check every file of a dataset in ``folder``; return, in the registry's order, (file, its
    path, its problem, which ends with ``remedy``, or None)."""
    report: list[tuple[IdxFile | RecordFile, Path, str | None]] = []
    for file in info.files:
        path, problem = find_dataset_file(folder, file) or folder / file.name, None
        try:
            if not path.is_file():
                raise idx.file_error(path, "is missing", remedy)
            read_verified(path, file, remedy)
        except UserError as error:
            problem = str(error)
        report.append((file, path, problem))
    return report


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file into the cache atomically, even if two processes write it at once; make its
    folder and replace an old file.

    Raises:
        UserError: the folder cannot be written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}; remedy: set DUALML_CACHE to a folder "
            "you can write to"
        ) from None


def import_files(info: DatasetInfo, source: Path) -> Path:
    """Copy the dataset's files from the folder ``source``, or from their archive in it, into the
    cache, checked and uncompressed, and return the folder in the cache. Nothing is written unless
    all files are good.

    Raises:
        UserError: ``source`` is no folder, a file is missing or bad, or the cache cannot be
            written.
    """
    if not source.is_dir():
        raise UserError(f"{source} is not a folder; remedy: name the one with the files")
    if isinstance(info, RecordInfo) and (packed := source / info.archive).is_file():
        members = archive.read_archive(info, packed, "take another copy")
        for name, data in members.items():
            write_atomic(cache_folder(info) / name, data)
        return cache_folder(info)
    for name in info.folders:  # a folder laid out like DUALML_DATA
        source = source / name if (source / name).is_dir() else source
    paths = {file: find_dataset_file(source, file) for file in info.files}
    missing = [file.name for file, path in paths.items() if path is None]
    if missing:
        forms = " (plain or .gz)" if isinstance(info.files[0], IdxFile) else ""
        raise UserError(
            f"{source} is incomplete: expected {len(paths)} files, found "
            f"{len(paths) - len(missing)}; missing{forms}: {', '.join(missing)}"
        )
    good = {f: read_verified(p, f, "take another copy") for f, p in paths.items() if p is not None}
    folder = cache_folder(info)
    for file, data in good.items():
        write_atomic(folder / file.name, data)
    return folder
