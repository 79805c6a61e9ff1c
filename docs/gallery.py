"""Run labs and store their reports for the gallery. For each lab, ``docs/gallery/`` gets
LAB.zip (the report in both languages), LAB.LANG.png (a screenshot) and LAB.json (command,
date, machine).

    python docs/gallery.py [LAB …]

Needs both frameworks and Chromium.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from _ext.gallery import FOLDER, ORDER
from _ext.pages import LANGUAGES

#: Seconds for one lab, and for one picture.
RUN_S, PICTURE_S = 3600, 60


def main(labs: list[str]) -> int:
    FOLDER.mkdir(exist_ok=True)
    for lab in labs or ORDER:
        with tempfile.TemporaryDirectory(prefix="dualml-gallery-") as base:
            keep_lab(lab, Path(base))
        print(f"→ {FOLDER / lab}.zip", flush=True)
    return 0


def keep_lab(lab: str, base: Path) -> None:
    """Run one lab below ``base`` and store its report."""
    words = ["run", lab, "--quick", "--backend", "both"]
    done = dualml(*words, "--no-report", "--out", base / "run")
    if done not in (0, 3):
        raise SystemExit(f"dualml {' '.join(words)} ended with {done}")
    for lang in LANGUAGES:
        dualml("report", base / "run", "--lang", lang, "--out", base / lang)
        picture(base / lang / "report.html", FOLDER / f"{lab}.{lang}.png")
    target = FOLDER / f"{lab}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for lang in LANGUAGES:
            packed.write(base / lang / "report.html", f"{lang}.html")
    run = json.loads((base / "run" / "run.json").read_text("utf-8"))
    facts = {"command": f"dualml {' '.join(words)}", **run_facts(run)}
    (FOLDER / f"{lab}.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")


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


def picture(page: Path, target: Path) -> None:
    """Save a screenshot of the top of a page, at half size."""
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
                "--window-size=1300,900",
                "--force-device-scale-factor=0.5",
                f"--screenshot={target}",
                page.as_uri(),
            ],
            check=True,
            timeout=PICTURE_S,
            capture_output=True,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
