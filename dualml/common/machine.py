"""Facts about this machine that need no framework, and subprocesses with a time limit."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError, did_you_mean
from dualml.common.network import network_variables

CGROUP = Path("/sys/fs/cgroup")
#: Cores this process could use when it started: it may restrict itself later (`pin_cores`).
USABLE = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
NVML_S = 20.0  # time to answer: a driver may have to start its GPUs first
SILENT = threading.Event()  # set if NVML did not answer in time
MAX_THREADS = 9999  # more than any library supports
#: Name in ``--device`` → kind of device.
DEVICES = {"auto": "auto", "cpu": "cpu", "cuda": "gpu", "gpu": "gpu", "ascend": "ascend"}


def python_argv(*words: str) -> list[str]:
    """Return the command that runs this Python interpreter with the given arguments.

    With ``-P``, nothing is imported from the current folder: a ``random.py`` there would shadow the
    standard library's.
    """
    return [sys.executable, "-P", *words]


def network_id() -> str:
    """Return an identifier that is equal for processes that share a loopback interface.

    Containers have network namespaces of their own under one host name.
    """
    try:
        own = os.readlink("/proc/self/ns/net")
    except OSError:
        own = ""
    return f"{platform.node()} {own}"


@dataclass(frozen=True)
class ProcessResult:
    """Result of a subprocess: its output and exit code, negative for a signal, None after a
    timeout."""

    code: int | None
    out: str
    err: str


def run_bounded(
    argv: Sequence[str], seconds: float, env: Mapping[str, str] | None = None
) -> ProcessResult:
    """Run a command for at most ``seconds``, without input, and kill it and its children
    afterwards.

    After a timeout, the result has code None and the output so far (empty if a process of another
    session holds it open). Without ``env``, the command has the environment of this process.

    Raises:
        OSError: the command cannot be started.
    """
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=env,
        start_new_session=True,
    )
    code: int | None
    try:
        out, err = process.communicate(timeout=seconds)
        code = process.returncode
    except subprocess.TimeoutExpired:
        _kill_group(process.pid)
        try:
            out, err = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:  # a grandchild in a session of its own holds the pipes
            out = err = ""
        code = None
    except BaseException:  # an interruption must not leave the child behind
        _kill_group(process.pid)
        process.wait()
        raise
    _kill_group(process.pid)  # children the command left behind
    return ProcessResult(code, out, err)


def _kill_group(group: int) -> None:
    """Kill all processes of a process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


@dataclass(frozen=True)
class Gpu:
    """A GPU as NVIDIA's NVML describes it; ``capability`` is the compute capability, such as
    ``9.0``."""

    name: str
    driver: str
    memory_mb: str
    capability: str = ""


@functools.cache
def environment() -> dict[str, str]:
    """Return the facts about this machine that a run folder records, as texts: ``platform``,
    ``cpu``, ``cores``, ``memory``, ``gpus``, ``cuda_driver``, ``git`` and `network_variables`.

    Unknown ones are omitted. They are found once per process, and the dict is shared. ``git`` is
    the revision of the checkout, with ``-dirty`` if it was modified.
    """
    gpus, cuda = query_gpus()
    logical = os.cpu_count() or 1
    facts = {
        "platform": platform.platform(),
        "cpu": cpu_model(),
        "cores": f"{usable_cores()} usable, {physical_cores()} physical, {logical} logical",
        "memory": f"{usable_memory() // 2**20} MB",
        "gpus": "; ".join(f"{g.name} ({g.memory_mb} MB, driver {g.driver})" for g in gpus),
        "cuda_driver": cuda,
        "git": git_revision() or "",
        **network_variables(),
    }
    return {key: value for key, value in facts.items() if value}


def affinity_and_load() -> dict[str, str]:
    """Return what may change while this process runs: its CPU affinity and the load averages.

    ``affinity`` has the numbers of its cores, ``load`` the averages over 1, 5 and 15 minutes. What
    the system does not report is omitted.
    """
    facts = {}
    if hasattr(os, "sched_getaffinity"):
        facts["affinity"] = " ".join(map(str, sorted(os.sched_getaffinity(0))))
    if hasattr(os, "getloadavg"):
        facts["load"] = " ".join(f"{average:.2f}" for average in os.getloadavg())
    return facts


