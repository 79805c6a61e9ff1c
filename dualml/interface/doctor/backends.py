"""Examine each backend in a process with a time limit, so that crashes and hangs become
findings."""

from __future__ import annotations

import json
import signal
from typing import Any

from dualml.backend import BackendInfo
from dualml.common.machine import ProcessResult, python_argv, run_bounded
from dualml.interface.doctor.finding import DoctorFinding, make_finding
from dualml.interface.doctor.probe import PREFIX

#: Seconds for one backend: an import from a cold disk, and a measurement of at most fifty.
LIMIT = 120.0


def examine_backend(info: BackendInfo, seconds: float = LIMIT) -> tuple[list[DoctorFinding], bool]:
    """Examine a backend in a process for at most ``seconds``; return the findings, and whether it
    works. A framework that is not installed is one finding."""
    if not info.installed():
        return [make_finding(info.framework, "warn", "absent", info.install)], False
    ended = run_bounded(python_argv("-m", "dualml.interface.doctor.probe", info.name), seconds)
    return read_probe(info, ended, seconds)


def read_probe(
    info: BackendInfo, ended: ProcessResult, seconds: float
) -> tuple[list[DoctorFinding], bool]:
    """Return the findings that a probe printed, and whether the backend works; if it did not
    finish, the last finding says how it ended."""
    findings: list[DoctorFinding] = []
    for line in ended.out.splitlines():
        if not line.startswith(PREFIX):
            continue
        try:
            message = json.loads(line.removeprefix(PREFIX))
        except ValueError:  # cut off
            continue
        if "finding" in message:
            findings.append(DoctorFinding(**message["finding"]))
        elif "works" in message:
            return findings, True
        elif "error" in message:
            return [*findings, _problem_finding(info, "raises", error=message["error"])], False
    return [*findings, _stop_finding(info, ended, seconds)], False


def _stop_finding(info: BackendInfo, ended: ProcessResult, seconds: float) -> DoctorFinding:
    """Return the finding about a probe that hung, crashed or ended early."""
    if ended.code is None:
        return _problem_finding(info, "hangs", seconds=f"{seconds:.0f}")
    if ended.code < 0:
        known = {number.value: number.name for number in signal.Signals}
        return _problem_finding(info, "crashes", signal=known.get(-ended.code, str(-ended.code)))
    last = (ended.err.strip().splitlines() or ["no message"])[-1][:200]
    return _problem_finding(info, "ends", code=ended.code, error=last)


def _problem_finding(info: BackendInfo, how: str, **values: Any) -> DoctorFinding:
    """Return a finding marked as ``problem``, with the message ``doctor.says.HOW`` filled with
    ``values``, and the advice to reinstall the framework."""
    fresh = info.install.replace("pip install", "pip install --force-reinstall")
    return make_finding(info.framework, "problem", how, "reinstall", command=fresh, **values)
