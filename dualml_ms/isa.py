"""Which instruction set MindSpore's convolutions should use on this CPU: measured, not guessed.

The oneDNN that MindSpore bundles falls back to a reference convolution on some AVX-512 CPUs, more
than ten times slower than its AVX2 kernels, while a matrix product hardly cares. Capping
``ONEDNN_MAX_CPU_ISA`` before the import avoids it. Whether this CPU is one of them is measured once
in two short processes, and the answer is kept in the cache folder.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dualml import machine
from dualml.files import read_json, write_json

VARIABLE = "ONEDNN_MAX_CPU_ISA"
CAP = "AVX2"
#: Environment variable with the reason for the instruction set, for workers whose environment is
#: already set.
TOLD = "DUALML_ISA_REASON"
#: How many times faster the cap must be before it is used; less is noise.
WORTH_IT = 1.3
#: Seconds for one of the two processes; a healthy one takes three.
LIMIT = 25.0

PROBE = Path(__file__).with_name("isa_probe.py")


@dataclass(frozen=True)
class Choice:
    """What to set, and why.

    Attributes:
        isa: value of ``ONEDNN_MAX_CPU_ISA``, or ``""`` to leave it alone.
        code: ``user``, ``measured_cap``, ``measured_default``, ``not_needed``,
            ``not_installed`` or ``failed``.
        reason: one sentence.
        ratio: time without the cap over time with it; None where nothing was measured.
        default, capped: milliseconds of ``convolution_ms`` and ``matmul_ms``.
        cache: the file the measurement is kept in, or ``""``.
    """

    isa: str
    code: str
    reason: str
    ratio: float | None = None
    default: Mapping[str, float] = field(default_factory=dict)
    capped: Mapping[str, float] = field(default_factory=dict)
    cache: str = ""


@functools.cache
def choice() -> Choice:
    """The choice for this machine: the user's, the cached one, or a new measurement (seconds)."""
    if (chosen := os.environ.get(VARIABLE)) is not None:
        return Choice(chosen, "user", f"{VARIABLE} is set by the user")
    flags = machine.cpu_flags()
    if "avx512f" not in flags:
        return Choice("", "not_needed", "this CPU has no AVX-512")
    try:
        installed = version("mindspore")
    except PackageNotFoundError:
        return Choice("", "not_installed", "MindSpore is not installed")
    key = _key(machine.cpu_model(), installed, sorted(f for f in flags if f.startswith("avx")))
    try:
        folder = machine.cache_dir()
    except (ImportError, OSError, RuntimeError):
        return measure()
    path = folder / f"mindspore-isa-{key}.json"
    if (known := _recall(path)) is not None:
        return known
    measured = measure()
    return measured if measured.code == "failed" else _keep(path, measured)


def measure() -> Choice:
    """Time the probe with and without the cap; a failure is a choice with a reason."""
    timings: list[dict[str, float]] = []
    for isa in ("", CAP):
        env = {**os.environ, "GLOG_v": "3", **({VARIABLE: isa} if isa else {})}
        try:
            result = machine.bounded([sys.executable, "-P", str(PROBE)], LIMIT, env)
        except OSError as error:
            return Choice("", "failed", f"the measurement could not start: {error}")
        if result.code is None:
            return Choice("", "failed", f"the measurement took longer than {LIMIT:.0f} s")
        try:
            timing = json.loads(result.out.strip().splitlines()[-1])
            timings.append({k: float(timing[k]) for k in ("convolution_ms", "matmul_ms")})
        except (IndexError, KeyError, TypeError, ValueError):
            last = (result.err.strip().splitlines() or ["no output"])[-1][:200]
            return Choice("", "failed", f"the measurement ended with {result.code}: {last}")
    return decide(*timings)


def decide(default: Mapping[str, float], capped: Mapping[str, float]) -> Choice:
    """Cap only where the whole of convolution and matrix product gains clearly."""
    ratio = sum(default.values()) / sum(capped.values())
    times = f"{default['convolution_ms']:.1f} ms, {CAP} {capped['convolution_ms']:.1f} ms"
    if ratio >= WORTH_IT:
        reason = f"convolutions of LeNet: default {times}"
        return Choice(CAP, "measured_cap", reason, ratio, dict(default), dict(capped))
    reason = f"the default is fast here: convolutions of LeNet {times}"
    return Choice("", "measured_default", reason, ratio, dict(default), dict(capped))


def _key(*parts: object) -> str:
    text = json.dumps([PROBE.read_text("utf-8"), CAP, *parts])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _recall(path: Path) -> Choice | None:
    """A kept measurement, judged again; a file that is missing or damaged counts as none."""
    try:
        record = read_json(path)
        choice = decide(
            {k: float(v) for k, v in record["default"].items()},
            {k: float(v) for k, v in record["capped"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return None
    return Choice(**{**asdict(choice), "cache": str(path)})


def _keep(path: Path, choice: Choice) -> Choice:
    """Write the measurement whole; a folder that cannot be written costs a new one next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(choice))
    except OSError:
        return choice
    return Choice(**{**asdict(choice), "cache": str(path)})
