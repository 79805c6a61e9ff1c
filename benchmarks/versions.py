"""Test the ends of the version ranges in pyproject.toml: the rules' tests, and a run of Lab 1.

    python benchmarks/versions.py list        names of versions.toml, as JSON
    python benchmarks/versions.py try NAME …  each in its own environment, into versions.json
    python benchmarks/versions.py page        the tables of docs/versions.md and its Chinese page

Needs uv and the Pythons listed in versions.toml. Exit code 1: a combination did not behave as
expected.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMBINATIONS: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)
RESULTS = Path(__file__).with_suffix(".json")
BEGIN, END = "<!-- versions: begin -->", "<!-- versions: end -->"
#: Tests of a framework: two rules suffice, because an incompatible version breaks all of them.
CONFORMANCE = ("tests/conformance/test_optim.py", "-k", "noise and (sgd or adam) and not adamw")
#: Tests of the core: one file for each of the packages it depends on most.
CORE = tuple(
    f"tests/core/test_{name}.py"
    for name in (
        "optim_rules",
        "experiment",
        "checkpoint_files",
        "help",
        "registry",
    )
)
LAB = ("run", "lab1", "--quick", "--arm", "sgd", "--data", "digits", "--no-report")
#: Packages whose versions are in the table.
SHOWN = ("torch", "mindspore", "numpy")
LIMIT_S = 1800


def settings() -> dict[str, str]:
    """Return this environment with pip's settings for uv, as tox is started."""
    spec = importlib.util.spec_from_file_location("started", ROOT / ".ci/tox.py")
    assert spec is not None
    assert spec.loader is not None
    started = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(started)
    return dict(os.environ) | started.uv_settings()


def run(*words: object, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [*map(str, words)]
    return subprocess.run(
        command, cwd=ROOT, env=env, text=True, capture_output=True, check=False, timeout=LIMIT_S
    )


def attempt(name: str) -> dict[str, Any]:
    """Create the environment, run both checks, and return the outcome."""
    wanted, began = COMBINATIONS[name], datetime.datetime.now(datetime.UTC)
    row: dict[str, Any] = {"date": began.date().isoformat(), "machine": platform.platform()}
    with tempfile.TemporaryDirectory(prefix="dualml-versions-") as folder:
        python, env = Path(folder, "venv/bin/python"), settings()
        env |= {"DUALML_CACHE": f"{folder}/cache", "PYTHONDONTWRITEBYTECODE": ""}
        install = ("uv", "pip", "install", "--quiet", "--python", python)
        extras = f"[{','.join(wanted['extras'])}]" if wanted.get("extras") else ""
        lowest = ("--resolution", wanted.get("resolution", "highest"))
        steps = (
            ("uv", "venv", "--quiet", "--python", wanted["python"], f"{folder}/venv"),
            (*install, *lowest, f"{ROOT}{extras}", *wanted.get("pins", ())),
            (*install, "pytest>=8", "pytest-timeout>=2.3", "hypothesis>=6.100"),
        )
        for words in steps:
            done = run(*words, env=env)
            if done.returncode:
                return row | {"ok": False, "why": done.stderr.strip()[-2000:]}
        row["versions"] = versions(python, env)
        chosen = backends(row["versions"])
        which = CONFORMANCE if len(chosen) > 1 else CORE
        tests = run(python, "-m", "pytest", "-p", "no:cacheprovider", *which, env=env)
        row["tests"] = tests.stdout.strip().splitlines()[-1].partition(" in ")[0]
        lab = run(
            python,
            "-m",
            "dualml",
            *LAB,
            "--backend",
            ",".join(chosen),
            "--out",
            f"{folder}/run",
            env=env,
        )
        row["lab1"] = lab.returncode
        row["verdicts"] = verdicts(Path(folder, "run"))
    row["ok"] = tests.returncode == 0 and lab.returncode == 0
    if not row["ok"]:
        row["why"] = (lab.stderr if tests.returncode == 0 else tests.stdout).strip()[-2000:]
    return row


def versions(python: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return the installed versions in an environment."""
    listed = run("uv", "pip", "list", "--python", python, "--format", "json", env=env)
    return {one["name"]: one["version"] for one in json.loads(listed.stdout)}


def backends(found: Mapping[str, str]) -> list[str]:
    """Return the installed backends and the reference."""
    return ["numpy", *(name for name in ("torch", "mindspore") if name in found)]


def verdicts(folder: Path) -> list[str]:
    """Return the verdicts of a run."""
    path = folder / "parity.json"
    found = re.findall(r'"verdict": "([^"]+)"', path.read_text("utf-8")) if path.is_file() else []
    return sorted(set(found))


def expected(name: str, row: Mapping[str, Any]) -> bool:
    """Return whether a combination works or is known to fail."""
    return bool(row["ok"]) is ("gap" not in COMBINATIONS[name])


def results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    return found


def table(rows: Mapping[str, Mapping[str, Any]], text: Mapping[str, Any]) -> str:
    """Return a table of all combinations, tested or not."""
    lines = [text["head"], ["---"] * len(text["head"])]
    for name, wanted in COMBINATIONS.items():
        row = rows.get(name, {})
        outcome = text["works" if row["ok"] else "fails"] if row else text["untried"]
        gap = f": {wanted['gap']}" if "gap" in wanted else ""
        packages = [row.get("versions", {}).get(package, "") for package in SHOWN]
        verdicts = ", ".join(text["verdict"][one] for one in row.get("verdicts", ()))
        tests = ", ".join(re.findall(r"\d+ (?:passed|failed|errors?)", row.get("tests", "")))
        told = [*packages, tests, verdicts, outcome + gap, row.get("date", "")]
        lines.append([f"`{name}`", wanted["python"], *(cell or "–" for cell in told)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def words(lang: str) -> Mapping[str, Any]:
    text = (Path(__file__).parent / "words" / f"{lang}.toml").read_text("utf-8")
    found: Mapping[str, Any] = tomllib.loads(text)["versions"]
    return found


def page() -> None:
    for lang, name in (("en", "versions.md"), ("zh", "versions.zh.md")):
        path = ROOT / "docs" / name
        before, _, rest = path.read_text("utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        block = table(results(), words(lang))
        path.write_text(f"{before}{BEGIN}\n\n{block}\n\n{END}{after}", "utf-8")


def main(given: Sequence[str]) -> int:
    match list(given):
        case ["list"]:
            print(json.dumps([*COMBINATIONS]))
        case ["page"]:
            page()
        case ["try", *names] if names and set(names) <= set(COMBINATIONS):
            unexpected = []
            for name in names:
                row = attempt(name)
                RESULTS.write_text(json.dumps(results() | {name: row}, indent=1) + "\n", "utf-8")
                print(f"{name}: {json.dumps(row, indent=1)}", flush=True)
                unexpected += [] if expected(name, row) else [name]
            return 1 if unexpected else 0
        case _:
            print(__doc__, f"\nnames: {', '.join(COMBINATIONS)}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
