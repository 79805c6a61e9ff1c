"""Locations of experiment files: a path, the checkout's ``experiments/``, or the installed
wheel."""

from __future__ import annotations

from pathlib import Path

from dualml.common.errors import UserError, did_you_mean

PACKAGE = Path(__file__).resolve().parent.parent


def folder() -> Path:
    """Return the folder of shipped experiments, in a wheel or in a checkout."""
    shipped = PACKAGE / "_experiments"
    return shipped if shipped.is_dir() else PACKAGE.parent / "experiments"


def experiment_files() -> dict[str, Path]:
    """Return name → file of all experiments that are shipped with dualml, sorted by name."""
    return {path.stem: path for path in sorted(folder().glob("*.toml"))}


def locate(lab: str) -> Path:
    """Return the TOML file of ``lab``: a shipped experiment if ``lab`` is its name (``lab1``), else
    ``lab`` as a path, which has a ``/`` or ends in ``.toml``.

    Raises:
        UserError: there is no such experiment or file.
    """
    known = experiment_files()
    if lab in known:
        return known[lab]
    path = Path(lab)
    if path.suffix == ".toml" or "/" in lab:
        if path.is_file():
            return path
        raise UserError(f"no experiment file {lab}")
    raise UserError(f"unknown experiment {lab!r}{did_you_mean(lab, known)}")
