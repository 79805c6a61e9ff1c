"""Each backend examined in a bounded process of its own: one that crashes or hangs is a finding."""

from __future__ import annotations

import json
import signal
import sys

from dualml.backend import BackendInfo
from dualml.doctor.finding import Finding, Mark, install
from dualml.doctor.probe import PREFIX
from dualml.machine import Finished, bounded

#: Seconds for one backend: an import from a cold disk, and a measurement of at most fifty.
LIMIT = 120.0


def examine_backend(info: BackendInfo, seconds: float = LIMIT) -> tuple[list[Finding], bool]:
    """Findings about a backend, and whether it works."""
    if not info.installed():
        return [_absent(info)], False
    told = bounded([sys.executable, "-m", "dualml.doctor.probe", info.name], seconds)
    return read(info, told, seconds)


def read(info: BackendInfo, told: Finished, seconds: float) -> tuple[list[Finding], bool]:
    """What a probe printed, and how it ended if it did not finish."""
    findings: list[Finding] = []
    for line in told.out.splitlines():
        if not line.startswith(PREFIX):
            continue
        try:
            said = json.loads(line.removeprefix(PREFIX))
        except ValueError:  # cut off
            continue
        if "finding" in said:
            findings.append(Finding(**said["finding"]))
        elif "works" in said:
            return findings, True
        elif "error" in said:
            return [*findings, _broken(info, said["error"], said["error"])], False
    return [*findings, _stopped(info, told, seconds)], False


def _stopped(info: BackendInfo, told: Finished, seconds: float) -> Finding:
    if told.code is None:
        en, zh = f"hangs: no answer within {seconds:.0f} s", f"{seconds:.0f} 秒内没有响应"
    elif told.code < 0:
        try:
            name = signal.Signals(-told.code).name
        except ValueError:
            name = str(-told.code)
        en, zh = f"crashes with {name}", f"崩溃（{name}）"
    else:
        last = (told.err.strip().splitlines() or ["no message"])[-1][:200]
        en, zh = f"ends with code {told.code}: {last}", f"以代码 {told.code} 结束：{last}"
    return _broken(info, en, zh)


def _broken(info: BackendInfo, en: str, zh: str) -> Finding:
    fresh = info.install.replace("pip install", "pip install --force-reinstall")
    return Finding(
        info.framework,
        "problem",
        f"does not work: {en}",
        f"无法工作：{zh}",
        f"{fresh} (in a fresh virtual environment if it persists)",
        f"{fresh}（若仍不行，请新建虚拟环境）",
    )


def _absent(info: BackendInfo) -> Finding:
    mark: Mark = "warn"
    remedy = install(info.install.removeprefix("pip install "))
    return Finding(info.framework, mark, "not installed", "未安装", **remedy)
