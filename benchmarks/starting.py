"""The ways to start a run of two ranks on `machines`, one rank on each of two nodes if there are
two: starting, resuming, and finding its processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from machines import NamespaceMachine, Terminal, python, wait

from dualml.experiment.store.manifest import RUN

Words = list[object]
#: Options of ``dualml run`` besides the experiment.
PLAIN = ("--no-report", "--no-find")
SSHD = """
ListenAddress {address}
Port 2222
HostKey {folder}/host
AuthorizedKeysFile {folder}/id.pub
PidFile {folder}/pid
StrictModes no
UsePAM no
PasswordAuthentication no
ClientAliveInterval 5
ClientAliveCountMax 2
"""
HOSTS = """
[here]
address = "{here}"
[[hosts]]
ssh = "root@{there}"
port = 2222
python = "{folder}/python"
options = ["-i", "{folder}/id", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR",
           "-o", "UserKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes"]
environ = {{ DUALML_DATA = "{data}", DUALML_CHECKPOINT_S = "{every}", TMPDIR = "{temporary}" }}
"""


class StartMethod:
    """A way to start a run, with the terminals that a person would use.

    Args:
        words: arguments of ``dualml run``, the experiment and its options.
        env: environment variables of every process.
    """

    #: The nodes of rank 0 and of the other rank.
    nodes: tuple[str, ...] = ("a", "b")
    job = False

    def __init__(
        self,
        there: Mapping[str, NamespaceMachine],
        words: Words,
        backend: str,
        env: Mapping[str, str],
    ) -> None:
        self.there, self.words, self.backend, self.env = there, words, backend, dict(env)
        self.out = there["a"].folder / "out"
        self.terminals = dict[str, Terminal]()
        self.port = 29000

    def setup(self) -> None:
        """Set up what the run needs."""

    def begin(self) -> None:
        words = ["run", *self.words, "--out", self.out, "--backend", self.backend]
        self.start(words, ["run"])

    def resume(self) -> None:
        """Resume the run as its last lines say."""
        self.start(["run", "--resume", self.out], ["run", "--resume", self.out])

    def start(self, first: Words, other: Words) -> None:
        """Start rank 0 and the other rank with these dualml arguments."""
        raise NotImplementedError

    def is_over(self) -> bool:
        return all(t.code() is not None for t in self.terminals.values())

    def is_settled(self) -> bool:
        """Return whether nothing more happens after a kill until somebody acts."""
        return self.is_over()

    def place(self, arm: str) -> Path:
        return self.out / "trials" / arm / self.backend / "seed0"

    def parts(self, victim: str) -> list[psutil.Process]:
        """Return the processes of a victim; empty while there are none."""
        if victim.startswith("worker"):
            return self.worker(int(victim[-1]))
        raise ValueError(victim)

    def worker(self, rank: int) -> list[psutil.Process]:
        """Return the worker that writes the rank's log."""
        machine = self.there[self.nodes[min(rank, len(self.nodes) - 1)]]
        return [p for p in machine.processes() if log_of(p) == f"rank{rank}.log"]

    def find_processes(self, machine: str, *names: str) -> list[psutil.Process]:
        """Return the processes whose command has these words; of each tree, the topmost."""
        every = [
            p
            for p in self.there[machine].processes()
            if all(any(n in word for word in cmdline(p)) for n in names)
        ]
        numbers = {p.pid for p in every}
        return [p for p in every if parent(p) not in numbers]

    def lines(self, node: str) -> list[str]:
        """Return the text on a terminal, by lines."""
        return self.terminals[node].lines()

    def close(self) -> None:
        """Shut down what `setup` started."""


