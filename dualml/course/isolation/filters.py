"""Kernel restrictions of a student's process: system calls (seccomp) and files (landlock).

Namespaces limit what is reachable, and these two restrict the rest further. On a kernel without one
of them it is skipped.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
from collections.abc import Sequence

from dualml.course.isolation.syscalls import (
    LANDLOCK_ADD,
    LANDLOCK_CREATE,
    LANDLOCK_RESTRICT,
    MACHINE,
    SECCOMP,
    SECCOMP_FILTER,
    prctl,
    syscall,
)

#: System calls that are refused: name → number on x86-64 and on 64-bit Arm (-1: missing). They
#: concern processes, other processes' memory, mounts, modules, keys, tracing, and calls that often
#: had security faults.
REFUSED_SYSCALLS: dict[str, tuple[int, int]] = {
    "fork": (57, -1), "vfork": (58, -1), "execve": (59, 221), "execveat": (322, 281),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "kcmp": (312, 272), "process_madvise": (440, 440),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430),
    "fsmount": (432, 432), "fsconfig": (431, 431), "fspick": (433, 433),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268),
    "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "quotactl": (179, 60),
    "acct": (163, 89), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "sethostname": (170, 161),
    "setdomainname": (171, 162), "syslog": (103, 116), "personality": (135, 92),
    "iopl": (172, -1), "ioperm": (173, -1), "vhangup": (153, 58), "nfsservctl": (180, 42),
    "fanotify_init": (300, 262), "memfd_secret": (447, 447), "setpriority": (141, 140),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "ioprio_set": (251, 30),
    "memfd_create": (319, 279), "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180), "flock": (73, 32), "inotify_init1": (294, 26),
    "io_setup": (206, 0), "modify_ldt": (154, -1),
}  # fmt: skip
#: The C library falls back to `clone` without `clone3`, whose flags a filter cannot read.
CLONE, CLONE3 = (56, 220), (435, 435)
#: System calls that act on a process and are allowed only for this process itself; for some of them
#: 0 means itself.
SELF_ONLY_SYSCALLS = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "prlimit64": (302, 261),
}
THREAD = 0x00010000  # CLONE_THREAD
SOCKET = (41, 198)
#: Socket families that ranks with a network need: IPv4, IPv6, and netlink, which lists interfaces.
FAMILIES = (2, 10, 16)
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
#: Opcodes of a BPF program: load a word; jump on equality, on a set bit, and on greater or equal;
#: return.
BPF_LOAD, BPF_JEQ, BPF_JSET, BPF_JGE, BPF_RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
NUMBER_AT, ARCHITECTURE_AT, ARGUMENT_AT = 0, 4, 16
#: First number of the x32 calls of x86-64.
X32 = 0x40000000
#: Access rights of landlock's first version: all of them, and those to read and run a folder.
ALL_RIGHTS, READ_RIGHTS = 0x1FFF, 0b1101
#: Access rights that apply to a file: run, write, read.
FILE_RIGHTS = 0b111
LANDLOCK_PATH_BENEATH = 1  # LANDLOCK_RULE_PATH_BENEATH


def filter_system_calls(network: bool) -> bool:
    """Refuse system calls that a student's code does not need, for this process and its threads:
    the calls of `REFUSED_SYSCALLS`, new processes (not threads), signals to and limits of other
    processes, and sockets except those of `FAMILIES` with a ``network``.

    Needs ``NO_NEW_PRIVS``.

    Returns:
        whether the kernel supports it; only x86-64 and 64-bit Arm are supported.
    """
    if MACHINE not in ARCHITECTURES:
        return False
    program = compile_filter(network, os.getpid())
    code = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
    whole = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    )
    try:
        prctl(SECCOMP, SECCOMP_FILTER, ctypes.addressof(whole))
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS):
            return False
        raise
    return True


def compile_filter(network: bool, own: int) -> list[bytes]:
    """Return the filter program for the process ``own``, instructions of eight bytes."""
    column, architecture = ARCHITECTURES[MACHINE]
    refuse, absent = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
    program = [
        bpf(BPF_LOAD, ARCHITECTURE_AT),
        bpf(BPF_JEQ, architecture, 1, 0),
        bpf(BPF_RETURN, KILL),
        bpf(BPF_LOAD, NUMBER_AT),
        bpf(BPF_JGE, X32, 0, 1),
        bpf(BPF_RETURN, refuse),
    ]
    for numbers in REFUSED_SYSCALLS.values():
        if numbers[column] >= 0:
            program += [bpf(BPF_JEQ, numbers[column], 0, 1), bpf(BPF_RETURN, refuse)]
    for name, numbers in SELF_ONLY_SYSCALLS.items():
        whom = own if name != "tkill" else -1  # of a thread nobody knows whose it is
        zero = 0 if name == "prlimit64" else whom
        program += [
            bpf(BPF_JEQ, numbers[column], 0, 5),
            bpf(BPF_LOAD, ARGUMENT_AT),
            bpf(BPF_JEQ, whom, 2, 0),
            bpf(BPF_JEQ, zero, 1, 0),
            bpf(BPF_RETURN, refuse),
            bpf(BPF_RETURN, ALLOW),
        ]
    program += [bpf(BPF_JEQ, CLONE3[column], 0, 1), bpf(BPF_RETURN, absent)]
    program += [
        bpf(BPF_JEQ, CLONE[column], 0, 4),
        bpf(BPF_LOAD, ARGUMENT_AT),
        bpf(BPF_JSET, THREAD, 1, 0),
        bpf(BPF_RETURN, refuse),
        bpf(BPF_RETURN, ALLOW),
    ]
    families = FAMILIES if network else ()
    program += [
        bpf(BPF_JEQ, SOCKET[column], 0, 2 + 2 * len(families)),
        bpf(BPF_LOAD, ARGUMENT_AT),
    ]
    for family in families:
        program += [bpf(BPF_JEQ, family, 0, 1), bpf(BPF_RETURN, ALLOW)]
    return [*program, bpf(BPF_RETURN, refuse), bpf(BPF_RETURN, ALLOW)]


def bpf(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """Encode one BPF instruction; ``then`` and ``otherwise`` are the instructions to skip after a
    comparison that holds or does not."""
    return struct.pack("HBBI", code, then, otherwise, value & 0xFFFFFFFF)


def confine_files(own: Sequence[str], shown: Sequence[str]) -> bool:
    """Let this process only read the paths ``shown`` and change its ``own`` paths (landlock); it
    needs ``NO_NEW_PRIVS``.

    Returns:
        whether it is done; False without landlock (Linux 5.13, where it is enabled), or if a path
        does not exist.
    """
    with contextlib.suppress(OSError):
        rights = (ctypes.c_uint64 * 1)(ALL_RIGHTS)
        rules = syscall("landlock_create_ruleset", LANDLOCK_CREATE, ctypes.byref(rights), 8, 0)
        try:
            for path in (*own, *shown):
                allow_beneath(rules, path, ALL_RIGHTS if path in own else READ_RIGHTS)
            syscall("landlock_restrict_self", LANDLOCK_RESTRICT, rules, 0)
        finally:
            os.close(rules)
        return True
    return False


def allow_beneath(rules: int, path: str, rights: int) -> None:
    """Allow rights below a path in landlock rules."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights &= ALL_RIGHTS if os.path.isdir(path) else FILE_RIGHTS
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, place))
        syscall(
            "landlock_add_rule", LANDLOCK_ADD, rules, LANDLOCK_PATH_BENEATH, ctypes.byref(rule), 0
        )
    finally:
        os.close(place)
