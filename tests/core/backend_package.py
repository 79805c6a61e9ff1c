"""The tests' third backend as pip would install it, optionally with planted mistakes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "third_backend"
#: A file of the package, a text that occurs in it once, and the replacement.
Edit = tuple[str, str, str]


def install(folder: Path, edits: Sequence[Edit] = (), name: str = "single") -> Path:
    """Install the backend, and others under other names, into a folder for the path; return the
    folder."""
    site = folder / "site"
    meta = site / f"{name}-1.0.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    module = SOURCE.name if name == "single" else f"backend_{name}"
    (meta / "entry_points.txt").write_text(f"[dualml.backends]\n{name} = {module}:info\n")
    package = site / module
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, text, put in edits:
        source = (package / file).read_text("utf-8")
        assert source.count(text) == 1, f"{file} has {text!r} {source.count(text)} times"
        (package / file).write_text(source.replace(text, put), "utf-8")
    if name != "single":
        for path in package.glob("*.py"):
            source = path.read_text("utf-8").replace(SOURCE.name, module)
            path.write_text(source.replace('"single"', f'"{name}"'), "utf-8")
    return site


def path_with(site: Path) -> str:
    """Return ``PYTHONPATH`` with the folder in front."""
    return os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
