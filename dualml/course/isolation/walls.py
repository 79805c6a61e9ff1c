"""The isolation of one check: its setup, and the confinement of a rank."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import struct
import tempfile
from pathlib import Path

from dualml.course.isolation import filters, limits, root, syscalls
from dualml.launch.child import on_death_of_parent

#: User of students' code, inside and outside, if the judge is root: nobody.
NOBODY = 65534
NAMESPACES = (
    syscalls.NEWNS
    | syscalls.NEWPID
    | syscalls.NEWNET
    | syscalls.NEWIPC
    | syscalls.NEWUTS
    | syscalls.NEWCGROUP
)


class Walls:
    """The isolation ("walls") around the ranks of one check.

    Args:
        contents: contents of their root file system; None: no isolation.
        network: whether the ranks can reach one another over a loopback interface of their own.
        in_bubblewrap: whether bubblewrap has already isolated this process.
        mapped: a pair of pipe ends through which the server is asked to map the users of the new
            namespace: one byte is written, one is read.
    """

    def __init__(
        self,
        contents: root.Contents | None,
        network: bool,
        in_bubblewrap: bool,
        mapped: tuple[int, int],
    ) -> None:
        self.contents, self.network, self.mapped = contents, network, mapped
        self.in_bubblewrap = in_bubblewrap
        self.is_up, self.home = contents is not None, Path(root.HOME)
        self.baseline_bytes = limits.address_space()  # behind the walls nothing tells

    def enter_namespaces(self) -> None:
        """Move this process and its future children into new namespaces with their own root;
        without isolation only make a temporary home, and in bubblewrap do nothing.

        Raises:
            OSError: the system does not allow it.
        """
        if self.contents is None:
            self.home = Path(tempfile.mkdtemp(prefix="dualml-"))
        if self.contents is None or self.in_bubblewrap:
            return
        uid, gid = os.geteuid(), os.getegid()
        if uid == 0:  # root builds the root as it is, and is nobody afterwards
            syscalls.unshare(NAMESPACES)
            bring_up_loopback(self.network)
            root.build_root(self.contents, NOBODY, NOBODY)
            os.setgroups([])
            syscalls.unshare(syscalls.NEWUSER)
            os.write(self.mapped[1], b"m")
            if os.read(self.mapped[0], 1) != b"m":
                raise OSError("the users of a namespace could not be mapped")
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        else:
            syscalls.unshare(NAMESPACES | syscalls.NEWUSER)
            Path("/proc/self/setgroups").write_text("deny", "ascii")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", "ascii")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", "ascii")
            bring_up_loopback(self.network)
            root.build_root(self.contents, uid, gid)
        on_death_of_parent(signal.SIGKILL)  # which was lost with the change of users

    def confine_rank(self, seconds: float) -> None:
        """Confine this process for good, as a rank whose calls may take ``seconds`` together;
        without isolation only limit its resources."""
        if not self.is_up:
            limits.apply_limits(seconds, self.baseline_bytes)
            return
        if not self.in_bubblewrap:
            alone = syscalls.NEWNS | syscalls.NEWIPC
            syscalls.unshare(alone | (0 if self.network else syscalls.NEWNET))
            root.make_home()
        limits.apply_limits(seconds, self.baseline_bytes, walls=True)
        syscalls.drop_capabilities()
        syscalls.prctl(syscalls.NO_NEW_PRIVS, 1)

    def home_of(self, rank: int) -> Path:
        """Return the working folder of a rank; in namespaces of dualml's own the path is the same
        for every rank, each in its own file system."""
        return self.home if self.is_up and not self.in_bubblewrap else self.home / str(rank)

    def seal(self, home: Path) -> None:
        """Apply the last restrictions to this process, whose files are in ``home``: files and
        system calls; nothing without isolation."""
        if self.contents is None:
            return
        shown = [path for path in self.contents.shown if os.path.exists(path)]
        filters.confine_files([str(home), "/dev"], shown)
        filters.filter_system_calls(self.network)

    def remove(self) -> None:
        """Remove the temporary folder of a process without isolation."""
        if not self.is_up:
            shutil.rmtree(self.home, ignore_errors=True)


def bring_up_loopback(network: bool) -> None:
    """Bring up the loopback interface of this network namespace; do nothing without a
    ``network``."""
    if not network:
        return
    call, flags = syscalls.LOOPBACK_UP
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        fcntl.ioctl(door, call, struct.pack("16sh14x", b"lo", flags))
