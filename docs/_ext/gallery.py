"""The gallery page: reports of real runs, as `docs/gallery.py` stored them in ``docs/gallery/``."""

from __future__ import annotations

import json
import shutil
import tomllib
import zipfile
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from _ext.pages import DOCS, ROOT, Page
from _ext.words import words

FOLDER = DOCS / "gallery"
#: The labs, in the order of the course.
ORDER = ("lab1", "lab2", "lab3", "lab4", "rnn_ps", "methods", "memory")


def pages() -> Iterator[Page]:
    if gallery_facts():
        yield Page("gallery/index", make=page)


def gallery_facts() -> dict[str, dict[str, Any]]:
    """Return lab → facts of its run: ``command``, ``date``, ``machine``, ``versions``."""
    facts = {path.stem: json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.json")}
    return {lab: facts[lab] for lab in ORDER if lab in facts}


def page(lang: str) -> str:
    """Return the page: a screenshot of each report that links to it, with its command and
    machine."""
    texts = words(lang)["gallery"]
    parts = [f"# {texts['title']}", texts["intro"]]
    for lab, facts in gallery_facts().items():
        title = tomllib.loads((ROOT / "experiments" / f"{lab}.toml").read_text("utf-8"))["title"]
        parts += [
            f"## {title[lang]}",
            f"```bash\n{facts['command']}\n```",
            f'<a href="{lab}.html"><img src="{lab}.png" alt="{escape(texts["alt"])}" width="650"'
            ' loading="lazy"></a>',
            texts["facts"].format(**facts),
            texts["links"].format(lab=lab),
        ]
    return "\n\n".join(parts) + "\n"


def write(lang: str, folder: Path) -> None:
    """Copy the reports and their screenshots next to the page."""
    folder = folder / "gallery"
    for lab in gallery_facts():
        with zipfile.ZipFile(FOLDER / f"{lab}.zip") as packed:
            (folder / f"{lab}.html").write_bytes(packed.read(f"{lang}.html"))
        shutil.copyfile(FOLDER / f"{lab}.{lang}.png", folder / f"{lab}.png")
