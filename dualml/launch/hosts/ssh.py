"""Commands on other machines through OpenSSH's client: a survey before the run, and the ranks."""

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

from dualml.common.errors import UserError
from dualml.common.files import open_to_append
from dualml.common.machine import python_argv, run_bounded
from dualml.common.network import network_variables
from dualml.common.version import __version__
from dualml.launch.greeting import mismatch_reason
from dualml.launch.hosts.file import Hosts, RemoteHost
from dualml.launch.rank_server import LEAVE_S
from dualml.launch.supervise import end_processes, last_lines

CONNECT_S = 10
#: Longest survey in seconds: it imports dualml, but no framework.
SURVEY_S = 60.0
#: Minimum free bytes that a rank needs for its copy of the plan and its output.
MIN_FREE_BYTES = 200 * 2**20
POLL_S = 0.05

Address = tuple[str, int]


def ssh_command(host: RemoteHost, words: Sequence[str]) -> list[str]:
    """Return the ssh command that runs ``words`` in the shell of the other machine, each of them
    quoted."""
    port = ["-p", str(host.port)] if host.port else []
    given = [
        "-o",
        "BatchMode=yes",
        "-o",
        f"ConnectTimeout={CONNECT_S}",
        "-o",
        "ServerAliveInterval=5",
        "-o",
        "ServerAliveCountMax=3",
    ]
    return ["ssh", "-T", *given, *port, *host.options, "--", host.ssh, shlex.join(words)]


def python_command(host: RemoteHost, module: str, *words: str) -> list[str]:
    """Return the command that runs a module with the host's Python."""
    return [host.python, "-P", "-m", module, *words]


# --- before anything starts -----------------------------------------------------------------------


def survey_hosts(hosts: Hosts, address: Address, same: Mapping[str, str], device: str) -> None:
    """Survey all other machines at the same time, and return if all of them can take part.

    Args:
        hosts: the machines.
        address: where rank 0 listens.
        same: versions that all of them must have.
        device: that the run asks for.

    Raises:
        UserError: what is wrong on which machine, all in one line.
    """
    if shutil.which("ssh") is None:
        raise UserError("--hosts needs OpenSSH's client, and there is no ssh on this machine")
    with ThreadPoolExecutor(min(32, len(hosts.hosts))) as pool:
        found = pool.map(lambda host: survey_host(host, address, same, device), hosts.hosts)
        each = zip(hosts.hosts, found, strict=True)
        wrong = [f"{host.ssh}: {text}" for host, text in each if text]
    if wrong:
        raise UserError("; ".join(wrong))


def survey_host(
    host: RemoteHost, address: Address, same: Mapping[str, str], device: str
) -> str | None:
    """Survey a machine by ssh, and return why it cannot take part; None if it can. The arguments
    are those of `survey_hosts`."""
    words = python_command(host, "dualml.launch.hosts.survey", address[0], str(address[1]))
    before = time.time()
    done = run_bounded(ssh_command(host, words), SURVEY_S)
    if done.code == 0:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            told = json.loads(done.out.strip().splitlines()[-1])
            return misfit_reason(told, time.time() - before, address, same, device)
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


def misfit_reason(
    told: dict[str, Any],
    took: float,
    address: Address,
    same: Mapping[str, str],
    device: str,
) -> str | None:
    """Return the first reason why a machine cannot take part; None if it can.

    Args:
        told: what its `survey` printed: ``same``, ``clock``, ``free``, ``gpus``, ``refused``.
        took: seconds that the survey took, the uncertainty of its clock.
        address, same, device: as in `survey_hosts`.
    """
    if why := mismatch_reason(same, told["same"], float(told["clock"]) - time.time(), took):
        return why
    if told["refused"]:
        return f"does not reach {address[0]}:{address[1]}, where rank 0 listens: {told['refused']}"
    if told["free"] < MIN_FREE_BYTES:
        free = told["free"] / 2**20
        return (
            f"{free:.0f} MB are free for temporary files; "
            f"{MIN_FREE_BYTES / 2**20:.0f} MB are needed"
        )
    if device.startswith(("cuda", "gpu")) and told["gpus"] < 1:
        return f"no GPU there (NVIDIA's driver finds none), and --device {device} asks for one"
    return None


# --- ranks ----------------------------------------------------------------------------------------


@dataclass
class RemoteProcesses:
    """The processes on this machine of all ranks but rank 0: ranks themselves, or ssh clients of
    those on other machines.

    Args:
        processes: rank → process.
        names: rank → its machine.
        logs: folder of their logs.
    """

    processes: dict[int, subprocess.Popen[bytes]]
    names: dict[int, str]
    logs: Path

    def exit_reason(self) -> str | None:
        """Return a text about a rank that has ended, even if well (of several, that with the lowest
        number): the last line it printed, or its exit code; None while all are running."""
        for rank, process in self.processes.items():
            if (code := process.poll()) is not None:
                said = last_lines(self.logs / f"rank{rank}.log", 1)
                why = said[0].removeprefix("dualml: ") if said else f"ended with exit code {code}"
                return f"rank {rank} on {self.names[rank]}: {why}"
        return None


@contextlib.contextmanager
def start_remote(
    hosts: Hosts, logs: Path, words: Sequence[str], environ: Mapping[str, str]
) -> Iterator[RemoteProcesses]:
    """Start all ranks but rank 0, those on this machine included, and provide them inside the
    block. When it is left they have a moment to end, then they are ended.

    They inherit this process's network variables (`dualml.common.network`); those in a host's own
    table take precedence.

    Args:
        hosts: the machines.
        logs: folder for what they print; it is created.
        words: of their command, before ``--rank``.
        environ: variables of all of them.
    """
    logs.mkdir(exist_ok=True)
    mine = python_argv("-m", "dualml.launch.hosts.remote")
    places: list[tuple[str, list[str], dict[str, str]]] = [
        ("this machine", mine, {}) for _ in range(hosts.here.ranks - 1)
    ]
    for host in hosts.hosts:
        line = ssh_command(host, python_command(host, "dualml.launch.hosts.remote"))
        places += [(host.ssh, line, dict(host.environ))] * host.ranks
    group = RemoteProcesses({}, {}, logs)
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
            with contextlib.suppress(OSError):  # it has ended; `exit_reason` says so
                process.stdin.write(json.dumps(told).encode() + b"\n")
                process.stdin.flush()
        yield group
    finally:
        end_remote(list(group.processes.values()))


def end_remote(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait up to `LEAVE_S` seconds for the ranks to end; then close their inputs, wait again, and
    end those that stay."""
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
    end_processes([p for p in processes if p.poll() is None])
    for process in processes:
        process.wait()
