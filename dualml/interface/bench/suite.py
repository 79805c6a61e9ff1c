"""Run the conformance suite on the device, file by file."""

from __future__ import annotations

import os
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dualml.common.machine import run_bounded
from dualml.interface.bench.section import AddRow, BenchJob

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "tests" / "conformance"
#: Test file and ``-k`` expression of a quick run.
QUICK_SELECTION = ("test_training.py", "softmax")
#: Maximum number of reasons in one cell.
MAX_REASONS = 3


def section(job: BenchJob, add: AddRow) -> None:
    """Run the conformance suite in one process per test file, and add a row for each: a file that
    hangs or crashes costs only its own row. A quick run has one file; without the suite's folder
    there is one row with that reason."""
    if not FOLDER.is_dir():
        add(reason={"key": "no_suite"})
        return
    end = time.monotonic() + job.seconds - 2
    for file in [FOLDER / QUICK_SELECTION[0]] if job.quick else sorted(FOLDER.glob("test_*.py")):
        name = file.stem.removeprefix("test_")
        begin, report = time.monotonic(), Path(job.folder) / f"conformance-{name}.xml"
        words = ["-k", QUICK_SELECTION[1]] if job.quick else []
        command = [
            sys.executable,
            "-P",
            "-m",
            "pytest",
            str(file),
            "-q",
            "--tb=line",
            *words,
            "-p",
            "pytest_timeout",
            "-p",
            "no:cacheprovider",
            f"--rootdir={ROOT}",
            f"--junitxml={report}",
        ]
        ended = run_bounded(command, max(1.0, end - begin), suite_environ(job))
        cells: dict[str, Any] = {"suite": name, "seconds": time.monotonic() - begin}
        if report.exists():
            cells |= junit_counts(report)
        elif ended.code is None:
            cells |= {"reason": {"key": "stopped", "seconds": round(cells["seconds"])}}
        else:
            lines = (ended.err or ended.out).strip().splitlines()
            cells |= {"reason": lines[-1][:300] if lines else f"exit code {ended.code}"}
        add(**cells, ok=cells.get("failed") == 0)


def suite_environ(job: BenchJob) -> dict[str, str]:
    """Return this process's environment with the variables that choose backend and device of the
    suite, and without auto-loaded pytest plugins."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "DUALML_CONFORMANCE": job.backend,
        "DUALML_CONFORMANCE_DEVICE": job.device,
    }


def junit_counts(report: Path) -> dict[str, Any]:
    """Return the numbers of tests in pytest's JUnit report, ``passed``, ``failed`` (errors
    included) and ``skipped``, and, if there is one, a ``reason``: why some failed, or else why some
    were skipped."""
    suite = next(ElementTree.parse(report).iter("testsuite"))
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    wrong = [
        f"{case.get('name')}: {first_line(one)}"
        for case in suite.iter("testcase")
        for kind in ("failure", "error")
        for one in case.iter(kind)
    ]
    why = join_reasons(wrong) or join_reasons(first_line(one) for one in suite.iter("skipped"))
    counted = {"passed": total - failed - skipped, "failed": failed, "skipped": skipped}
    return {**counted, **({"reason": why} if why else {})}


def first_line(element: ElementTree.Element) -> str:
    """Return the first line, at most 200 characters, of the message of a failure or a skip; an
    empty text if it has none."""
    lines = (element.get("message") or "").strip().splitlines() or [""]
    return lines[0][:200]


def join_reasons(reasons: Iterable[str]) -> str:
    """Join the first `MAX_REASONS` distinct reasons by semicolons, with the number of further ones;
    an empty text for none."""
    distinct = list(dict.fromkeys(reasons))
    more = [f"+ {len(distinct) - MAX_REASONS}"] if len(distinct) > MAX_REASONS else []
    return "; ".join([*distinct[:MAX_REASONS], *more])
