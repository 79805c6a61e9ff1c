"""The root file system that students' code sees: interpreter and packages, read-only, without
dualml.

Only the paths listed here are visible: no home folders, no submissions, no ``/proc``, and none of
dualml's own files, which are the solutions. Every rank has its own temporary file system at `HOME`,
with a quota.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.course.forbidden import READY_MADE
from dualml.course.guards import OWN_MODULE
from dualml.course.isolation.syscalls import (
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_REC,
    MS_SLAVE,
    change_root,
    make_read_only,
    mount,
)

#: Folder of a student's files, where they may write: bytes and files per rank.
HOME, QUOTA, INODES = "/home/student", 64 << 20, 4096
#: Paths that programs expect on every Linux, visible if they exist.
SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/lib32",
    "/bin",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/alternatives",
    "/sys/devices/system/cpu",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/nix/store",
    "/gnu/store",
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
#: Modules of a framework's operators.
OPERATORS = re.compile(r"mindspore\.ops(\.|$)|torch(\._C.*)?$|^$")
#: Packages that are hidden because exercises ask for their solutions.
HIDDEN_PACKAGES = re.compile(r"dualml(_torch|_ms)?([-_.].*)?", re.IGNORECASE)
ACCOUNTS = "student:x:{uid}:{gid}::{home}:/nowhere\n"
#: Mount point on which the root is assembled, any folder that every system has.
STAGE = "/tmp"


@dataclass(frozen=True)
class Contents:
    """Contents of the root file system.

    Attributes:
        shown: paths of the machine that are visible, read-only.
        links: (path, target) of symbolic links among them.
        hidden: folders and files below them that appear empty.
    """

    shown: Sequence[str]
    links: Sequence[tuple[str, str]]
    hidden: Sequence[str]


def find_contents() -> Contents:
    """Return the contents that this interpreter needs, with the modules that it has imported."""
    wanted = [*SYSTEM, sys.prefix, sys.base_prefix, sys.exec_prefix, *loaded_library_folders()]
    wanted += [path for path in sysconfig.get_paths().values() if os.path.isdir(path)]
    packages = [path for path in sys.path if os.path.isabs(path) and os.path.isdir(path)]
    for path in packages:
        wanted += [path] if is_installed(path) else modules_in(path)
    shown: list[str] = []
    links: list[tuple[str, str]] = []
    closed = {"/", os.path.expanduser("~")}
    for path in sorted({os.path.abspath(path) for path in wanted} - closed):
        if os.path.islink(path):
            links.append((path, os.readlink(path)))
            path = os.path.realpath(path)
        inside = any(path == there or path.startswith(f"{there}/") for there in shown)
        if os.path.exists(path) and not inside:
            shown = [there for there in shown if not there.startswith(f"{path}/")]
            shown.append(path)
    hidden = {*own_packages(packages, shown), *ready_made_files()}
    return Contents(shown, links, sorted(hidden))


def loaded_library_folders() -> set[str]:
    """Return the folders of the shared libraries that this process has loaded."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
        paths = (line.partition("/")[2] for line in lines)
        return {os.path.dirname(f"/{path}") for path in paths if ".so" in path}
    return set()


def is_installed(path: str) -> bool:
    """Return whether a folder of packages belongs to the interpreter or to the system."""
    return path.startswith((f"{sys.prefix}/", f"{sys.base_prefix}/", "/usr/"))


def modules_in(path: str) -> Iterable[str]:
    """Yield the packages and modules in a folder that may also hold other files, without dualml's
    own; nothing of a checkout (``pyproject.toml``), since it holds solutions."""
    if os.path.exists(f"{path}/pyproject.toml"):
        return
    for name in os.listdir(path):
        whole = f"{path}/{name}"
        package = os.path.isfile(f"{whole}/__init__.py") or name.endswith((".libs", ".dist-info"))
        if not HIDDEN_PACKAGES.fullmatch(name) and (package or name.endswith((".py", ".so"))):
            yield whole


