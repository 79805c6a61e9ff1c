"""Find the published releases of PyTorch and MindSpore that fit a machine, and their pip commands.

Compatibility data is in `published.toml`, with its sources. Among the releases that dualml is
tested with, the newest one that fits Python, driver and GPUs of the machine is chosen.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from dualml.common import machine
from dualml.common.parse import from_toml
from dualml.interface.doctor.finding import DoctorFinding, declared_versions, make_finding

INDEX = "https://download.pytorch.org/whl/{build}"
#: File with the version of CANN, below its folder.
CANN = "*-linux/ascend_toolkit_install.info"
CANN_FOLDERS = ("/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest")
#: The first device of Huawei's NPU driver.
NPU = Path("/dev/davinci0")


@cache
def published_releases() -> Mapping[str, Any]:
    """Return the compatibility data: ``torch``, ``cuda`` and ``mindspore``, a list of versions
    each, the newest first, and ``sources``."""
    return from_toml((files("dualml.interface.doctor") / "published.toml").read_text("utf-8"))


@dataclass(frozen=True)
class MachineFacts:
    """Facts about a machine that decide which releases fit.

    Attributes:
        python: version of Python, ``3.11.7``.
        system: ``Linux``, ``Darwin`` or ``Windows``.
        driver: version of NVIDIA's driver, ``535.129.03``; empty without a GPU.
        capabilities: compute capabilities of the GPUs, ``9.0``, as far as the driver reports them.
        npu: whether there is an NPU.
        cann: version of CANN; empty if none is found.
    """

    python: str
    system: str = "Linux"
    driver: str = ""
    capabilities: tuple[str, ...] = ()
    npu: bool = False
    cann: str = ""


def read_machine_facts() -> MachineFacts:
    """Return the facts about this machine."""
    gpus = machine.query_gpus()[0]
    return MachineFacts(
        python="{}.{}.{}".format(*sys.version_info),
        system=platform.system(),
        driver=gpus[0].driver if gpus else "",
        capabilities=tuple(gpu.capability for gpu in gpus if gpu.capability),
        npu=NPU.exists(),
        cann=cann_version(),
    )


def cann_version() -> str:
    """Return the version of the CANN toolkit in the folders that the environment names, else in the
    usual ones; empty if none is there."""
    named = [os.environ.get(name, "") for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")]
    folders = map(Path, filter(None, (*named, *CANN_FOLDERS)))
    for path in (path for folder in folders for path in folder.glob(CANN)):
        with contextlib.suppress(OSError):
            if found := re.search(r"^version=(\S+)", path.read_text("utf-8", "replace"), re.M):
                return found[1]
    return ""


@dataclass(frozen=True)
class TorchRelease:
    """A release of PyTorch that fits, and its build.

    Attributes:
        cuda: data of the CUDA version it is built with; None for CPU builds.
        full_support: whether the driver fully supports this CUDA version, rather than by minor
            version compatibility.
    """

    version: str
    torchvision: str
    cuda: Mapping[str, Any] | None = None
    full_support: bool = True
    system: str = "Linux"

    @property
    def command(self) -> str:
        """The pip command that installs it and torchvision, from the index of its build, on macOS
        from the usual one."""
        build = f"cu{self.cuda['version'].replace('.', '')}" if self.cuda else "cpu"
        index = f" --index-url {INDEX.format(build=build)}" if self.system != "Darwin" else ""
        wanted = f"'torch=={self.version}.*' 'torchvision=={self.torchvision}.*'"
        return f"pip install {wanted}{index}"


def tested_releases(package: str) -> Iterator[Mapping[str, Any]]:
    """Yield the releases of a framework within the range that dualml is tested with, the newest
    first."""
    wanted = declared_versions(package, package)
    return (row for row in published_releases()[package] if row["version"] in wanted)


def newest_torch(facts: MachineFacts) -> TorchRelease | None:
    """Return the newest release of PyTorch that fits, for the GPUs if the machine has any; None if
    no release does.

    Among the CUDA versions of a release, the newest that the driver fully supports is chosen; if
    there is none, the oldest that it can run.
    """
    for row in tested_releases("torch"):
        if facts.python not in SpecifierSet(row["python"]):
            continue
        names = row["version"], row["torchvision"]
        if not facts.driver:
            return TorchRelease(*names, system=facts.system)
        rows = [cuda_row(version) for version in row["cuda"]]
        runs = [one for one in rows if runs_on(one, facts.driver, facts.capabilities)]
        known = [one for one in runs if is_at_least(facts.driver, one["toolkit_driver"])]
        if runs:
            return TorchRelease(*names, known[-1] if known else runs[0], bool(known), facts.system)
    return None


def cuda_row(version: str) -> Mapping[str, Any]:
    """Return the data of a CUDA version such as ``12.6``.

    Raises:
        StopIteration: the version is unknown.
    """
    return next(row for row in published_releases()["cuda"] if row["version"] == version)


def oldest_driver(version: str) -> str:
    """Return the oldest driver that runs any CUDA of the same major version; empty if unknown."""
    major = version.partition(".")[0]
    rows = (
        row for row in published_releases()["cuda"] if row["version"].partition(".")[0] == major
    )
    return next((str(row["driver"]) for row in rows), "")


def runs_on(row: Mapping[str, Any], driver: str, capabilities: Sequence[str]) -> bool:
    """Return whether PyTorch's build for the CUDA version of ``row`` runs with the driver and on
    all GPUs, whose compute ``capabilities`` are given; without any, the driver alone decides."""
    least, most = (Version(bound) for bound in row.get("capability", ("0.0", "999.0")))
    # Code built for a GPU also runs on later ones of the same major version.
    fits = all(least <= Version(c) and Version(c).major <= most.major for c in capabilities)
    return fits and is_at_least(driver, row["driver"])


def is_at_least(version: str, least: str) -> bool:
    """Return whether a version is at least another."""
    return Version(version) >= Version(least)


def newest_mindspore(facts: MachineFacts) -> Mapping[str, Any] | None:
    """Return the row of the newest release of MindSpore that fits, from `published_releases`, or
    None if none does.

    On an NPU it has to match the installed CANN, if there is one.
    """
    for row in tested_releases("mindspore"):
        fits = facts.python in SpecifierSet(row["python"])
        if fits and (not facts.npu or not facts.cann or row["cann"] == facts.cann):
            return row
    return None


def examine_fit(facts: MachineFacts) -> Iterable[DoctorFinding]:
    """Yield one finding per framework: the newest release that fits a machine, with its install
    command, or that none does."""
    yield _torch_finding(facts)
    yield _mindspore_finding(facts)


def _torch_finding(facts: MachineFacts) -> DoctorFinding:
    """Return the finding about the newest PyTorch that fits, or a warning that none does."""
    chosen = newest_torch(facts)
    if chosen is None:
        key = "torch_none_gpu" if facts.driver else "torch_none"
        return make_finding("torch", "warn", key, key, **vars(facts))
    values = {"version": chosen.version, "command": chosen.command, **vars(facts)}
    if chosen.cuda is None:
        return make_finding("torch", "ok", "torch_cpu", **values)
    key = "torch_cuda" if chosen.full_support else "torch_cuda_minor"
    return make_finding(
        "torch",
        "ok",
        key,
        **values,
        cuda=chosen.cuda["version"],
        least=chosen.cuda["driver"],
        whole=chosen.cuda["toolkit_driver"],
    )


def _mindspore_finding(facts: MachineFacts) -> DoctorFinding:
    """Return the finding about the newest MindSpore that fits, or a warning that none does."""
    row = newest_mindspore(facts)
    if row is None:
        key = "mindspore_none_cann" if facts.npu and facts.cann else "mindspore_none"
        return make_finding("mindspore", "warn", key, key, **vars(facts))
    key = "mindspore_npu" if facts.npu else "mindspore_cpu"
    # The driver in the row is Huawei's, that in `facts` NVIDIA's.
    values = vars(facts) | {name: row[name] for name in ("version", "cann", "driver")}
    return make_finding(
        "mindspore",
        "ok",
        key,
        **values,
        command=f"pip install 'mindspore=={row['version']}' 'numpy<2'",
    )
