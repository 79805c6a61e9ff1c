"""Runs with several ranks, observed from outside: processes, progress, and leftovers."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psutil
import pytest

# A script's neighbour, and in no package.
_spec = importlib.util.spec_from_file_location(
    "netbed", Path(__file__).parents[2] / "benchmarks" / "netbed.py"
)
assert _spec is not None
assert _spec.loader is not None
netbed: Any = importlib.util.module_from_spec(_spec)
sys.modules["netbed"] = netbed  # its dataclasses look themselves up there
_spec.loader.exec_module(netbed)

MARK = "DUALML_TEST_MARK"
#: An experiment with two ranks that ends quickly.
TINY = """
name = "tiny-machines"
model = "softmax"
title = { en = "Tiny", zh = "小" }
data = { name = "digits", train = 200, test = 20 }
evaluation = { train_samples = 10, per_epoch = 1, early = [10] }
parity = { draws = 1, horizon = 10 }
limits = { collective = 40 }
[arms.ring]
optimizer = { name = "sgd", lr = 0.05, momentum = 0.9 }
world_size = 2
batch_size = 20
updates = 30
aggregation = { strategy = "ring" }
"""


class LaunchedRun:
    """A process (``dualml run …``, a launcher) and everything it starts, found by an inherited
    environment variable, also in new sessions and after the parent has gone."""

    def __init__(
        self, command: Sequence[object], cwd: Path, env: dict[str, str] | None = None
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.ports: set[int] = set()
        cwd.mkdir(exist_ok=True)
        self.output = cwd / f"output-{self.mark[:8]}"
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                env={**os.environ, MARK: self.mark, **(env or {})},
                cwd=cwd,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def marked_processes(self) -> list[psutil.Process]:
        """Return all living processes with the mark."""
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get(MARK) == self.mark
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def rank(self, number: int) -> psutil.Process | None:
        """Return the worker of a rank, identified by the log it writes."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(OSError, psutil.Error):
                log = Path(os.readlink(f"/proc/{process.pid}/fd/2"))
                if log.name == f"rank{number}.log":
                    return process
        return None

    def wait_for(self, condition: Callable[[], Any], seconds: float = 90) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.03)
        return found

    def note_ports(self) -> None:
        """Remember the ports that listen now."""
        for process in self.marked_processes():
            try:
                self.ports |= {
                    c.laddr.port for c in process.net_connections("tcp") if c.status == "LISTEN"
                }
            except psutil.Error:
                continue

    def end(self, seconds: float = 120) -> int:
        """Wait for the end and return the exit code; nothing that was started may be left a moment
        later."""
        try:
            code = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.sweep()
            raise
        self.assert_nothing_left()
        return code

    def assert_nothing_left(self, seconds: float = 5) -> None:
        deadline = time.monotonic() + seconds
        while left := self.marked_processes():
            if time.monotonic() > deadline:
                told = [(p.pid, p.cmdline()) for p in left]
                self.sweep()
                raise AssertionError(f"still there: {told}")
            time.sleep(0.05)
        listening = {c.laddr.port for c in psutil.net_connections("tcp") if c.status == "LISTEN"}
        assert not listening & self.ports

    def sweep(self) -> None:
        """End whatever is left, so that one failure does not cause others."""
        for process in self.marked_processes():
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.Error:
                continue

    def text(self) -> str:
        return self.output.read_text("utf-8", errors="replace")

    def __enter__(self) -> LaunchedRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.sweep()
        self.process.wait(timeout=10)


def run_lab(
    out: Path, lab: str, arms: Sequence[str], *words: str, whole: bool = False
) -> dict[str, Any]:
    """Run ``dualml run LAB --quick`` on both frameworks and return its summary.

    Args:
        arms: arms of the lab's quick selection; ``whole`` runs all of it, with its own settings.
        words: further arguments of the command for the selected arms.
    """
    command = ["run", lab, "--quick", "--backend", "both", "--out", str(out), "--json"]
    if not whole:
        command += [*(word for arm in arms for word in ("--arm", arm)), *words]
    done = subprocess.run(
        dualml(*command), capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Confine what is started inside the block to one core: the busy cores decide where a trial is
    bound, and that affects its rounding."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def bed(*mbit: float | None) -> Iterator[list[Any]]:
    """Return `netbed.bed`, or skip the test with the reason why there can be none."""
    with contextlib.ExitStack() as stack:
        try:
            nodes = stack.enter_context(netbed.bed(*mbit))
        except netbed.NoBed as error:
            pytest.skip(f"no network of namespaces here: {error}")
        yield nodes


def settings(**values: object) -> list[str]:
    """Return a ``--set`` option for each keyword, with ``__`` for a dot."""
    return [w for k, v in values.items() for w in ("--set", f"{k.replace('__', '.')}={v}")]


def dualml(*words: object) -> list[str]:
    return [sys.executable, "-P", "-m", "dualml", *map(str, words)]


def trials(out: Path) -> dict[str, dict[str, Any]]:
    """Return arm → trial of run.json; empty while there is none."""
    try:
        told = json.loads((out / "run.json").read_text())
    except FileNotFoundError:
        return {}
    return {trial["arm"]: trial for trial in told["trials"]}


def losses(out: Path, arm: str, backend: str) -> list[float]:
    lines = (out / "trials" / arm / backend / "seed0/rank0.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [r["value"] for r in records if r["metric"] == "loss"]


class _Links(HTMLParser):
    """An HTML parser that collects what a page refers to, by attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "data")]


def loaded_from_elsewhere(page: str) -> list[str]:
    """Return what a browser would fetch for a page; empty if the page is self-contained."""
    parser = _Links()
    parser.feed(page)
    inside = ("#", "data:")
    imports = re.findall(r"@import[^;]*|url\((?!#|data:|['\"]data:)[^)]*\)|\bfetch\([^)]*\)", page)
    return [link for link in parser.links if not link.startswith(inside)] + imports
