"""Run all sections, each in a process with a time limit, and save the results as JSON."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dualml.backend import BackendInfo
from dualml.common.errors import UserError
from dualml.common.files import read_json, write_json
from dualml.common.machine import ProcessResult, python_argv, run_bounded
from dualml.interface.bench.section import JOB, REASON, BenchJob, BenchSection
from dualml.interface.bench.work import MACHINE

RESULTS = "bench.json"
#: Maximum seconds to import a framework and open a device.
START_S = 120.0
#: Sections are not started with fewer seconds left.
MIN_SECTION_S = 5.0

Results = dict[str, Any]


def run_sections(
    info: BackendInfo,
    chosen: Sequence[BenchSection],
    job: BenchJob,
    tell: Callable[[BenchSection, float], None] = lambda section, seconds: None,
) -> Results:
    """Measure the chosen sections and return the results, the content of ``bench.json``, which is
    written into the job's folder after each: backend, device, facts about the machine, seconds in
    total, and `section_result` of each section.

    Args:
        job: the request; ``seconds`` is the time limit of all sections together.
        tell: called with a section and its time limit in seconds before it starts, also if it is
            then not run because too little time is left.

    Raises:
        UserError: the device is not available.
    """
    begin, folder = time.monotonic(), Path(job.folder)
    results: Results = {
        "format": 1,
        "backend": job.backend,
        "quick": job.quick,
        "machine": describe_machine(info, job),
        "sections": [],
    }
    results["device"] = results["machine"]["device"]
    job = replace(job, device=str(results["device"]))
    for section in chosen:
        limit = min(section.limit_s, job.seconds - (time.monotonic() - begin))
        tell(section, limit)
        results["sections"].append(run_section(info, section, replace(job, seconds=limit), folder))
        results["seconds"] = time.monotonic() - begin
        write_json(folder / RESULTS, results)
    return results


def describe_machine(info: BackendInfo, job: BenchJob) -> dict[str, str]:
    """Return the backend's facts about its device, name → text, from a process of at most `START_S`
    seconds, which writes them to ``machine.json``.

    Raises:
        UserError: the device is not available, with the backend's reason.
    """
    folder = Path(job.folder)
    ended = run_process(info, MACHINE, job, START_S)
    if ended.code != 0:
        raise UserError(f"{info.name} on {job.device}: {last_line(ended)}")
    facts: dict[str, str] = read_json(folder / f"{MACHINE}.json")
    return facts


def run_section(info: BackendInfo, section: BenchSection, job: BenchJob, folder: Path) -> Results:
    """Run one section in a process of its own; return its result, whose rows end with a reason if
    it failed or was killed. With too little time left it is not run, and the only row says so."""
    begin, path = time.monotonic(), folder / f"{section.name}.jsonl"
    path.unlink(missing_ok=True)
    if job.seconds < min(MIN_SECTION_S, section.limit_s):
        return section_result(section, "not_run", 0.0, [{REASON: {"key": "no_time"}}])
    ended = run_process(info, section.name, job, job.seconds, section.target)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]  # skip truncated ones
    state = "done" if ended.code == 0 else "failed"
    if ended.code is None:
        rows.append({REASON: {"key": "stopped", "seconds": round(job.seconds)}, "ok": False})
    elif ended.code and not (rows and rows[-1].get("ok") is False):
        rows.append({REASON: last_line(ended), "ok": False})
    return section_result(section, state, time.monotonic() - begin, rows)


def run_process(
    info: BackendInfo, name: str, job: BenchJob, limit: float, *target: str
) -> ProcessResult:
    """Run `dualml.interface.bench.work` in a process for at most ``limit`` seconds; the job is
    written to the folder before, and the output to ``NAME.log`` after it."""
    folder = Path(job.folder)
    write_json(folder / JOB, asdict(job))
    command = python_argv("-m", "dualml.interface.bench.work", str(folder), name, *target)
    ended = run_bounded(command, limit, {**os.environ, **info.environ(job.threads)})
    (folder / f"{name}.log").write_text(ended.out + ended.err, "utf-8")
    return ended


def last_line(ended: ProcessResult) -> str:
    """Return the last non-empty line that a process printed to standard error, or to standard
    output if it printed no error, at most 300 characters; or how it ended."""
    lines = [line.strip() for line in (ended.err or ended.out).splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"ended with code {ended.code}"


def section_result(
    section: BenchSection, state: str, seconds: float, rows: list[Results]
) -> Results:
    """Return the result of a section as a JSON-serializable dict: ``name``, ``state`` (``done``,
    ``failed`` or ``not_run``), ``seconds``, keys of ``columns``, and ``rows``, each column →
    value."""
    columns = list(section.columns)
    return {
        "name": section.name,
        "state": state,
        "seconds": seconds,
        "columns": columns,
        "rows": rows,
    }


def all_checks_passed(results: Results) -> bool:
    """Return whether every section finished and no row is marked as wrong."""
    return all(
        section["state"] == "done" and all(row.get("ok", True) for row in section["rows"])
        for section in results["sections"]
    )
