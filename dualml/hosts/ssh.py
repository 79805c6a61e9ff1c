"""What is run on another machine, by OpenSSH's client: a survey of it, and its ranks."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualml.errors import UserError
from dualml.files import open_to_append
from dualml.hosts.file import Host, Hosts
from dualml.launch.greeting import differing
from dualml.launch.hub import LEAVE_S
from dualml.launch.supervise import end, last_lines
from dualml.machine import bounded, python
from dualml.network import network_variables
from dualml.version import __version__

CONNECT_S = 10
#: A survey takes at most so long: it imports dualml, no framework.
SURVEY_S = 60.0
#: Bytes that a rank needs for its copy of the plan and what it writes, at least.
ROOM = 200 * 2**20
POLL_S = 0.05

Address = tuple[str, int]


def command(host: Host, words: Sequence[str]) -> list[str]:
    """ssh with these words for the shell of the other machine, each quoted."""
    port = ["-p", str(host.port)] if host.port else []
    given = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}",
             "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]  # fmt: skip
    return ["ssh", "-T", *given, *port, *host.options, "--", host.ssh, shlex.join(words)]


def python_of(host: Host, module: str, *words: str) -> list[str]:
    return [host.python, "-P", "-m", module, *words]


# --- before anything starts -----------------------------------------------------------------------


def check(hosts: Hosts, address: Address, same: Mapping[str, str], device: str) -> None:
    """Survey all machines at the same time.

    Args:
        address: where rank 0 listens.
        same: versions that all of them must have.
        device: that the run asks for.

    Raises:
        UserError: what is wrong with whom, all in one line.
    """
    if shutil.which("ssh") is None:
        raise UserError("--hosts needs OpenSSH's client, and there is no ssh on this machine")
    with ThreadPoolExecutor(min(32, len(hosts.hosts))) as pool:
        found = pool.map(lambda host: problem(host, address, same, device), hosts.hosts)
        each = zip(hosts.hosts, found, strict=True)
        wrong = [f"{host.ssh}: {text}" for host, text in each if text]
    if wrong:
        raise UserError("; ".join(wrong))


def problem(host: Host, address: Address, same: Mapping[str, str], device: str) -> str | None:
    """What keeps a machine from taking part."""
    words = python_of(host, "dualml.hosts.survey", address[0], str(address[1]))
    before = time.time()
    done = bounded(command(host, words), SURVEY_S)
    if done.code == 0:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            told = json.loads(done.out.strip().splitlines()[-1])
            return unfit(told, time.time() - before, address, same, device)
    lines = [line for line in done.err.splitlines() if line.strip()]
    last = lines[-1].strip() if lines else f"no answer (exit code {done.code})"
    if done.code == 255:
        return f"{last} (try: {shlex.join(['ssh', host.ssh, 'true'])})"
    if "No module named" in last and "dualml" in last:
        return (
            f"{host.python} there has no dualml; install it (pip install "
            f"dualml=={__version__}), or name another with python = …"
        )
    return f"{host.python} there: {last}"


def unfit(
    told: dict[str, Any],
    took: float,
    address: Address,
    same: Mapping[str, str],
    device: str,
) -> str | None:
    """The first thing that does not fit, from what a survey says."""
    if why := differing(same, told["same"], float(told["clock"]) - time.time(), took):
        return why
    if told["refused"]:
        return f"does not reach {address[0]}:{address[1]}, where rank 0 listens: {told['refused']}"
    if told["free"] < ROOM:
        free = told["free"] / 2**20
        return f"{free:.0f} MB are free for temporary files; {ROOM / 2**20:.0f} MB are needed"
    if device.startswith(("cuda", "gpu")) and told["gpus"] < 1:
        return f"no GPU there (NVIDIA's driver finds none), and --device {device} asks for one"
    return None


# --- ranks ----------------------------------------------------------------------------------------


@dataclass
class Started:
    """The processes of the other ranks, as far as this machine has them: ssh, or the rank itself.

    Args:
        names: rank → its machine.
    """

    processes: dict[int, subprocess.Popen[bytes]]
    names: dict[int, str]
    logs: Path

    def ended(self) -> str | None:
        """Which rank did not even come, and what was said of it last; None while all are there."""
        for rank, process in self.processes.items():
            if (code := process.poll()) is not None:
                said = last_lines(self.logs / f"rank{rank}.log", 1)
                why = said[0].removeprefix("dualml: ") if said else f"ended with exit code {code}"
                return f"rank {rank} on {self.names[rank]}: {why}"
        return None


@contextlib.contextmanager
def started(
    hosts: Hosts, logs: Path, words: Sequence[str], environ: Mapping[str, str]
) -> Iterator[Started]:
    """All ranks but 0; when the block is left they have a moment to end, then they are ended.

    They have this process's variables of the network (`dualml.network`), too; those of a host's
    own table take their place.

    Args:
        logs: folder for what they print, made here.
        words: of their command, before ``--rank``.
        environ: variables of all of them.
    """
    logs.mkdir(exist_ok=True)
    mine = python("-m", "dualml.hosts.remote")
    places: list[tuple[str, list[str], dict[str, str]]] = [
        ("this machine", mine, {}) for _ in range(hosts.here.ranks - 1)
    ]
    for host in hosts.hosts:
        line = command(host, python_of(host, "dualml.hosts.remote"))
        places += [(host.ssh, line, dict(host.environ))] * host.ranks
    group = Started({}, {}, logs)
    try:
        for rank, (name, line, own) in enumerate(places, start=1):
            told = {
                "words": [*words, "--rank", str(rank)],
                "environ": {**network_variables(), **environ, **own},
            }
            with open_to_append(logs / f"rank{rank}.log") as log:
                process = subprocess.Popen(
                    line, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
                )
            group.processes[rank], group.names[rank] = process, name
            assert process.stdin is not None
            with contextlib.suppress(OSError):  # it has ended; `Started.ended` says so
                process.stdin.write(json.dumps(told).encode() + b"\n")
                process.stdin.flush()
        yield group
    finally:
        leave(list(group.processes.values()))


def leave(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """They know that the run is over; who stays is told by the end of its input, then ended."""
    deadline = time.monotonic() + LEAVE_S
    while any(p.poll() is None for p in processes) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    for process in processes:
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
    deadline = time.monotonic() + LEAVE_S
    while any(p.poll() is None for p in processes) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    end([p for p in processes if p.poll() is None])
    for process in processes:
        process.wait()