def own_packages(packages: Iterable[str], shown: Sequence[str]) -> Iterable[str]:
    """Yield the paths of dualml's own packages in the visible folders."""
    for folder in packages:
        real = os.path.realpath(folder)
        if any(real == there or real.startswith(f"{there}/") for there in shown):
            yield from (
                f"{real}/{name}" for name in os.listdir(real) if HIDDEN_PACKAGES.fullmatch(name)
            )


def ready_made_files() -> Iterable[str]:
    """Yield the files of the frameworks' ready-made solutions, as far as this process has imported
    them; modules of operators, which contain much else, are not hidden."""
    for name, module in list(sys.modules.items()):
        if OWN_MODULE.fullmatch(name) or name in defining_modules():
            yield from filter(None, (module.__file__, module.__cached__))


@functools.cache
def defining_modules() -> frozenset[str]:
    """Return the names of the imported modules that define the names of `READY_MADE`, without
    modules of operators."""
    found = set()
    for dotted in (name for names in READY_MADE.values() for name in names):
        parent, _, name = dotted.rpartition(".")
        value = getattr(sys.modules.get(parent), name, None)
        found.add(getattr(value, "__module__", None) or "")
    return frozenset(name for name in found if not OPERATORS.match(name))


def build_root(files: Contents, uid: int, gid: int) -> None:
    """Build the root of this process's mount namespace, and change into it.

    Args:
        files: contents of the root.
        uid, gid: user and group that ``/etc/passwd`` and ``/etc/group`` name there.
    """
    os.umask(0o022)  # what is made here is for somebody else
    mount("none", "/", "", MS_REC | MS_SLAVE)
    sources = []
    for path in (*files.shown, *DEVICES):
        with contextlib.suppress(OSError):
            sources.append((path, os.open(path, os.O_PATH | os.O_CLOEXEC)))
    # Through its descriptor a folder can be reached after another has been put over it.
    mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,nr_inodes=4k,mode=755")
    for path, source in sources:
        target = f"{STAGE}{path}"
        make_mount_point(target, os.path.isdir(f"/proc/self/fd/{source}"))
        mount(f"/proc/self/fd/{source}", target, "", MS_BIND | MS_REC)
        os.close(source)
    for path, target in files.links:
        os.makedirs(os.path.dirname(f"{STAGE}{path}"), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.symlink(target, f"{STAGE}{path}")
    for path in files.hidden:
        hide_path(f"{STAGE}{path}")
    for name, pattern in (("passwd", ACCOUNTS), ("group", "student:x:{gid}:\n")):
        place = Path(f"{STAGE}/etc/{name}")
        place.parent.mkdir(exist_ok=True)
        place.write_text(pattern.format(uid=uid, gid=gid, home=HOME), "ascii")
    for path in (HOME, "/dev/shm", "/tmp"):
        os.makedirs(f"{STAGE}{path}", exist_ok=True)
    make_read_only(STAGE)
    change_root(STAGE)


def make_mount_point(target: str, folder: bool) -> None:
    """Make an empty folder or file as a mount point."""
    os.makedirs(target if folder else os.path.dirname(target), exist_ok=True)
    if not folder and not os.path.exists(target):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


def hide_path(target: str) -> None:
    """Cover a folder or file by an empty one; do nothing if it is missing."""
    if os.path.isdir(target):
        mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, "size=4k,nr_inodes=2,mode=555")
    elif os.path.exists(target):
        mount(f"{STAGE}/dev/null", target, "", MS_BIND)


def make_home(size: int = QUOTA, inodes: int = INODES) -> None:
    """Mount this process's own temporary file system at `HOME`, in its own mount namespace."""
    flags = MS_NOSUID | MS_NODEV
    mount("tmpfs", HOME, "tmpfs", flags, f"size={size},nr_inodes={inodes},mode=700")
