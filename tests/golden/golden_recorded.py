"""Run folders of both frameworks, written by version 0.1.0: they stay readable, and verdicts and
pages can be recomputed from them without a framework.

``recorded/LAB.zip`` is a run folder without logs, locks and pages.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import golden_numpy
from golden_files import HERE, arguments, differences, labs, read_json

from dualml.common.words import LANGUAGES
from dualml.experiment.store.load import load
from dualml.parity.judge import judge_run
from dualml.report import render

FOLDER = HERE / "recorded"
#: Files of a run folder that are kept.
KEPT = (".json", ".jsonl", ".npz", ".safetensors", ".toml")


def unpacked(name: str, folder: Path) -> Path:
    """Extract the run folder ``name`` into ``folder`` and return it."""
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as packed:
        packed.extractall(folder / name)
    return folder / name


def check(name: str) -> list[str]:
    """Return what differs from the record: recomputed verdicts, unreadable files, pages."""
    with tempfile.TemporaryDirectory(prefix="dualml-golden-") as base:
        out = unpacked(name, Path(base))
        was = read_json(out / "parity.json")
        changed = [*verdicts(out, was), *pages(out)]
        return [*changed, *(f"unreadable: {line}" for line in unreadable(out))]


def verdicts(out: Path, was: dict[str, Any]) -> list[str]:
    """Judge the folder again and return the verdicts that differ from ``was``."""
    judged = json.loads(json.dumps(judge_run(out).describe()))
    return differences(was, judged, "parity.json", close=True)


def pages(out: Path) -> list[str]:
    """Return the arms of the run that are missing on its pages."""
    arms = sorted({t["arm"] for t in read_json(out / "run.json")["trials"]})
    texts = {lang: render([out], out / lang, lang)[0].read_text("utf-8") for lang in LANGUAGES}
    return [
        f"{lang} page without {a}" for lang, page in texts.items() for a in arms if a not in page
    ]


def unreadable(out: Path) -> list[str]:
    return load([out]).unreadable


def record(name: str) -> list[str]:
    """Run the lab with both frameworks and pack its folder."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dualml-golden-") as base:
        out = Path(base) / name
        asked = labs("numpy")[name] | labs("recorded")[name] | {"seeds": "0"}
        asked["set"] = [*asked["set"], "parity.trace=[1]", *asked.get("more", ())]
        words = ["run", *arguments(asked), "--backend", "both", "--threads", "1"]
        done = golden_numpy.dualml(*words, "--no-report", "--out", out)
        assert done.returncode in (0, 3), done.stderr[-2000:]
        pack(out, FOLDER / f"{name}.zip")
    return []


def pack(out: Path, target: Path) -> None:
    """Pack a folder reproducibly: in order, with one fixed date."""
    files = sorted(p for p in out.rglob("*") if p.suffix in KEPT)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for path in files:
            entry = zipfile.ZipInfo(path.relative_to(out).as_posix())
            packed.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
