"""The third backend of the tests as pip would have installed it, perhaps with planted mistakes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "third_backend"
#: A file of the package, a text that it has once, and what stands there instead.
Edit = tuple[str, str, str]


def install(folder: Path, edits: Sequence[Edit] = ()) -> Path:
    """The folder to put on the path."""
    site = folder / "site"
    meta = site / "single-1.0.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: single\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text("[dualml.backends]\nsingle = third_backend:info\n")
    package = site / SOURCE.name
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text, put in edits:
        source = (package / name).read_text("utf-8")
        assert source.count(text) == 1, f"{name} has {text!r} {source.count(text)} times"
        (package / name).write_text(source.replace(text, put), "utf-8")
    return site


def path_with(site: Path) -> str:
    """``PYTHONPATH`` with it."""
    return os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
