"""Temporary copies of a user's folders in which some files have other texts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Folders whose contents belong to the original files.
EXCLUDED_FOLDERS = ("__pycache__",)


def copy_root(file: Path) -> Path:
    """Return the folder that has to be copied so that a file's imports of its neighbours work: the
    file's own folder, or, if that is a package, the folder that contains the outermost package."""
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        folder = folder.parent
    return folder


def link_tree(source: Path, target: Path, texts: Mapping[Path, bytes]) -> None:
    """Make the folder ``target`` with the entries of ``source``: links to all of them, except for
    files that get another content, which are written, and the folders above these, which are made.
    ``__pycache__`` and existing entries are skipped.

    Args:
        texts: file below ``source`` → its content in the copy.
    """
    target.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(source):
        path, copy = Path(entry.path), target / entry.name
        if entry.name in EXCLUDED_FOLDERS or copy.exists():
            continue
        if path in texts:
            copy.write_bytes(texts[path])
        elif any(path in file.parents for file in texts):
            link_tree(path, copy, texts)
        else:
            link(path, copy)


def link(path: Path, copy: Path) -> None:
    """Make a symbolic link ``copy`` to the file or folder ``path``, or a real copy where links are
    not allowed."""
    try:
        copy.symlink_to(path)
    except OSError:
        if path.is_dir():
            shutil.copytree(path, copy)
        else:
            shutil.copy2(path, copy)


class PatchedCopy:
    """Copies of the folders of patched files, made at once; files that are not patched are links.

    Args:
        home: an empty folder for the copies.
        texts: file → its content in the copy.
    """

    def __init__(self, home: Path, texts: Mapping[Path, bytes]) -> None:
        self.roots: dict[Path, Path] = {}
        for number, root in enumerate(sorted({copy_root(file) for file in texts})):
            if any(other in root.parents for other in self.roots):
                continue
            self.roots[root] = home / str(number)
            below = {file: data for file, data in texts.items() if root in file.parents}
            link_tree(root, self.roots[root], below)

    def locate(self, path: str | None) -> str | None:
        """Return where the copy of a file or folder is; a path outside the copied folders, or None,
        is returned unchanged."""
        if path is None:
            return None
        real = Path(os.path.realpath(path))
        for root, copy in self.roots.items():
            if real == root or root in real.parents:
                return str(copy / real.relative_to(root))
        return path

    def adapt_job(self, job: Mapping[str, Any], side: str) -> dict[str, Any]:
        """Return a copy of a comparison's job in which one side reads the patched files.

        Args:
            side: letter of the side.
        """
        own = dict(job["sides"][side])
        for key in ("model", "loss", "optimizer"):
            if isinstance(own.get(key), dict) and own[key].get("file"):
                own[key] = {**own[key], "file": self.locate(own[key]["file"])}
        copies = [str(copy) for copy in self.roots.values()]
        if "path" in own:
            own["path"] = [*copies, *map(self.locate, own["path"])]
        paths = [*copies, *map(self.locate, job["path"])]
        return {**job, "path": paths, "sides": {**job["sides"], side: own}}
