"""Install packages, with progress lines and, on failure, one line that says how to fix it.

Where the environment has uv, it installs: in seconds where pip takes minutes, and from the cache
that tox's environments use. If it fails, pip tries again, and says why it fails.

    VENV/bin/python .ci/install.py WORD …      the words of `pip install`

A terminal or a log gets a line for every large download and one at least every ten seconds.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

EVERY_S = 10.0
NEEDED_GB = 5.0
#: A large download as pip and as uv ("182.4MiB") print it.
LARGE = re.compile(r"^\s*(?:Downloading|Using cached|Obtaining) (\S+).*?\(([\d.]+) ?([MG])i?B\)")
STEP = re.compile(r"^\s*(Collecting|Preparing metadata|Building wheel) ?(\S*)")
#: Pattern of pip's output → explanation and remedy; the first match counts.
REMEDIES = (
    (
        "No space left",
        "no space left; dualml needs about 5 GB: free some, or put the environment "
        "elsewhere with make VENV=/path/to/venv",
    ),
    (
        "Permission denied|Read-only file system",
        "cannot write to {venv}: give yourself the right "
        "to, or put the environment elsewhere with make VENV=/path/to/venv",
    ),
    (
        "ProxyError|Tunnel connection failed|407 Proxy",
        "the proxy refuses: set https_proxy=http://"
        "USER:PASSWORD@HOST:PORT, or give pip an index that needs none (pip config set "
        "global.index-url URL)",
    ),
    (
        "SSLError|CERTIFICATE_VERIFY_FAILED",
        "the certificate of the package index is not accepted: "
        "name that of your network with pip config set global.cert FILE",
    ),
    (
        "NewConnectionError|ConnectTimeout|ReadTimeout|Max retries|NameResolution"
        "|Connection refused|Connection broken",
        "the package index does not answer: go online, set https_proxy, or name "
        "another one with pip config set global.index-url URL; what is installed stays",
    ),
    (
        r"command '?\S*(?:gcc|cc|g\+\+|clang)'? failed|No such file or directory: '\S*(?:gcc|cc)'",
        "a package has no wheel for this system and there is no compiler: install gcc (Debian, "
        "Ubuntu: build-essential), or use Python 3.11 or 3.12 on x86-64 or arm64",
    ),
    (
        "Could not find a version|No matching distribution",
        "the package index lacks a package: {line}",
    ),
    (
        "Hash|BadZipFile|is not a valid wheel|CRC",
        "a download was damaged: run the same command again",
    ),
)


class Progress:
    """pip's progress: prints large downloads, and a line whenever nothing was printed for ten
    seconds."""

    def __init__(self) -> None:
        self.begin = self.last = time.monotonic()
        self.at, self.seen, self.over = "starting", 0, threading.Event()
        threading.Thread(target=self.tick, daemon=True).start()

    def say(self, text: str) -> None:
        self.last = time.monotonic()
        print(f"  {self.last - self.begin:4.0f} s  {text}", flush=True)

    def tick(self) -> None:
        while not self.over.wait(0.5):
            if time.monotonic() - self.last >= EVERY_S:
                self.say(f"{self.at} (package number {self.seen})" if self.seen else self.at)

    def take(self, line: str) -> None:
        large = LARGE.match(line)
        if large and (large[3] == "G" or float(large[2]) >= 20):
            self.say(f"{Path(large[1]).name}: {large[2]} {large[3]}B")
        if step := STEP.match(line):
            self.seen += step[1] == "Collecting"
            self.at = f"{step[1].lower()} {step[2]}".strip()
        if line.startswith("Installing collected packages:"):
            self.seen, self.at = 0, f"unpacking {line.count(',') + 1} packages"
            self.say(self.at)
        if line.startswith(("Resolved ", "Prepared ")):  # uv's
            self.at = line.strip()
            self.say(self.at)


def remedy(output: list[str], venv: Path) -> str:
    """Return one line that explains pip's error and how to fix it."""
    text = "\n".join(output)
    for pattern, words in REMEDIES:
        if re.search(pattern, text):
            lines = [line for line in output if re.search(pattern, line)]
            return words.format(venv=venv, line=lines[-1].removeprefix("ERROR: "))
    errors = [line for line in output if line.startswith("ERROR")] or output[-1:]
    return errors[-1] if errors else "pip said nothing"


def run_installer(
    command: list[str], progress: Progress, env: dict[str, str]
) -> tuple[int, list[str]]:
    """Run pip or uv and report its progress; return the exit code and its output."""
    output = list[str]()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            output.append(line.rstrip())
            progress.take(line)
        return process.wait(), output
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise


def install(words: list[str], progress: Progress) -> tuple[int, list[str]]:
    """Install with uv, or with pip where there is no uv or it fails; return pip's exit code and
    output."""
    uv = Path(sys.executable).with_name("uv")
    if uv.is_file():
        settings = runpy.run_path(str(Path(__file__).with_name("tox.py")))["uv_settings"]()
        command = [str(uv), "pip", "install", "--python", sys.executable, *words]
        code, _ = run_installer(command, progress, {**os.environ, **settings})
        if not code:
            return 0, []
    pip = [sys.executable, "-m", "pip", "install", "--progress-bar", "off", "--retries", "2"]
    pip += ["--timeout", "20", "--disable-pip-version-check", *words]
    return run_installer(pip, progress, dict(os.environ))


def main(words: list[str]) -> int:
    venv = Path(sys.prefix)
    free = shutil.disk_usage(venv).free / 1e9
    if free < NEEDED_GB and not list(venv.glob("lib/python*/site-packages/torch")):
        have = f"{venv} has {free:.1f} GB of space, dualml needs {NEEDED_GB:g}"
        elsewhere = "free some, or put the environment elsewhere with make VENV=/path/to/venv"
        print(f"cannot install: {have}: {elsewhere}", file=sys.stderr)
        return 2
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode:
        subprocess.run([sys.executable, "-m", "ensurepip"], capture_output=True, check=False)
    progress = Progress()
    try:
        code, output = install(words, progress)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it was", file=sys.stderr)
        return 130
    finally:
        progress.over.set()
    if code:
        print(f"cannot install: {remedy(output, venv)}", file=sys.stderr)
        return 2
    progress.say("installed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
