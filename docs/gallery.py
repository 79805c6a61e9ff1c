"""Run the labs and a comparison, and record them for ``dualml demo`` and the site's gallery. For
each lab, ``dualml/interface/demo/recordings/`` gets LAB.zip (what the live page reads of the run
folder, and the report in both languages), and ``docs/gallery/`` LAB.LANG.png, a screenshot.

    python docs/gallery.py [--runs FOLDER] [LAB … | port | first-screen]

With ``--runs``, runs are kept in that folder, and one that is already there is not run again.
``port`` records the comparison of ``docs/examples/lenet_port``; ``first-screen`` takes the README's
pictures from the recorded report of Lab 1. Needs both frameworks, Chromium and Chinese fonts.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from _ext.gallery import FOLDER
from _ext.pages import DOCS, LANGUAGES, ROOT

from dualml.interface.demo.recordings import LABS, PORT, read_facts, read_report

RECORDINGS = ROOT / "dualml" / "interface" / "demo" / "recordings"
#: Seconds for one lab, and for one picture.
RUN_S, PICTURE_S = 3600, 60
#: Files of a run folder that a recording holds: those that the live page reads.
KEPT = re.compile(r"(run|parity|findings|job|trial)\.json|rank\d+\.jsonl")
#: What a lab and the comparison are recorded with.
RUN = "dualml run {lab} --quick --backend both"
COMPARE = (
    "dualml compare net_torch.py:Net net_ms.py:Net --shape 8,1,28,28 --optimizer adam "
    "--steps 3 --patch"
)
FIRST_SCREEN_OF = "first-screen"
#: Scheme of the README's pictures → number of Blink's `preferredColorScheme`.
SCHEMES = {"dark": 0, "light": 1}
#: Width and height in pixels of the README's pictures: up to the end of the first section.
FIRST_SCREEN = (1280, 800)
#: Number of colours of the README's pictures: a third of the bytes, and no visible difference.
COLOURS = 128


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path)
    names = (*LABS, PORT, FIRST_SCREEN_OF)
    parser.add_argument("names", nargs="*", choices=(*names, []), metavar="NAME")
    asked = parser.parse_args(words)
    for folder in (FOLDER, RECORDINGS):
        folder.mkdir(exist_ok=True)
    for name in asked.names or names:
        with tempfile.TemporaryDirectory(prefix="dualml-gallery-") as base:
            if name == PORT:
                record_port(Path(base))
            elif name == FIRST_SCREEN_OF:
                take_first_screens(Path(base))
            else:
                record_lab(name, Path(base), asked.runs)
        print(f"→ {name}", flush=True)
    return 0


def record_lab(lab: str, base: Path, runs: Path | None) -> None:
    """Run one lab below ``base``, or take its run folder from ``runs``, and record it."""
    command = RUN.format(lab=lab)
    run = (base if runs is None else runs) / lab
    if not (run / "parity.json").exists():
        done = dualml(*command.split()[1:], "--no-report", "--out", run)
        if done not in (0, 3):
            raise SystemExit(f"{command} ended with {done}")
    packed = dict[str, str]()
    for lang in LANGUAGES:
        dualml("report", run, "--lang", lang, "--out", base / f"report-{lang}")
        page = base / f"report-{lang}" / "report.html"
        picture(page, FOLDER / f"{lab}.{lang}.png")
        packed[f"{lang}.html"] = page.read_text("utf-8")
    for path in sorted(run.rglob("*")):
        if KEPT.fullmatch(path.name):
            text = path.read_text("utf-8")
            packed[f"run/{path.relative_to(run).as_posix()}"] = hide_machine(text)
    record = json.loads((run / "run.json").read_text("utf-8"))
    packed["facts.json"] = json.dumps({"command": command, **run_facts(record)}, indent=1)
    pack(RECORDINGS / f"{lab}.zip", packed)


def hide_machine(text: str) -> str:
    """Return a run's records without the name of this machine and the path of this checkout."""
    text = text.replace(f"{ROOT}/", "")
    return re.sub(rf'(":\s*"){re.escape(platform.node())}"', r'\1localhost"', text)


def record_port(base: Path) -> None:
    """Compare the port of ``docs/examples/lenet_port`` with its original, and record what the
    command prints."""
    sources = {path.name: path for path in (DOCS / "examples" / "lenet_port").glob("*.py")}
    packed = {name: path.read_text("utf-8") for name, path in sources.items()}
    for name, text in packed.items():
        (base / name).write_text(text, "utf-8")
    for lang in LANGUAGES:
        done = subprocess.run(
            [sys.executable, "-m", *COMPARE.split(), "--lang", lang],
            cwd=base,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        if done.returncode != 3:
            raise SystemExit(f"{COMPARE} ended with {done.returncode}: {done.stderr}")
        answer, _, patch = done.stdout.partition("\n--- ")
        packed |= {f"{lang}.txt": answer.strip() + "\n", "port.diff": f"--- {patch}"}
    lab = asdict(read_facts("lab1"))  # of the same machine and environment
    facts = {**lab, "command": COMPARE, "date": date.today().isoformat()}
    pack(RECORDINGS / f"{PORT}.zip", {**packed, "facts.json": json.dumps(facts, indent=1)})


def pack(target: Path, texts: Mapping[str, str]) -> None:
    """Write texts by name into an archive, with one fixed date."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, text in texts.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            packed.writestr(entry, text, compresslevel=9)


def take_first_screens(base: Path) -> None:
    """Take the README's pictures from the recorded report of Lab 1."""
    from PIL import Image  # torchvision needs it, too

    for lang in LANGUAGES:
        page = base / f"{lang}.html"
        page.write_bytes(read_report("lab1", lang))
        for scheme in SCHEMES:
            name = f"report-{scheme}.png" if lang == "en" else f"report-{scheme}.{lang}.png"
            target = DOCS / "images" / name
            picture(page, target, FIRST_SCREEN, scale=1, scheme=scheme)
            with Image.open(target) as full:
                full.quantize(COLOURS).save(target, optimize=True)


def run_facts(run: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows about a run: date, machine, versions."""
    backends = run["environment"]
    facts = next(iter(backends.values()))
    versions = {"dualml": run["dualml"], **{name: backends[name][name] for name in backends}}
    return {
        "date": run["created"][:10],
        "machine": ", ".join(facts[key] for key in ("cpu", "cores", "memory") if key in facts),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }


def dualml(*words: object) -> int:
    """Run a dualml command and return its exit code."""
    command = [sys.executable, "-m", "dualml", *map(str, words)]
    return subprocess.run(command, timeout=RUN_S, check=False).returncode


def picture(
    page: Path,
    target: Path,
    size: tuple[int, int] = (1300, 900),
    scale: float = 0.5,
    scheme: str = "light",
) -> None:
    """Save a screenshot of the top of a page.

    Args:
        size: width and height of the window in CSS pixels.
        scale: pixels of the picture per CSS pixel.
        scheme: ``light`` or ``dark``.
    """
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--disable-background-networking",
                f"--user-data-dir={profile}",
                f"--window-size={size[0]},{size[1]}",
                f"--force-device-scale-factor={scale}",
                f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
                f"--screenshot={target}",
                page.as_uri(),
            ],
            check=True,
            timeout=PICTURE_S,
            capture_output=True,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
