"""Findings of `dualml doctor` about the machine, without any framework."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version

from dualml.common import machine
from dualml.common.network import (
    LEVELS,
    NCCL_DEBUG,
    interfaces,
    network_variables,
    unknown_interfaces,
)
from dualml.common.version import __version__
from dualml.interface.doctor.finding import DoctorFinding, make_finding

OLDEST_PYTHON = (3, 11)
#: MindSpore 2.10 has no wheels for anything newer.
NEWEST_PYTHON = (3, 12)
LITTLE_MEMORY_MB = 2048


def examine_system() -> Iterator[DoctorFinding]:
    """Yield the findings about Python, hardware, network, datasets and cache."""
    yield from _python()
    yield from _hardware()
    yield from _network()
    yield from _data()
    yield _cache()


def _python() -> Iterator[DoctorFinding]:
    """Yield findings about Python, dualml and NumPy."""
    shown = f"{platform.python_version()}, {sys.executable}"
    if OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        yield make_finding("python", "ok", text=shown)
    else:
        yield make_finding("python", "warn", "python", "python", shown=shown)
    versions = (__version__, machine.git_revision())
    yield make_finding("dualml", "ok", text=", ".join(filter(None, versions)))
    yield make_finding("numpy", "ok", text=version("numpy"))


def _hardware() -> Iterator[DoctorFinding]:
    """Yield findings about CPU, threads, memory and NVIDIA GPUs."""
    cpu, cores, usable = machine.cpu_model(), machine.physical_cores(), machine.usable_cores()
    yield make_finding("cpu", "ok", "cpu", cpu=cpu, cores=cores, usable=usable)
    n = machine.default_threads()
    source = "OMP_NUM_THREADS" if os.environ.get("OMP_NUM_THREADS") == str(n) else ""
    yield make_finding("threads", "ok", text=f"{n} {source}".strip())
    memory, (gpus, cuda) = machine.usable_memory() // 2**20, machine.query_gpus()
    if memory < LITTLE_MEMORY_MB:
        yield make_finding("memory", "warn", "memory", "memory", mb=memory)
    else:
        yield make_finding("memory", "ok", text=f"{memory} MB")
    if not gpus:
        yield make_finding("gpu", "ok", "no_gpu")
        return
    for gpu in gpus:
        yield make_finding("gpu", "ok", text=f"{gpu.name}, {gpu.memory_mb} MB")
    yield make_finding("cuda driver", "ok", text=f"{gpus[0].driver}, CUDA {cuda or '?'}")


def _network() -> Iterator[DoctorFinding]:
    """Yield findings about network variables that are set, and whether they fit this machine."""
    known = interfaces()
    for name, value in network_variables().items():
        if name == NCCL_DEBUG:
            if value.upper() in LEVELS:
                yield make_finding(name, "ok", text=value)
            else:
                levels = ", ".join(LEVELS)
                yield make_finding(name, "warn", "level", "level", value=value, levels=levels)
        elif lost := unknown_interfaces(name, value, known):
            shown = {"lost": ", ".join(lost), "known": ", ".join(known) or "?"}
            yield make_finding(name, "warn", "interface", "interface", value=value, **shown)
        else:
            yield make_finding(name, "ok", text=value)


def _data() -> Iterator[DoctorFinding]:
    """Yield a finding on the location of each image dataset: a warning if it is absent, a problem
    if it is damaged."""
    from dualml.experiment.data.overview import list_image_datasets

    for row in list_image_datasets():
        name = f"data {row['name']}"
        if row["problem"]:
            problem, _, remedy = str(row["problem"]).partition("; remedy: ")
            remedy = remedy or f"dualml data verify {row['name']}"
            yield make_finding(name, "problem", "data_problem", remedy, problem=problem)
        elif row["found"] == "absent":
            yield make_finding(name, "warn", "data_absent", "data_absent", name=row["name"])
        else:
            yield make_finding(name, "ok", f"data_{row['found']}", folder=row["folder"] or "")


def _cache() -> DoctorFinding:
    """Return the finding on whether the cache folder is writable; it is created if it is
    missing."""
    folder = machine.cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        key, why = "unwritable", error.strerror
        return make_finding("cache", "problem", key, key, folder=folder, error=why)
    return make_finding("cache", "ok", "writable", folder=folder)
