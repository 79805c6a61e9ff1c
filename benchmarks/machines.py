"""Machines that can be killed: network namespaces with names and addresses, on one switch.

A machine's processes are all those in its namespace, whatever their names and parents. Needs Linux,
root and iproute2.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

#: The login node, which is also the switch, and two nodes.
NAMES = ("login", "a", "b")
POLL_S = 0.1
#: Shell script that gives a command the machine's host name and hosts file, in separate namespaces.
NAMED = 'hostname "$0"; mount --bind "$1" /etc/hosts; shift; exec "$@"'


def ip(*words: object) -> None:
    """Run iproute2's ``ip``."""
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, timeout=20)


def wait(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Call a function until its result is true, and return that result.

    Raises:
        TimeoutError: the result was not true within so many seconds.
    """
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(POLL_S)
    return found


class Terminal:
    """A command on a machine, as if started in a terminal there."""

    def __init__(
        self, machine: NamespaceMachine, command: Sequence[object], env: Mapping[str, str]
    ) -> None:
        self.machine = machine
        self.output = machine.folder / f"output-{uuid.uuid4().hex[:8]}"
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                machine.wrap_command(command),
                cwd=machine.folder,
                env={**os.environ, "TMPDIR": str(machine.temporary), **env},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def text(self) -> str:
        return self.output.read_text("utf-8", errors="replace")

    def lines(self) -> list[str]:
        """Return its non-empty lines of output."""
        return [line.strip() for line in self.text().splitlines() if line.strip()]

    def code(self) -> int | None:
        return self.process.poll()


class NamespaceMachine:
    """One machine: a network namespace.

    Attributes:
        core: its only core, because the number of cores may affect a framework's rounding.
        kept: process ids of its daemons and their children, which belong to no run.
    """

    def __init__(self, name: str, number: int, mark: str, folder: Path) -> None:
        self.name, self.space = name, f"{mark}{name}"
        self.address = f"10.78.0.{number}"
        self.folder, self.temporary = folder / name, folder / name / "tmp"
        self.hosts = folder / "etc-hosts"
        cores = sorted(os.sched_getaffinity(0))
        self.core = cores[number % len(cores)]
        self.temporary.mkdir(parents=True)
        self.kept = set[int]()
        self.daemons = list[Terminal]()

    def wrap_command(self, command: Sequence[object]) -> list[str]:
        """Return the words that run a command on this machine."""
        there = [
            "nsenter",
            f"--net=/run/netns/{self.space}",
            "unshare",
            "--uts",
            "--mount",
            "taskset",
            "-c",
            str(self.core),
        ]
        words = [f"node-{self.name}", self.hosts, *command]
        return [*there, "sh", "-c", NAMED, *map(str, words)]

    def start(self, command: Sequence[object], **env: str) -> Terminal:
        return Terminal(self, command, env)

    def serve(self, command: Sequence[object], **env: str) -> Terminal:
        """Start a daemon on this machine."""
        terminal = self.start(command, **env)
        self.daemons.append(terminal)
        self.kept.add(terminal.process.pid)
        return terminal

    def mark_daemons(self) -> None:
        """Exclude the processes that run here now from those of a run."""
        self.kept |= {process.pid for process in self.processes(daemons=True)}

    def run(self, command: Sequence[object], seconds: float = 120, **env: str) -> str:
        """Run a command on this machine and return its output.

        Raises:
            RuntimeError: the command failed.
        """
        done = subprocess.run(
            self.wrap_command(command),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=seconds,
            env={**os.environ, "TMPDIR": str(self.temporary), **env},
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command}: {done.returncode}: {done.stderr[-800:]}")
        return done.stdout

    def processes(self, daemons: bool = False) -> list[psutil.Process]:
        """Return all processes on this machine."""
        space = os.stat(f"/run/netns/{self.space}").st_ino
        found = []
        for number in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(psutil.Error, OSError):
                if os.stat(f"/proc/{number}/ns/net").st_ino == space:
                    process = psutil.Process(int(number))
                    ours = daemons or process.pid not in self.kept
                    if ours and process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found

    def kill(self) -> None:
        """Kill all processes at once, like a power failure."""
        for _ in range(3):  # what was started meanwhile, too
            for process in self.processes(daemons=True):
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
        for daemon in self.daemons:
            daemon.process.wait(10)
        self.kept.clear()
        self.daemons.clear()

    def link(self, up: bool) -> None:
        """Pull or plug its cable at the switch; neither side is notified."""
        ip(
            "-n",
            self.space.removesuffix(self.name) + NAMES[0],
            "link",
            "set",
            f"to-{self.name}",
            "up" if up else "down",
        )


@contextlib.contextmanager
def machines(folder: Path) -> Iterator[dict[str, NamespaceMachine]]:
    """Create the machines `NAMES` on one network, and remove every trace of them afterwards.

    Raises:
        RuntimeError: namespaces cannot be created here.
    """
    mark = f"k{uuid.uuid4().hex[:4]}"
    made = {
        name: NamespaceMachine(name, 254 - n if n == 0 else n, mark, folder)
        for n, name in enumerate(NAMES)
    }
    login = made[NAMES[0]]
    lines = [f"{m.address} node-{m.name}" for m in made.values()]
    login.hosts.write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
    try:
        for machine in made.values():
            ip("netns", "add", machine.space)
            ip("-n", machine.space, "link", "set", "lo", "up")
        ip("-n", login.space, "link", "add", "eth9", "type", "bridge")
        for name in NAMES[1:]:
            node = made[name]
            ip(
                "-n",
                login.space,
                "link",
                "add",
                f"to-{name}",
                "type",
                "veth",
                "peer",
                "name",
                "eth9",
                "netns",
                node.space,
            )
            ip("-n", login.space, "link", "set", f"to-{name}", "master", "eth9", "up")
        for machine in made.values():
            ip("-n", machine.space, "addr", "add", f"{machine.address}/24", "dev", "eth9")
            ip("-n", machine.space, "link", "set", "eth9", "up")
        yield made
    except subprocess.CalledProcessError as error:
        why = error.stderr.decode().strip() if isinstance(error.stderr, bytes) else error.stderr
        raise RuntimeError(f"no network namespaces here (they need root): {why}") from None
    except FileNotFoundError as error:
        raise RuntimeError(f"{error.filename} is missing (Debian: iproute2)") from None
    finally:
        for machine in made.values():
            if Path("/run/netns", machine.space).exists():
                machine.kill()
                ip("netns", "del", machine.space)


def python(module: str, *words: object) -> list[str]:
    """Return the words that run a Python module in this environment."""
    return [sys.executable, "-P", "-m", module, *map(str, words)]
