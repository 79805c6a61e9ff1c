"""The processes of busy.py: ranks, which are stopped outside their turn, and busy processes that
load the cores. They always end with the benchmark."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from busy_work import STEPS

from dualml.backend import backends
from dualml.common.cores import affinity_env, cores_per_rank

WORK = str(Path(__file__).with_name("busy_work.py"))
ROUND_S, LIMIT_S = 0.25, 600.0
STUDIED = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "GOMP_CPU_AFFINITY", "OMP_PROC_BIND", "OMP_PLACES")
#: Fixed kernels for every setting: a trial would choose them by a measurement.
SAME = {"DUALML_TORCH_MEMORY_FORMAT": "channels_last", "DUALML_TORCH_COMPILE": "never"}


@dataclass(frozen=True)
class ThreadSetting:
    """A thread setting. ``variables`` None: dualml's own choice when others keep ``busy`` cores at
    its start. ``cores``: cores per rank, 0 for all."""

    name: str
    threads: int
    variables: Mapping[str, str] | None = None
    cores: int = 0
    runtime: Mapping[str, int] = field(default_factory=dict)
    busy: Sequence[float] = (0.0, 0.0)

    def __str__(self) -> str:
        return f"{self.threads} thread{'s' * (self.threads > 1)}, {self.name}"


class Group:
    """The ranks of one setting, stopped while it is not their turn."""

    def __init__(self, backend: str, size: int, setting: ThreadSetting, folder: Path) -> None:
        clean = {k: v for k, v in os.environ.items() if k not in STUDIED}
        chosen = backends()[backend].environ(setting.threads)
        if setting.variables is not None:
            chosen = {k: v for k, v in chosen.items() if k not in STUDIED} | setting.variables
            cores = setting.cores
        else:  # not what the caller of this benchmark has set
            told, cores = default_variables(backend, size, setting)
            chosen |= told
        for rank in range(size):
            os.mkfifo(folder / f"go{rank}")
            os.mkfifo(folder / f"told{rank}")
        # Open for both: neither end waits for the other to come.
        self.go = [os.open(folder / f"go{r}", os.O_RDWR) for r in range(size)]
        self.told = [os.open(folder / f"told{r}", os.O_RDWR) for r in range(size)]
        self.log, self.stretches = folder / "log", dict[int, int]()
        self.members: list[Any] = []
        job = {
            "backend": backend,
            "size": size,
            "threads": setting.threads,
            "limit_s": LIMIT_S,
            "cores": cores,
            "runtime": setting.runtime,
            "folder": str(folder),
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, WORK, json.dumps(job)],
                env={**clean, **chosen, **SAME},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def answer(self, rank: int) -> str:
        """Return the next line of a rank.

        Raises:
            RuntimeError: the ranks have ended, or do not answer.
        """
        text, end = b"", time.monotonic() + LIMIT_S / 4
        while not text.endswith(b"\n"):
            if select.select([self.told[rank]], [], [], 0.5)[0]:
                text += os.read(self.told[rank], 4096)
            elif self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no answer: {self.log.read_text('utf-8', 'replace')[-600:]}")
        return text.decode()

    def wait(self) -> None:
        """Wait until all ranks are warm, then stop them."""
        import psutil

        for rank in range(len(self.told)):
            self.answer(rank)
        first = psutil.Process(self.process.pid)
        self.members = [first, *first.children(recursive=True)]
        self.signal(signal.SIGSTOP)

    def signal(self, number: int) -> None:
        """Send a signal to all processes; the supervisor is stopped first and continued last."""
        for one in self.members if number != signal.SIGCONT else reversed(self.members):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, number)

    def __call__(self, load: int) -> float:
        """Return the milliseconds of an update, in a round of about `ROUND_S`."""
        many = self.stretches.get(load, 1)
        self.signal(signal.SIGCONT)
        for pipe in self.go:
            os.write(pipe, b"%d\n" % many)
        spent = max(float(self.answer(rank)) for rank in range(len(self.told)))
        self.signal(signal.SIGSTOP)
        self.stretches[load] = min(8, max(1, round(ROUND_S * 1e3 / (spent * STEPS))))
        return spent

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (*self.go, *self.told):
            os.close(pipe)


def default_variables(
    backend: str, size: int, setting: ThreadSetting
) -> tuple[dict[str, str], int]:
    """Return the studied variables that dualml sets by itself, and the cores of each of its
    ranks."""
    clean = {k: v for k, v in os.environ.items() if k not in STUDIED}
    info, threads = backends()[backend], setting.threads
    with patch.dict(os.environ, clean, clear=True):
        told = info.environ(threads)
        if size == 1:
            told |= affinity_env(threads, setting.busy, info.crowded)
    cores = cores_per_rank(size, threads, setting.busy, info.crowded) if size > 1 else 0
    return {k: v for k, v in told.items() if k in STUDIED}, cores


@contextlib.contextmanager
def busy(many: int) -> Iterator[None]:
    """Keep so many processes busy until the block is left."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(many):
            command = [sys.executable, WORK]
            # A session each, as those of other people: where the system shares by session.
            started.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
            )
        for one in started:
            assert one.stdout is not None
            one.stdout.readline()
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()