def recorded_cores(environment: Mapping[str, str]) -> int | None:
    """Return the number of usable cores that `environment` recorded, or None if it recorded none.

    >>> recorded_cores({"cores": "2 usable, 2 physical, 4 logical"})
    2
    """
    count = str(environment.get("cores", "")).partition(" ")[0]
    return int(count) if count.isdecimal() else None


def cpu_model() -> str:
    """Return the name of the processor, or its architecture if the system reports no name."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Hardware", "cpu model"):
                return value.strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        try:
            return run_bounded(["sysctl", "-n", "machdep.cpu.brand_string"], 5).out.strip()
        except OSError:
            pass
    return platform.processor() or platform.machine()


def cpu_flags() -> frozenset[str]:
    """Return the instruction sets that the kernel reports (``avx2``, ``avx512f``), if any."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return frozenset()
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(flags[1].split()) if flags else frozenset()


def physical_cores() -> int:
    """Return the number of physical cores of the machine; of logical ones if that is unknown."""
    import psutil

    return psutil.cpu_count(logical=False) or os.cpu_count() or 1


def usable_cores() -> int:
    """Return the number of logical cores that this process may use, by its affinity when it started
    and by cgroup quota; at least 1."""
    cores = len(USABLE) or os.cpu_count() or 1
    quotas = [_quota(folder) for folder in _cgroups("cpu")]
    return max(1, min([cores, *(round(q) for q in quotas if q is not None)]))


def pin_cores(rank: int, cores: int) -> None:
    """Pin this thread, and threads it starts, to ``cores`` cores; each rank gets the next ones.

    Ranks wrap around when there are no cores left. 0 pins nothing, and a system that does not
    support pinning is left unchanged.
    """
    if cores and USABLE:
        os.sched_setaffinity(0, {USABLE[(rank * cores + i) % len(USABLE)] for i in range(cores)})


def usable_memory() -> int:
    """Return the bytes of memory, free or not, that this process may use: those of the machine, or
    the smallest cgroup limit."""
    import psutil

    limits = [int(psutil.virtual_memory().total)]
    for folder in _cgroups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read_stripped(folder / name)
            if text.isdigit():
                limits.append(int(text))
    return min(limits)


#: Variables by which GNU OpenMP decides how threads wait for one another, and where they run.
WAITING = (
    "GOMP_SPINCOUNT",
    "OMP_WAIT_POLICY",
    "GOMP_CPU_AFFINITY",
    "OMP_PROC_BIND",
    "OMP_PLACES",
)


def default_threads() -> int:
    """Return the number of compute threads: ``OMP_NUM_THREADS`` if it is from 1 to 9999, even
    beyond the cores; else one per physical core, but at most `usable_cores`."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if re.fullmatch(r"[0-9]{1,4}", asked) and int(asked) > 0:
        return int(asked)
    return max(1, min(usable_cores(), physical_cores()))


def thread_variables(threads: int) -> dict[str, str]:
    """Return environment variables that give every numerical library ``threads`` threads.

    0 or less means `default_threads`. They must be set before the libraries are imported.
    """
    count = str(threads if threads > 0 else default_threads())
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), count)


def peak_memory_mb() -> float:
    """Return the peak resident memory of this process so far, in MB of 2²⁰ bytes."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def query_gpus() -> tuple[tuple[Gpu, ...], str]:
    """Return the NVIDIA GPUs and the newest CUDA version that the driver supports, as ``12.4``.

    All GPUs of the machine are listed, whatever ``CUDA_VISIBLE_DEVICES`` says. Both are empty
    without a driver or a GPU, and if the driver does not answer within `NVML_S`, in which case it
    is not queried again.
    """
    if SILENT.is_set():
        return (), ""
    from concurrent.futures import Future

    answer: Future[tuple[tuple[Gpu, ...], str]] = Future()

    def ask() -> None:
        try:
            answer.set_result(_query_nvml())
        except BaseException as error:  # raised in the calling thread
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        return answer.result(NVML_S)
    except TimeoutError:
        SILENT.set()
        return (), ""


