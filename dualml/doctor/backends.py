"""Examine each backend in a process with a time limit, so that crashes and hangs become
findings."""

from __future__ import annotations

import json
import signal
from typing import Any

from dualml.backend import BackendInfo
from dualml.doctor.finding import Finding, finding
from dualml.doctor.probe import PREFIX
from dualml.machine import Finished, bounded, python

#: Seconds for one backend: an import from a cold disk, and a measurement of at most fifty.
LIMIT = 120.0


def examine_backend(info: BackendInfo, seconds: float = LIMIT) -> tuple[list[Finding], bool]:
    """Return the findings about a backend, and whether it works."""
    if not info.installed():
        return [finding(info.framework, "warn", "absent", info.install)], False
    ended = bounded(python("-m", "dualml.doctor.probe", info.name), seconds)
    return read(info, ended, seconds)


def read(info: BackendInfo, ended: Finished, seconds: float) -> tuple[list[Finding], bool]:
    """Parse what a probe printed; if it did not finish, add a finding about how it ended."""
    findings: list[Finding] = []
    for line in ended.out.splitlines():
        if not line.startswith(PREFIX):
            continue
        try:
            message = json.loads(line.removeprefix(PREFIX))
        except ValueError:  # cut off
            continue
        if "finding" in message:
            findings.append(Finding(**message["finding"]))
        elif "works" in message:
            return findings, True
        elif "error" in message:
            return [*findings, _broken(info, "raises", error=message["error"])], False
    return [*findings, _stopped(info, ended, seconds)], False


def _stopped(info: BackendInfo, ended: Finished, seconds: float) -> Finding:
    """Return the finding about a probe that hung, crashed or ended early."""
    if ended.code is None:
        return _broken(info, "hangs", seconds=f"{seconds:.0f}")
    if ended.code < 0:
        known = {number.value: number.name for number in signal.Signals}
        return _broken(info, "crashes", signal=known.get(-ended.code, str(-ended.code)))
    last = (ended.err.strip().splitlines() or ["no message"])[-1][:200]
    return _broken(info, "ends", code=ended.code, error=last)


def _broken(info: BackendInfo, how: str, **values: Any) -> Finding:
    """Return a finding with the advice to reinstall the framework."""
    fresh = info.install.replace("pip install", "pip install --force-reinstall")
    return finding(info.framework, "problem", how, "reinstall", command=fresh, **values)
