"""Plant every fault of ``faults.toml``, one at a time, and check that its test notices it.

    python -m tests.faults [--jobs 2] [--only WORD …] [--limit SECONDS]

Each job works in a copy of the checkout. A fault is an exact text and its replacement in one file;
the test named beside it must pass without the fault and fail with it. A table says of each fault:

    caught     the test failed (or hung until the limit)
    survived   the test passed: whatever it checks, it is not this
    no text    the text is not there once, and only once; where else it is, is said
    broken     the test does not pass without the fault, is not there, or cannot be collected

The exit code is 0 only if all are caught.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PASSED, FAILED = 0, 1  # exit codes of pytest; others mean that no test was judged
HUNG = -1
MARKS = {"caught": "✓", "survived": "✗", "no text": "?", "broken": "!"}


@dataclass(frozen=True)
class Fault:
    """One planted mistake.

    Attributes:
        name: a short name.
        file: the changed file, relative to the root of the checkout.
        find, put: a text that is in the file exactly once, and its replacement.
        test: the pytest node that must fail.
    """

    name: str
    file: str
    find: str
    put: str
    test: str

    @property
    def framework(self) -> str:
        """The framework that its test needs; empty for the core."""
        return {"dualml_torch": "torch", "dualml_ms": "mindspore"}.get(self.file.split("/")[0], "")


def read(path: Path = HERE / "faults.toml") -> list[Fault]:
    return [
        Fault(name, **fields) for name, fields in tomllib.loads(path.read_text("utf-8")).items()
    ]


class Copy:
    """A copy of the checkout to plant in, with its modules compiled."""

    def __init__(self, folder: Path, source: Path | None = None) -> None:
        self.root = folder
        if source is not None:  # compiled already; times and all
            shutil.copytree(source, folder)
            return
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        packages = ("dualml", "dualml_torch", "dualml_ms", "tests")
        subprocess.run(
            [sys.executable, "-m", "compileall", "-q", *packages], cwd=folder, check=True
        )

    def pytest(self, tests: list[str], framework: str, limit: float) -> tuple[int, str]:
        """Run these tests; return exit code and output. If a framework is named, it must be
        installed."""
        env = {**os.environ, "PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        env |= {"DUALML_REQUIRE": framework} if framework else {}
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-o", "addopts=", "--tb=no"]
        words += ["-p", "no:cacheprovider", "-p", "no:rerunfailures"]
        process = subprocess.Popen(
            [*words, *tests],
            cwd=self.root,
            env=env,
            text=True,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # ranks and all
            return HUNG, process.communicate(timeout=60)[0]
        return process.returncode, output

    def try_out(self, fault: Fault, limit: float) -> tuple[str, str]:
        """Plant one fault and return the outcome with a remark."""
        path = self.root / fault.file
        text = path.read_text("utf-8") if path.is_file() else ""
        if text.count(fault.find) != 1:
            return (
                "no text",
                f"{text.count(fault.find)} times in {fault.file}{self.other_places(fault)}",
            )
        times = path.stat()
        path.write_text(text.replace(fault.find, fault.put), "utf-8")
        # Compiled modules are told by whole seconds and length: it must not look like the old one.
        os.utime(path, (times.st_atime, times.st_mtime + 10))
        try:
            code, output = self.pytest([fault.test], fault.framework, limit)
        finally:
            path.write_text(text, "utf-8")
            os.utime(path, (times.st_atime, times.st_mtime))
        last = output.strip().splitlines()[-1] if output.strip() else ""
        if code in (FAILED, HUNG):
            return "caught", "hung" if code == HUNG else ""
        return ("survived" if code == PASSED else "broken"), last

    def other_places(self, fault: Fault) -> str:
        package = self.root / fault.file.split("/")[0]
        found = [p for p in sorted(package.rglob("*.py")) if fault.find in p.read_text("utf-8")]
        return "".join(f", also in {p.relative_to(self.root)}" for p in found)


def sound(copy: Copy, faults: list[Fault], jobs: int, limit: float) -> dict[str, str]:
    """Return test → reason, for tests that do not pass without a fault."""
    wrong: dict[str, str] = {}

    def check_framework(framework: str) -> None:
        tests = list(dict.fromkeys(f.test for f in faults if f.framework == framework))
        code, _ = copy.pytest(tests, framework, limit * len(tests))
        for test in tests if code != PASSED else ():  # which of them
            code, output = copy.pytest([test], framework, limit)
            if code != PASSED:
                wrong[test] = output.strip().splitlines()[-1] if output.strip() else f"exit {code}"

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(check_framework, dict.fromkeys(f.framework for f in faults)))
    return wrong


def work(
    copy: Copy,
    waiting: queue.Queue[Fault],
    wrong: dict[str, str],
    limit: float,
    outcomes: dict[str, str],
) -> None:
    while True:
        try:
            fault = waiting.get_nowait()
        except queue.Empty:
            return
        begin = time.monotonic()
        if fault.test in wrong:
            outcome, remark = "broken", f"without the fault: {wrong[fault.test]}"
        else:
            outcome, remark = copy.try_out(fault, limit)
        outcomes[fault.name] = outcome
        line = f"{MARKS[outcome]} {outcome:<9} {time.monotonic() - begin:5.1f} s  {fault.name:<40}"
        print(f"{line} {remark or fault.test.rpartition('/')[2]}".rstrip(), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--jobs", type=int, default=2, help="copies at work at a time")
    parser.add_argument("--only", nargs="+", default=[], help="parts of names of faults")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds of one test")
    asked = parser.parse_args()
    chosen = [f for f in read() if not asked.only or any(word in f.name for word in asked.only)]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dualml-faults-") as folder:
        first = Copy(Path(folder) / "0")
        copies = [first, *(Copy(Path(folder) / str(i), first.root) for i in range(1, asked.jobs))]
        wrong = sound(first, chosen, asked.jobs, asked.limit)
        waiting: queue.Queue[Fault] = queue.Queue()
        for fault in sorted(chosen, key=lambda f: f.framework != "mindspore"):  # the slowest first
            waiting.put(fault)
        outcomes: dict[str, str] = {}
        threads = [
            threading.Thread(target=work, args=(copy, waiting, wrong, asked.limit, outcomes))
            for copy in copies
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    counts = Counter(outcomes.values())
    told = ", ".join(f"{counts[kind]} {kind}" for kind in MARKS if counts[kind])
    print(f"{told}: {counts['caught']} of {len(chosen)} in {time.monotonic() - begin:.0f} s")
    return 0 if counts["caught"] == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
