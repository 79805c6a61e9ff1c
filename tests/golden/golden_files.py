"""Read the output of a run without what differs from run to run; compare and write records."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

HERE = Path(__file__).resolve().parent

#: Keys, at any depth of a JSON file, whose values are times, memory, the end of a log, or of the
#: machine and the version that ran. The keys are kept: a file that loses one is noticed.
VOLATILE = {
    "created",
    "git",
    "dualml",
    "environment",
    "seconds",
    "wall_s",
    "train_s",
    "compile_s",
    "peak_memory_mb",
    "compute_s",
    "update_s",
    "wait_s",
    "transfer_s",
    "step_s",
    "communication_share",
    "bubble",
    "bubble_low",
    "bubble_high",
    "bubble_passes",
    "checkpoint_every",
    "log",
    "spent",
    "busy",
}
ELIDED = "~"
#: Relative tolerance for float64 numbers of the reference trained on another machine.
RELATIVE, ABSOLUTE = 1e-9, 1e-12


def labs(kind: str) -> dict[str, dict[str, Any]]:
    """Return the labs of a kind of run in ``labs.toml``: name → settings."""
    return tomllib.loads((HERE / "labs.toml").read_text("utf-8"))[kind]


def arguments(asked: dict[str, Any]) -> list[str]:
    """Return the arguments of ``dualml run``, without backend and folder."""
    words = [asked["lab"], *asked.get("flags", ["--quick"]), "--data", asked["data"]]
    for arm in asked.get("arms", []):
        words += ["--arm", arm]
    if seeds := asked.get("seeds"):
        words += ["--seed", seeds]
    for arm in asked.get("each", []):
        for key, value in asked["every"].items():
            words += ["--set", f"arms.{arm}.{key}={value}"]
    for text in asked.get("set", []):
        words += ["--set", text]
    return words


def normalised(value: Any) -> Any:
    """Return a JSON value with the `VOLATILE` keys elided."""
    if isinstance(value, dict):
        return {
            key: ELIDED if key in VOLATILE and inner is not None else normalised(inner)
            for key, inner in value.items()
        }
    return [normalised(inner) for inner in value] if isinstance(value, list) else value


def read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def archive_sha256(path: Path) -> str:
    """Return the digest of an ``.npz`` file's arrays, independent of their compression."""
    with zipfile.ZipFile(path) as packed:
        inner = [(name, sha256(packed.read(name))) for name in sorted(packed.namelist())]
    return sha256(json.dumps(inner).encode())


def columns(path: Path) -> dict[str, dict[str, list[Any]]]:
    """Return the records of a rank: metric → key → its values line by line, without times."""
    found: dict[str, dict[str, list[Any]]] = {}
    for line in path.read_text("utf-8").splitlines():
        record = json.loads(line)
        own = found.setdefault(record.pop("metric"), {})
        for key, value in record.items():
            if key == "unit":
                own[key] = value
            elif key not in VOLATILE:
                own.setdefault(key, []).append(value)
    return found


def summary(path: Path) -> dict[str, list[float]]:
    """Summarise tensors by two numbers each: the norm, and a projection that depends on signs and
    positions. The tensors of a trace are combined by phase and step."""
    groups: dict[str, list[Any]] = {}
    for name, array in sorted(load_file(path).items()):
        groups.setdefault("/".join(name.split("/")[:2]), []).append(
            array.astype(np.float64).ravel()
        )
    found = {}
    for name, parts in groups.items():
        flat = np.concatenate(parts)
        norm = float(np.sqrt(np.square(flat).sum()))
        found[name] = [norm, float(flat @ np.cos(np.arange(len(flat))))]
    return found


def machine() -> dict[str, str]:
    """Return the facts that determine the last bits of float64 arithmetic; equal facts imply equal
    bits."""
    try:
        told = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        told = platform.processor()
    kinds = sorted(set(re.findall(r"^(?:model name|flags|Features)\s*:.*$", told, re.MULTILINE)))
    return {
        "machine": platform.machine(),
        "cpu": sha256("\n".join(kinds).encode())[:16],
        "numpy": np.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def differences(was: Any, now: Any, place: str = "", *, close: bool = False) -> list[str]:
    """Return the differences of two JSON values; with ``close``, floats may differ by rounding."""
    if isinstance(was, dict) and isinstance(now, dict):
        found = []
        for key in [*was, *(k for k in now if k not in was)]:
            here = f"{place}.{key}" if place else str(key)
            if key not in was or key not in now:
                found.append(f"{here}: {'new' if key in now else 'gone'}")
            else:
                found += differences(was[key], now[key], here, close=close)
        return found
    if isinstance(was, list) and isinstance(now, list):
        if len(was) != len(now):
            gone, new = [v for v in was if v not in now], [v for v in now if v not in was]
            return [f"{place}: {len(was)} entries, now {len(now)}; gone {gone}, new {new}"]
        pairs = enumerate(zip(was, now, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{place}[{i}]", close=close)]
    both = isinstance(was, float) and isinstance(now, float)
    if close and both and math.isclose(was, now, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
        return []
    same = type(was) is type(now) and was == now
    return [] if same else [f"{place}: {was!r}, now {now!r}"]


def format_json(value: Any, indent: int = 0) -> str:
    """Return JSON that diffs well line by line: a list of plain values is one line."""
    if isinstance(value, dict) and value:
        inner = [f"{json.dumps(k)}: {format_json(v, indent + 1)}" for k, v in value.items()]
    elif isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        inner = [format_json(v, indent + 1) for v in value]
    else:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    first, last = "{}" if isinstance(value, dict) else "[]"
    lines = ",\n".join(" " * (indent + 1) + line for line in inner)
    return f"{first}\n{lines}\n{' ' * indent}{last}"


def write_record(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(format_json(record) + "\n", "utf-8")
