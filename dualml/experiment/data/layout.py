"""IDX files arranged for a framework's own reader, without touching the user's folder."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from dualml.common.machine import cache_dir
from dualml.experiment.data import idx
from dualml.experiment.data.locations import find_file, write_atomic
from dualml.experiment.data.registry import FILE_NAMES


def plain_folder(folder: Path) -> Path:
    """Return a folder with the four uncompressed IDX files of ``folder``.

    This is ``folder`` itself if nothing in it is compressed, else a copy in the cache that is made
    again when a file changes. Frameworks read the bytes blindly, so each file is parsed here.

    Raises:
        UserError: a file is missing or damaged.
    """
    folder = folder.resolve()
    paths = [find_idx_file(folder, name) for name in FILE_NAMES]
    if [path.name for path in paths] == list(FILE_NAMES):
        for path in paths:
            idx.read(path)
        return folder
    copy = cache_dir() / "unpacked" / cache_key(paths)
    for name, path in zip(FILE_NAMES, paths, strict=True):
        if not (copy / name).is_file():
            data = idx.read_unpacked(path)
            idx.parse(data, path)
            write_atomic(copy / name, data)
    return copy


def raw_folder(folder: Path, dataset: str) -> Path:
    """Return a folder in the cache, made if needed, with ``<dataset>/raw/`` that links to the
    uncompressed files of ``folder``.

    Args:
        dataset: torchvision's name, ``MNIST`` or ``FashionMNIST``.

    Raises:
        UserError: as for `plain_folder`.
    """
    plain = plain_folder(folder)
    paths = [plain / name for name in FILE_NAMES]
    root = cache_dir() / "raw" / cache_key(paths)
    for path in paths:
        link_or_copy(path, root / dataset / "raw" / path.name)
    return root


def find_idx_file(folder: Path, name: str) -> Path:
    """Return the path of the file ``name`` in ``folder`` or, if there is none, of ``name.gz``;
    raise `UserError` if both are missing."""
    path = find_file(folder, name)
    if path is None:
        raise idx.file_error(folder / name, "is missing, and so is its .gz")
    return path


def cache_key(paths: list[Path]) -> str:
    """Return a folder name, 16 hexadecimal digits, from path, size and modification time of each
    file."""
    facts = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def link_or_copy(target: Path, name: Path) -> None:
    """Make ``name`` a symbolic link to ``target``, or a copy if the system has no links, with its
    parent folders; leave an existing file."""
    if name.exists():
        return
    name.parent.mkdir(parents=True, exist_ok=True)
    try:
        name.unlink(missing_ok=True)  # a link whose target is gone
        name.symlink_to(target)
    except FileExistsError:  # another process was faster
        return
    except OSError:
        shutil.copyfile(target, name)
