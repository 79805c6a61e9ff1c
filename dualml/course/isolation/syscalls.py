"""Linux system calls for which Python 3.11 has no function."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from pathlib import Path
from typing import Any

#: Flags of `unshare`.
NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
#: Flags of `mount` and of `umount2`.
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_SLAVE = 2, 4, 8, 4096, 16384, 1 << 19
MNT_DETACH = 2
#: Constants of `mount_setattr`, Linux 5.12.
MOUNT_SETATTR, AT_EMPTY_PATH, AT_RECURSIVE = 442, 0x1000, 0x8000
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
#: Options of `prctl`.
PDEATHSIG, DUMPABLE, CAPBSET_DROP, NO_NEW_PRIVS, SECCOMP, AMBIENT = 1, 4, 24, 38, 22, 47
AMBIENT_CLEAR_ALL, SECCOMP_FILTER = 4, 2
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LOOPBACK_UP = (0x8914, 0x1 | 0x40)  # SIOCSIFFLAGS, IFF_UP | IFF_RUNNING

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long


def call_libc(name: str, *arguments: Any) -> int:
    """Call a function of the C library.

    Raises:
        OSError: the function failed; the text names it.
    """
    return check_result(name, getattr(LIBC, name)(*arguments))


def syscall(name: str, number: int, *arguments: Any) -> int:
    """Make a system call by number.

    Raises:
        OSError: the call failed; the text has ``name``.
    """
    whole = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return check_result(name, LIBC.syscall(ctypes.c_long(number), *whole))


def check_result(name: str, result: int) -> int:
    """Return a result; raise `OSError` with the current error number if it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Give this process namespaces of its own; `NEWUSER` needs a process with one thread."""
    call_libc("unshare", ctypes.c_int(flags))


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system, or a part of one at another place (`MS_BIND`)."""
    call_libc(
        "mount",
        source.encode(),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )


def make_read_only(path: str) -> None:
    """Make everything below a mount read-only, whatever else is mounted there."""
    attributes = (ctypes.c_uint64 * 4)(ATTR_RDONLY | ATTR_NOSUID, 0, 0, 0)
    syscall(
        "mount_setattr",
        MOUNT_SETATTR,
        -100,
        ctypes.c_char_p(os.fsencode(path)),
        AT_RECURSIVE,
        ctypes.byref(attributes),
        ctypes.sizeof(attributes),
    )


def change_root(path: str) -> None:
    """Make ``path``, a mount, the root, and unmount all that was outside of it."""
    os.chdir(path)
    call_libc("pivot_root", b".", b".")
    call_libc("umount2", b".", ctypes.c_int(MNT_DETACH))
    os.chdir("/")


def prctl(option: int, *values: int) -> None:
    """Set a property of this process."""
    padded = [*values, 0, 0, 0, 0][:4]
    call_libc("prctl", ctypes.c_int(option), *map(ctypes.c_ulong, padded))


def drop_capabilities() -> None:
    """Give up every privilege, also those that an executed file could give back."""
    for capability in range(LAST_CAPABILITY + 1):
        with contextlib.suppress(PermissionError):  # who has none cannot, and need not
            prctl(CAPBSET_DROP, capability)
    prctl(AMBIENT, AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    call_libc("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def last_capability() -> int:
    """Return the highest capability number of this kernel; 40 if the system does not tell."""
    try:
        return int(Path("/proc/sys/kernel/cap_last_cap").read_text("ascii"))
    except (OSError, ValueError):
        return 40


#: Read at import time, because there is no /proc inside the isolation.
LAST_CAPABILITY = last_capability()
MACHINE = platform.machine()
