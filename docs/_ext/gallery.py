"""The gallery page: the reports of the runs that `dualml.interface.demo` has recorded, with the
screenshots in ``docs/gallery/``."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import asdict
from html import escape
from pathlib import Path

from _ext.pages import DOCS, ROOT, Page
from _ext.words import words
from dualml.interface.demo.recordings import LABS, read_facts, read_report

FOLDER = DOCS / "gallery"


def pages() -> Iterator[Page]:
    yield Page("gallery/index", make=page)


def page(lang: str) -> str:
    """Return the page: a screenshot of each report that links to it, with its command and
    machine."""
    texts = words(lang)["gallery"]
    parts = [f"# {texts['title']}", texts["intro"]]
    for lab in LABS:
        facts = read_facts(lab)
        title = tomllib.loads((ROOT / "experiments" / f"{lab}.toml").read_text("utf-8"))["title"]
        parts += [
            f"## {title[lang]}",
            f"```bash\n{facts.command}\n```",
            f'<a href="{lab}.html"><img src="{lab}.png" alt="{escape(texts["alt"])}" width="650"'
            ' loading="lazy"></a>',
            texts["facts"].format(**asdict(facts)),
            texts["links"].format(lab=lab),
        ]
    return "\n\n".join(parts) + "\n"


def write(lang: str, folder: Path) -> None:
    """Write the reports and their screenshots next to the page."""
    folder = folder / "gallery"
    for lab in LABS:
        (folder / f"{lab}.html").write_bytes(read_report(lab, lang))
        shutil.copyfile(FOLDER / f"{lab}.{lang}.png", folder / f"{lab}.png")
