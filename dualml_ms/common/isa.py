"""The instruction set of MindSpore's convolutions on this CPU, chosen by measurement.

MindSpore's bundled oneDNN falls back to a reference convolution on some AVX-512 CPUs, more than ten
times slower than its AVX2 kernels, while matrix products hardly differ. Capping
``ONEDNN_MAX_CPU_ISA`` before the import avoids it. Whether this CPU is affected is measured once in
two short processes, and the result is stored in the cache folder.
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

from dualml.common import machine
from dualml.common.files import read_json, write_json

VARIABLE = "ONEDNN_MAX_CPU_ISA"
CAP = "AVX2"
#: Variable that passes the reason of the choice to workers.
REASON_VARIABLE = "DUALML_ISA_REASON"
#: Smallest speed-up for which the cap is used; less is noise.
WORTH_IT = 1.3
#: Timeout of each of the two processes in seconds; usually they take three.
LIMIT = 25.0

PROBE = Path(__file__).with_name("isa_probe.py")


@dataclass(frozen=True)
class IsaChoice:
    """The instruction set to use, and the reason.

    Attributes:
        isa: value of ``ONEDNN_MAX_CPU_ISA``, or ``""`` to leave it unset.
        code: ``user``, ``measured_cap``, ``measured_default``, ``not_needed``,
            ``not_installed`` or ``failed``.
        reason: one sentence.
        ratio: time without the cap over time with it; None where nothing was measured.
        default, capped: milliseconds of ``convolution_ms`` and ``matmul_ms``.
        cache: the file in which the measurement is stored, or ``""``.
    """

    isa: str
    code: str
    reason: str
    ratio: float | None = None
    default: Mapping[str, float] = field(default_factory=dict)
    capped: Mapping[str, float] = field(default_factory=dict)
    cache: str = ""


@functools.cache
def choose_isa() -> IsaChoice:
    """Return the choice for this machine, once per process: the user's, none needed without AVX-512
    or MindSpore, the stored one, or that of a new measurement, which takes seconds and is stored in
    the cache folder unless it fails."""
    if (chosen := os.environ.get(VARIABLE)) is not None:
        return IsaChoice(chosen, "user", f"{VARIABLE} is set by the user")
    flags = machine.cpu_flags()
    if "avx512f" not in flags:
        return IsaChoice("", "not_needed", "this CPU has no AVX-512")
    try:
        installed = version("mindspore")
    except PackageNotFoundError:
        return IsaChoice("", "not_installed", "MindSpore is not installed")
    key = _cache_key(
        machine.cpu_model(), installed, sorted(f for f in flags if f.startswith("avx"))
    )
    try:
        folder = machine.cache_dir()
    except (ImportError, OSError, RuntimeError):
        return measure()
    path = folder / f"mindspore-isa-{key}.json"
    if (known := _load_choice(path)) is not None:
        return known
    measured = measure()
    return measured if measured.code == "failed" else _save_choice(path, measured)


def measure() -> IsaChoice:
    """Time the probe `isa_probe.py` without and with the cap on the instruction set, each in a
    process of its own, and return the choice; a failure is a choice with the code ``failed``."""
    timings: list[dict[str, float]] = []
    for isa in ("", CAP):
        env = {**os.environ, "GLOG_v": "3", **({VARIABLE: isa} if isa else {})}
        try:
            result = machine.run_bounded([sys.executable, "-P", str(PROBE)], LIMIT, env)
        except OSError as error:
            return IsaChoice("", "failed", f"the measurement could not start: {error}")
        if result.code is None:
            return IsaChoice("", "failed", f"the measurement took longer than {LIMIT:.0f} s")
        try:
            timing = json.loads(result.out.strip().splitlines()[-1])
            timings.append({k: float(timing[k]) for k in ("convolution_ms", "matmul_ms")})
        except (IndexError, KeyError, TypeError, ValueError):
            last = (result.err.strip().splitlines() or ["no output"])[-1][:200]
            return IsaChoice("", "failed", f"the measurement ended with {result.code}: {last}")
    return decide(*timings)


def decide(default: Mapping[str, float], capped: Mapping[str, float]) -> IsaChoice:
    """Return the choice: the cap ``AVX2`` if with it convolution and matrix product together are at
    least `WORTH_IT` times as fast, else none. ``default`` and ``capped`` are milliseconds without
    and with the cap, by ``convolution_ms`` and ``matmul_ms``."""
    ratio = sum(default.values()) / sum(capped.values())
    times = f"{default['convolution_ms']:.1f} ms, {CAP} {capped['convolution_ms']:.1f} ms"
    if ratio >= WORTH_IT:
        reason = f"convolutions of LeNet: default {times}"
        return IsaChoice(CAP, "measured_cap", reason, ratio, dict(default), dict(capped))
    reason = f"the default is fast here: convolutions of LeNet {times}"
    return IsaChoice("", "measured_default", reason, ratio, dict(default), dict(capped))


def _cache_key(*parts: object) -> str:
    """Return 16 hex digits of a hash of ``parts``, the cap and the probe's source, which name a
    stored measurement."""
    text = json.dumps([PROBE.read_text("utf-8"), CAP, *parts])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _load_choice(path: Path) -> IsaChoice | None:
    """Load a stored measurement and decide again; None if the file is missing or damaged."""
    try:
        record = read_json(path)
        choice = decide(
            {k: float(v) for k, v in record["default"].items()},
            {k: float(v) for k, v in record["capped"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return None
    return IsaChoice(**{**asdict(choice), "cache": str(path)})


def _save_choice(path: Path, choice: IsaChoice) -> IsaChoice:
    """Store the measurement and return it with the file's path; if the folder is not writable,
    return it unchanged, and it is repeated next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(choice))
    except OSError:
        return choice
    return IsaChoice(**{**asdict(choice), "cache": str(path)})