def _query_nvml() -> tuple[tuple[Gpu, ...], str]:
    """Return what `query_gpus` does, however long NVML takes: both empty if it cannot be used.

    See https://docs.nvidia.com/deploy/nvml-api/.
    """
    try:
        import pynvml as nvml

        nvml.nvmlInit()
    except Exception:  # no package, no driver, or none that answers
        return (), ""
    try:
        driver, newest = nvml.nvmlSystemGetDriverVersion(), nvml.nvmlSystemGetCudaDriverVersion_v2()
        gpus = tuple(
            Gpu(
                name=nvml.nvmlDeviceGetName(gpu),
                driver=driver,
                memory_mb=_gpu_memory_mb(nvml, gpu),
                capability=".".join(map(str, nvml.nvmlDeviceGetCudaComputeCapability(gpu))),
            )
            for gpu in map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        )
    except nvml.NVMLError:
        return (), ""
    finally:
        nvml.nvmlShutdown()
    return gpus, f"{newest // 1000}.{newest % 1000 // 10}" if gpus else ""


def _gpu_memory_mb(nvml: Any, gpu: Any) -> str:
    """Return the memory of a GPU in MB of 2²⁰ bytes, as text; ``?`` if it shares memory with the
    CPU and reports none."""
    try:
        return str(nvml.nvmlDeviceGetMemoryInfo(gpu).total // 2**20)
    except nvml.NVMLError:
        return "?"


def git_revision() -> str | None:
    """Return the git revision of the checkout this package runs from, with ``-dirty`` if it was
    modified; None if the package is installed, or git fails."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        described = run_bounded(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"], 10
        )
    except OSError:
        return None
    return described.out.strip() if described.code == 0 else None


def cache_dir() -> Path:
    """Return the cache folder: ``DUALML_CACHE``, or dualml's in the user's cache folder.

    It may not exist yet.
    """
    if chosen := os.environ.get("DUALML_CACHE"):
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("dualml")


def parse_device(name: str) -> tuple[str, int]:
    """Parse ``auto``, ``cpu``, ``cuda[:i]``, ``gpu[:i]`` or ``ascend[:i]`` into kind and index.

    The index is 0 if none is named.

    >>> parse_device("cuda:1")
    ('gpu', 1)

    Raises:
        UserError: an unknown device, an index of ``auto`` or ``cpu``, or one that is not a number
            of one to four digits.
    """
    word, colon, index = name.partition(":")
    if word not in DEVICES:
        raise UserError(f"unknown device {name!r}{did_you_mean(word, DEVICES)}")
    kind = DEVICES[word]
    if colon and (kind not in ("gpu", "ascend") or not re.fullmatch(r"[0-9]{1,4}", index)):
        raise UserError(f"device {name!r}: only cuda, gpu and ascend take an index, as in cuda:0")
    return kind, int(index or 0)


def _read_stripped(path: Path) -> str:
    """Return the stripped text of a file; empty if it cannot be read."""
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""


def _cgroups(controller: str) -> list[Path]:
    """Return the cgroup folders that limit this process: its own and every parent, v2 and v1."""
    folders = []
    for line in _read_stripped(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = CGROUP / controller if controllers else CGROUP
        own = base / path.lstrip("/")
        # Inside a container the path is the host's while the mount shows only our own part.
        folders += [own, *(p for p in own.parents if p == base or base in p.parents)]
    return folders


def _quota(folder: Path) -> float | None:
    """Return the number of cores, often a fraction, that a cgroup grants; None without a limit."""
    limit, _, period = _read_stripped(folder / "cpu.max").partition(" ")
    if not limit:
        limit = _read_stripped(folder / "cpu.cfs_quota_us")
        period = _read_stripped(folder / "cpu.cfs_period_us")
    if not limit.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return int(limit) / int(period)
