"""The device that a MindSpore worker computes on, and the facts about it that the run folder
records."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

import mindspore as ms
import numpy as np

from dualml.common import machine
from dualml.common.errors import Unsupported, UserError
from dualml_ms.common.graphs import graph_cache
from dualml_ms.common.isa import REASON_VARIABLE

VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_MAX_CPU_ISA",
    *machine.WAITING,
)
#: Names the execution mode, and MindSpore's constants of its values.
MODE_VARIABLE = "DUALML_MINDSPORE_MODE"
MODES = {"graph": ms.GRAPH_MODE, "pynative": ms.PYNATIVE_MODE}
TARGETS = {"cpu": "CPU", "gpu": "GPU", "ascend": "Ascend"}
#: ``dnnl_cpu_isa_t`` of oneDNN 3: the instruction set in use, after any cap.
ISA_NAMES = {
    0x1: "SSE41",
    0x3: "AVX",
    0x7: "AVX2",
    0xF: "AVX2_VNNI",
    0x1F: "AVX2_VNNI_2",
    0x27: "AVX512_CORE",
    0x67: "AVX512_CORE_VNNI",
    0xE7: "AVX512_CORE_BF16",
    0x1EF: "AVX512_CORE_FP16",
    0xFEF: "AVX512_CORE_AMX",
    0x1FEF: "AVX512_CORE_AMX_FP16",
}


def resolve_device(name: str = "auto") -> str:
    """Select a device by name, ``auto``, ``cpu``, ``cuda[:i]``, ``gpu[:i]`` or ``ascend[:i]``;
    return MindSpore's name for it.

    MindSpore only tells whether it can drive a device when it is selected, and a process keeps the
    device that it selected first. ``auto`` is a GPU or an Ascend if this build supports one, else
    the CPU.

    Raises:
        UserError: an unknown word.
        Unsupported: this build of MindSpore cannot drive the device; the text is its reason.
    """
    kind, index = machine.parse_device(name)
    if kind == "auto":
        kind = next((k for k in ("gpu", "ascend") if is_available(k)), "cpu")
    target = TARGETS[kind]
    try:
        ms.set_device(target, index)
    except (RuntimeError, ValueError) as error:
        if target == "CPU" and ms.get_context("device_target") == "CPU":
            return target  # an earlier computation has already chosen the CPU
        reason = str(error).strip().split(". ")[0].splitlines()[0]
        raise Unsupported(
            f"MindSpore {ms.__version__} cannot use device {name}: {reason}; use --device cpu"
        ) from None
    return target


def is_available(kind: str) -> bool:
    """Return whether this build drives a device of this machine; ``kind`` is ``gpu`` or
    ``ascend``."""
    # Only if there is one: MindSpore logs long errors about plugins that do not load.
    if kind == "gpu" and not machine.query_gpus()[0]:
        return False
    if kind == "ascend" and not Path("/dev/davinci_manager").exists():
        return False
    try:
        return bool(ms.hal.is_available(TARGETS[kind]))
    except (RuntimeError, ValueError):
        return False


def execution_mode() -> int:
    """Return MindSpore's constant of the execution mode that ``DUALML_MINDSPORE_MODE`` names:
    ``graph`` (the default) compiles every step, ``pynative`` runs it operation by operation, as
    Python does.

    Raises:
        UserError: there is no such mode.
    """
    name = os.environ.get(MODE_VARIABLE) or "graph"
    if name not in MODES:
        raise UserError(f"{MODE_VARIABLE}={name}: there is no such mode; use {' or '.join(MODES)}")
    return MODES[name]


def environment(device: str, threads: int) -> dict[str, str]:
    """Return the facts that decide this process's numbers and speed, as flat text; unknown ones are
    omitted. On a CPU the first call in a process sets up its `graph_cache`.

    Args:
        device: from `resolve_device`.
        threads: threads the worker asked for; ``OMP_NUM_THREADS`` is recorded if it is 0.
    """
    version, isa = onednn_info()
    facts = {
        "python": platform.python_version(),
        "mindspore": ms.__version__,
        "numpy": np.__version__,
        "build": ", ".join(
            ["CPU", *(f"plugin for {k}" for k in ("GPU", "Ascend") if _has_plugin(k))]
        ),
        "device": device.lower() if device == "CPU" else f"{device.lower()}:{device_id()}",
        "device_name": device_name(device),
        "threads": str(threads or os.environ.get("OMP_NUM_THREADS", "")),
        "runtime_threads": str(ms.get_context("runtime_num_threads")),
        "dtype": "float32",
        "deterministic": "yes" if _deterministic(device) else "no",
        "mode": "graph" if ms.get_context("mode") == ms.GRAPH_MODE else "pynative",
        "cpu_capability": isa,
        "isa_reason": os.environ.get(REASON_VARIABLE, ""),
        "onednn": version,
    }
    if facts["mode"] == "graph":
        store = graph_cache()
        facts["graphs"] = f"kept in {store.folder.name}" if store else "compiled anew"
    facts |= {name: os.environ.get(name, "") for name in VARIABLES}
    return {key: value for key, value in facts.items() if value} | machine.environment()


def device_name(device: str) -> str:
    """Return the accelerator's name as MindSpore reports it, empty if it reports none; on a CPU the
    processor's."""
    if device == "CPU":
        return machine.cpu_model()
    try:
        return str(ms.hal.get_device_name(device_id(), device))
    except (RuntimeError, ValueError, TypeError):
        return ""


def device_id() -> int:
    """Return the number of the accelerator that `resolve_device` selected."""
    return int(ms.get_context("device_id"))


def onednn_info() -> tuple[str, str]:
    """Return the version of the bundled oneDNN and the name of the instruction set it uses; two
    empty texts if unknown."""

    class Version(ctypes.Structure):
        _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))

    try:
        path = next(Path(ms.__file__).parent.glob("lib/libdnnl.so*"))
        library = ctypes.CDLL(str(path))
        library.dnnl_version.restype = ctypes.POINTER(Version)
        v = library.dnnl_version().contents
        isa = int(library.dnnl_get_effective_cpu_isa())
    except (StopIteration, OSError, AttributeError, ValueError):
        return "", ""
    return f"{v.major}.{v.minor}.{v.patch}", ISA_NAMES.get(isa, hex(isa))


def _has_plugin(target: str) -> bool:
    """Return whether the installed MindSpore contains the plugin of a device, ``GPU`` or
    ``Ascend``; it may still fail to load."""
    plugins = Path(ms.__file__).parent / "lib" / "plugin"
    return any(plugins.glob(f"libmindspore_{target.lower()}*"))


def _deterministic(device: str) -> bool:
    """Return whether results repeat bit for bit: True on a CPU, where they do in one and the same
    mode, on accelerators whether MindSpore's deterministic mode is on."""
    return device == "CPU" or ms.get_context("deterministic") == "ON"
