"""Facts about the machine, and subprocesses that cannot hang."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest

from dualml.common import machine
from dualml.common.errors import UserError


def has_ended(pid: int) -> bool:
    """Whether a process has ended; one that waits to be reaped counts as ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def test_recorded_cores_are_the_usable_ones() -> None:
    told = machine.environment()
    assert machine.recorded_cores(told) == machine.usable_cores()
    assert machine.recorded_cores({}) is machine.recorded_cores({"cores": "many"}) is None


def test_bounded_returns_what_the_command_said() -> None:
    told = machine.run_bounded(
        [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); exit(3)"],
        30,
    )
    assert (told.code, told.out, told.err) == (3, "out\n", "err\n")


def test_bounded_says_which_signal_ended_it() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert machine.run_bounded([sys.executable, "-c", code], 30).code == -11


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at /proc")
def test_bounded_kills_the_whole_group_when_time_is_up() -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    start = time.monotonic()
    told = machine.run_bounded([sys.executable, "-c", code], 2)
    assert told.code is None
    assert time.monotonic() - start < 20
    child = int(told.out)
    deadline = time.monotonic() + 5
    while not has_ended(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert has_ended(child)


def test_bounded_refuses_a_command_that_is_not_there() -> None:
    with pytest.raises(OSError, match="no-such-command"):
        machine.run_bounded(["no-such-command-anywhere"], 5)


def cgroup(folder: Path, monkeypatch: pytest.MonkeyPatch, listing: str) -> None:
    """Point the module at a made-up cgroup tree."""
    listed = folder / "self"
    listed.write_text(listing)
    real = machine._read_stripped
    monkeypatch.setattr(machine, "CGROUP", folder)
    monkeypatch.setattr(
        machine, "_read_stripped", lambda p: real(listed if str(p) == "/proc/self/cgroup" else p)
    )


@pytest.mark.parametrize(
    ("quota", "cores"), [("150000 100000", 2), ("max 100000", 8), ("100000 100000", 1), ("", 8)]
)
def test_usable_cores_obey_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int
) -> None:
    monkeypatch.setattr(machine, "USABLE", list(range(8)))
    (tmp_path / "job" / "inner").mkdir(parents=True)
    (tmp_path / "job" / "cpu.max").write_text(quota)  # the parent's limit binds the child
    cgroup(tmp_path, monkeypatch, "0::/job/inner\n")
    assert machine.usable_cores() == cores


def test_usable_cores_obey_the_old_kind_of_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "USABLE", list(range(8)))
    (tmp_path / "cpu" / "job").mkdir(parents=True)
    (tmp_path / "cpu" / "job" / "cpu.cfs_quota_us").write_text("300000")
    (tmp_path / "cpu" / "job" / "cpu.cfs_period_us").write_text("100000")
    cgroup(tmp_path, monkeypatch, "3:cpu,cpuacct:/job\n")
    assert machine.usable_cores() == 3


def test_memory_obeys_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text(str(256 * 2**20))
    cgroup(tmp_path, monkeypatch, "0::/\n")
    assert machine.usable_memory() == 256 * 2**20


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity")
def test_usable_cores_obey_affinity() -> None:
    """Usable cores follow the CPU affinity; tested in a separate process that loses its cores."""
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from dualml.common import machine\n"
        "print(machine.usable_cores(), machine.default_threads())"
    )
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert out.stdout.split() == ["1", "1"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity")
@pytest.mark.parametrize(
    ("rank", "cores", "mine"),
    [
        (0, 1, {4}),
        (1, 1, {5}),
        (2, 1, {7}),
        (3, 1, {4}),
        (1, 2, {7, 4}),
        (0, 9, {4, 5, 7}),
        (1, 0, None),
    ],
)
def test_a_rank_has_cores_of_its_own_while_there_are_some(
    monkeypatch: pytest.MonkeyPatch, rank: int, cores: int, mine: set[int] | None
) -> None:
    asked: list[set[int]] = []
    monkeypatch.setattr(machine, "USABLE", [4, 5, 7])
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, chosen: asked.append(chosen))
    machine.pin_cores(rank, cores)
    assert asked == ([] if mine is None else [mine])


def test_default_threads_are_the_users_if_set(clean_environ: pytest.MonkeyPatch) -> None:
    own = machine.default_threads()
    assert 1 <= own <= machine.usable_cores()
    clean_environ.setenv("OMP_NUM_THREADS", str(own + 5))
    assert machine.default_threads() == own + 5
    clean_environ.setenv("OMP_NUM_THREADS", "many")
    assert machine.default_threads() == own