def cmdline(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []


def parent(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return int(process.ppid())
    return 0


def log_of(process: psutil.Process) -> str:
    with contextlib.suppress(OSError):
        path = Path(os.readlink(f"/proc/{process.pid}/fd/2"))
        return path.name if "trials" in path.parts else ""
    return ""


class Hand(StartMethod):
    """A run started by hand, with a terminal for each rank."""

    def start(self, first: Words, other: Words) -> None:
        self.port += 1
        where = f"tcp://{self.there['a'].address}:{self.port}"
        for rank, (node, words) in enumerate((("a", first), ("b", ["run", *other[3:]]))):
            more = ["--rank", rank, "--world-size", 2, "--rendezvous", where]
            own = PLAIN if rank == 0 else ()
            command = python("dualml", *words, *own, *more)
            self.terminals[node] = self.there[node].start(command, **self.env)

    def parts(self, victim: str) -> list[psutil.Process]:
        if victim == "launcher":  # the terminal of the other rank
            return self.find_processes("b", "dualml", "--rank")
        return super().parts(victim)


class Launched(StartMethod):
    """A run started by a framework's launcher on each node; no folder is shared."""

    def launcher(self, node: int) -> Words:
        raise NotImplementedError

    def start(self, first: Words, other: Words) -> None:
        self.port += 2
        where = f"tcp://{self.there['a'].address}:{self.port}"
        for number, node in enumerate(self.nodes):
            command = [*self.launcher(number), *first, *PLAIN, "--rendezvous", where]
            path = {"PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"}
            self.terminals[node] = self.there[node].start(command, **self.env, **path)

    def parts(self, victim: str) -> list[psutil.Process]:
        return (
            self.find_processes("b", self.program)
            if victim == "launcher"
            else super().parts(victim)
        )

    program = ""


class Torchrun(Launched):
    """A run started by torchrun."""

    program = "torch.distributed.run"

    def launcher(self, node: int) -> Words:
        sizes = ["--nnodes", 2, "--node-rank", node, "--nproc-per-node", 1]
        place = ["--master-addr", self.there["a"].address, "--master-port", self.port + 1]
        return [sys.executable, "-m", self.program, *sizes, *place, "-m", "dualml"]


class Msrun(Launched):
    """A run started by msrun."""

    program = "msrun"

    def launcher(self, node: int) -> Words:
        program = Path(sys.executable).with_name("msrun")
        sizes = ["--worker_num", 2, "--local_worker_num", 1, "--node_rank", node, "--join", "True"]
        logs = self.there[self.nodes[node]].folder / f"msrun{self.port}"
        place = [
            "--master_addr",
            self.there["a"].address,
            "--master_port",
            self.port + 1,
            "--log_dir",
            logs,
        ]
        return [program, *sizes, *place, "--", "python", "-m", "dualml"]

    def lines(self, node: str) -> list[str]:
        """Return msrun's lines, which are in files that it writes for its processes."""
        logs = sorted((self.there[node].folder / f"msrun{self.port}").glob("worker_*.log"))
        lines = [line for log in logs for line in log.read_text("utf-8", "replace").splitlines()]
        return [*super().lines(node), *(line.strip() for line in lines)]


class Ssh(StartMethod):
    """A run with ``--hosts``: the other rank is started over ssh."""

    def setup(self) -> None:
        b = self.there["b"]
        self.keys = b.folder / "ssh"
        if not self.keys.exists():
            self.keys.mkdir()
            for name in ("host", "id"):
                words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.keys / name]
                subprocess.run(words, check=True, timeout=60)
            text = SSHD.format(address=b.address, folder=self.keys)
            (self.keys / "config").write_text(text)
            lines = [
                "#!/bin/sh",
                f'export PYTHONPATH="{os.environ.get("PYTHONPATH", "")}"',
                f'exec "{sys.executable}" "$@"',
            ]
            (self.keys / "python").write_text("\n".join(lines) + "\n")
            (self.keys / "python").chmod(0o700)
        self.hosts = self.there["a"].folder / "hosts.toml"
        self.hosts.write_text(
            HOSTS.format(
                here=self.there["a"].address,
                there=b.address,
                folder=self.keys,
                data=os.environ.get("DUALML_DATA", ""),
                temporary=b.temporary,
                every=self.env.get("DUALML_CHECKPOINT_S", "10"),
            )
        )
        self.server()

    def server(self) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)  # where its unit would have made it
        if not self.there["b"].daemons:
            program = shutil.which("sshd") or "/usr/sbin/sshd"
            b = self.there["b"]
            b.serve([program, "-D", "-e", "-f", self.keys / "config"])
            wait(lambda: "listening" in b.daemons[-1].text(), 20, "sshd")

    def start(self, first: Words, other: Words) -> None:
        self.server()
        command = python("dualml", *first, *PLAIN, "--hosts", self.hosts)
        self.terminals["a"] = self.there["a"].start(command, **self.env)

    def parts(self, victim: str) -> list[psutil.Process]:
        if victim == "launcher":
            return self.find_processes("a", "dualml", "--hosts")
        if victim == "ssh":
            return self.find_processes("a", "ssh", "dualml.launch.hosts.remote")
        if victim == "sshd":  # the server's processes of this connection
            return self.find_processes("b", "sshd: root")
        return super().parts(victim)


class Jobs(StartMethod):
    """A job in a queue; `at` is the machine that it is submitted on."""

    job, at, on = True, "a", "local"
    more: tuple[object, ...] = ()

    def setup(self) -> None:
        self.env["DUALML_JOBS"] = str(self.there[self.at].folder / "jobs")

    def ask(self, *words: object) -> Any:
        command = python("dualml", *words, "--json")
        return json.loads(self.there[self.at].run(command, **self.env))

    def begin(self) -> None:
        words = [*self.words, "--out", self.out, "--backend", self.backend, *PLAIN]
        self.number = int(self.ask("submit", *words, "--on", self.on, *self.more)["id"])

    def resume(self) -> None:
        if self.state()["status"] == "failed":
            self.ask("resume", self.number)

    def job_row(self) -> dict[str, Any]:
        """Return the job's row of ``dualml jobs``."""
        row: dict[str, Any] = next(r for r in self.ask("jobs")["jobs"] if r["id"] == self.number)
        return row

    def state(self) -> dict[str, Any]:
        path = Path(self.env["DUALML_JOBS"], str(self.number), "state.json")
        state: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return state

    def lines(self, node: str) -> list[str]:
        """Return the log, and the last status of ``dualml jobs``."""
        path = Path(self.env["DUALML_JOBS"], str(self.number), "log")
        text = path.read_text("utf-8", errors="replace") if path.exists() else ""
        reason = self.state()["reason"]
        return [
            *(line.strip() for line in text.splitlines()),
            *([f"job {self.number}: {reason}"] if reason else []),
        ]

    def is_over(self) -> bool:
        return self.state()["status"] not in ("queued", "running")


class Local(Jobs):
    """A job in the queue of one machine."""

    nodes = ("a",)

    def parts(self, victim: str) -> list[psutil.Process]:
        if victim in ("runner", "scheduler"):
            return self.find_processes("a", f"dualml.runner.jobs.{victim}")
        return super().parts(victim)

    def is_over(self) -> bool:
        if not self.there["a"].processes():  # of a machine that comes back somebody asks
            self.job_row()
        return super().is_over()


def status(out: Path, arm: str) -> str:
    """Return the status of an arm's trial; empty before there is one."""
    with contextlib.suppress(Exception):
        return next(t.status for t in RUN.read(out).trials if t.arm == arm)
    return ""
