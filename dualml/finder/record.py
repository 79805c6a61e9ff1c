"""What was found in a run, kept beside its verdicts in ``findings.json``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dualml.files import read_json, readable, write_json

NAME = "findings.json"
FORMAT = 1


def write(folder: Path, findings: Sequence[dict[str, Any]]) -> None:
    """Keep the findings of a run; nothing is left of earlier ones."""
    from dualml.finder.paragraph import paragraph

    if not findings:
        (folder / NAME).unlink(missing_ok=True)
        return
    told = [{**f, "text": {lang: paragraph(f, lang) for lang in ("en", "zh")}} for f in findings]
    write_json(folder / NAME, {"format": FORMAT, "findings": told})


def read(folder: Path) -> list[dict[str, Any]]:
    """The findings of a run, none where none were made.

    Raises:
        UserError: the file is damaged.
    """
    path = folder / NAME
    if not path.exists():
        return []
    with readable(f"{path}: not readable"):
        found = list(read_json(path)["findings"])
        for finding in found:
            _ = finding["text"]["en"], finding["text"]["zh"]
        return found