def test_peak_memory_grows_with_what_was_used() -> None:
    before = machine.peak_memory_mb()
    block = np.ones(int((before + 64) * 2**17))  # more than the peak so far, in float64
    assert machine.peak_memory_mb() > before + 32
    assert 1 < machine.peak_memory_mb() < 2**20  # megabytes, not kilobytes
    del block


def test_environment_is_flat_text_with_the_cpu() -> None:
    told = machine.environment()
    assert all(isinstance(v, str) and v for v in told.values())
    assert told["cpu"] == machine.cpu_model()
    assert str(machine.usable_cores()) in told["cores"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity")
def test_surroundings_are_those_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, loads in (({3, 1}, (0.0, 1.25, 2.5)), ({2}, (4.0, 3.0, 2.0))):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, there=cores: there)
        monkeypatch.setattr(os, "getloadavg", lambda told=loads: told)
        assert machine.affinity_and_load() == {
            "affinity": " ".join(map(str, sorted(cores))),
            "load": " ".join(f"{load:.2f}" for load in loads),
        }


class NVMLError(Exception):
    pass


def nvml(gpus: int, fails: str = "") -> types.SimpleNamespace:
    """A fake NVML driver with so many devices, and one call that fails."""
    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "550.54.15",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12040,
        "nvmlDeviceGetCount": lambda: gpus,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda gpu: f"NVIDIA A100 {gpu}",
        "nvmlDeviceGetMemoryInfo": lambda gpu: types.SimpleNamespace(total=81920 * 2**20 + gpu),
        "nvmlDeviceGetCudaComputeCapability": lambda gpu: (8, gpu),
    }

    def refuse(*words: object) -> None:
        raise NVMLError

    return types.SimpleNamespace(
        NVMLError=NVMLError, **answers | ({fails: refuse} if fails else {})
    )


def test_nvidia_is_what_the_driver_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(2))
    gpus, cuda = machine.query_gpus()
    assert [(g.name, g.driver, g.memory_mb, g.capability) for g in gpus] == [
        ("NVIDIA A100 0", "550.54.15", "81920", "8.0"),
        ("NVIDIA A100 1", "550.54.15", "81920", "8.1"),
    ]
    assert cuda == "12.4"


def test_a_gpu_without_memory_of_its_own_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(1, "nvmlDeviceGetMemoryInfo"))
    gpus, _ = machine.query_gpus()
    assert [(g.name, g.memory_mb) for g in gpus] == [("NVIDIA A100 0", "?")]


@pytest.mark.parametrize(
    "library",
    [None, nvml(0), nvml(1, "nvmlInit"), nvml(1, "nvmlDeviceGetCount")],
    ids=["no package", "no device", "no driver", "a driver that fails"],
)
def test_without_a_driver_that_answers_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, library: types.SimpleNamespace | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert machine.query_gpus() == ((), "")


def test_a_driver_that_does_not_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    library = nvml(1)
    library.nvmlInit = end.wait
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(machine, "NVML_S", 0.1)
    monkeypatch.setattr(machine, "SILENT", threading.Event())
    assert machine.query_gpus() == ((), "")
    end.set()
    monkeypatch.setitem(sys.modules, "pynvml", nvml(1))
    assert machine.query_gpus() == ((), "")  # nobody waits twice


def test_git_revision_is_the_checkouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dualml").mkdir()
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "dualml" / "common" / "machine.py"))
    assert machine.git_revision() is None  # an installed wheel

    def git(*words: str) -> str:
        settings = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        made = subprocess.run(
            ["git", *settings, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return made.stdout.strip()

    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "one")
    clean = machine.git_revision()
    assert clean == git("rev-parse", "--short", "HEAD")
    (tmp_path / "file").write_text("2")
    assert machine.git_revision() == f"{clean}-dirty"


def test_cache_dir_is_the_users_choice(clean_environ: pytest.MonkeyPatch) -> None:
    default = machine.cache_dir()
    assert default.name == "dualml"
    clean_environ.setenv("DUALML_CACHE", "~/elsewhere")
    assert machine.cache_dir() == Path.home() / "elsewhere"


@pytest.mark.parametrize(
    ("name", "kind", "index"),
    [
        ("auto", "auto", 0),
        ("cpu", "cpu", 0),
        ("cuda", "gpu", 0),
        ("cuda:2", "gpu", 2),
        ("gpu", "gpu", 0),
        ("ascend:1", "ascend", 1),
    ],
)
def test_device_words(name: str, kind: str, index: int) -> None:
    assert machine.parse_device(name) == (kind, index)


@pytest.mark.parametrize("name", ["", "tpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "auto:0"])
def test_other_device_words_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="device"):
        machine.parse_device(name)
