"""The report of a run: ``report.html``, ``report.md`` and ``figures/NAME.svg``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dualml.common.files import write_bytes


def report_path(folder: Path) -> Path:
    """Return the path of the HTML report in the run folder ``folder``."""
    return folder / "report.html"


def write_report(folder: Path, html: str, markdown: str, figures: Mapping[str, str]) -> list[Path]:
    """Write the report in both formats and its figures (name → SVG) to ``folder``, in place of
    earlier files; return the files, the HTML page first."""
    texts = {report_path(folder): html, folder / "report.md": markdown}
    texts |= {folder / "figures" / f"{name}.svg": svg for name, svg in figures.items()}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, text.encode(errors="backslashreplace"))  # a path need not be Unicode
    return list(texts)
