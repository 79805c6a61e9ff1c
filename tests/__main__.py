"""Run the tests of one environment with both frameworks, part by part: ``make test``.

    python -m tests [PART …] [--fast] [-- PYTEST_ARGUMENTS]

Each part is a pytest session of its own, because PyTorch and MindSpore change settings of the
process that imports them. Two parts run at a time, a part alone has two processes. All parts run,
whatever fails; a table at the end names what failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: pytest's words for every part: each process takes whole files, the longest first.
PYTEST = ["-m", "pytest", "-raR", "--durations=12", "--durations-min=10"]
PYTEST += ["--dist", "loadfile", "--no-loadscope-reorder"]
#: Processes of all parts together.
PROCESSES = 2
NO_TESTS = 5  # pytest's exit code where no test is selected


@dataclass(frozen=True)
class Part:
    """One pytest session.

    Attributes:
        paths: folders or files that it runs.
        backend: the backend that the conformance suite judges.
        without: pattern of files in the folders that it leaves to another part.
    """

    paths: tuple[str, ...]
    backend: str = ""
    without: str = ""

    def environ(self) -> dict[str, str]:
        """Return the variables of the session: without one of its modules it ends with an error."""
        needed = "torch,torchvision,mindspore,tokenizers,tensorboard"
        judged = {"DUALML_CONFORMANCE": self.backend, "DUALML_JUDGE_ALL": "1"}
        found = {"DUALML_REQUIRE": needed, "MPLBACKEND": "Agg", **(judged if self.backend else {})}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        return {**os.environ, **found, "PATH": path}


#: Files about exercises, a part of their own, so that no part takes half of the time.
COURSE = "tests/core/test_course*.py"
#: The longest first, so that two at a time end together.
PARTS = {
    "core": Part(("tests/core", "tests/golden"), without=COURSE),
    "torch": Part(("tests/torch", "tests/conformance"), "torch"),
    "system": Part(("tests/system",)),
    "mindspore": Part(("tests/mindspore", "tests/conformance"), "mindspore"),
    "course": Part(tuple(path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob(COURSE)))),
    "reference": Part(("tests/conformance",), "numpy"),
}
#: Most seconds of a file that `make test-fast` runs.
FAST_S = 1.5


def run_part(name: str, part: Part, words: list[str], processes: int) -> tuple[int, float]:
    """Run one part with its name before each line; return pytest's exit code and the seconds."""
    record = ROOT / f"build/durations/{name}.json"
    several = str(processes) if processes > 1 else "0"  # 0: in pytest's own process
    command = [sys.executable, *PYTEST, "-n", several, "--record", str(record)]
    command += [f"--ignore-glob={part.without}"] if part.without else []
    begin = time.monotonic()
    with subprocess.Popen(
        [*command, *words, *part.paths],
        cwd=ROOT,
        env=part.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as session:
        assert session.stdout is not None
        for line in session.stdout:
            print(f"{name} | {line}", end="", flush=True)
    code = session.returncode
    chosen = "-k" in words and code == NO_TESTS  # they are in another part
    return (0 if chosen else code), time.monotonic() - begin


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--fast", action="store_true", help="the core's quick files")
    own, words = sys.argv[1:], list[str]()
    if "--" in own:
        own, words = own[: own.index("--")], own[own.index("--") + 1 :]
    asked = parser.parse_args(own)
    if unknown := sorted(set(asked.parts) - set(PARTS)):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    chosen = {name: PARTS[name] for name in asked.parts or PARTS}
    if asked.fast:
        from tests.tiers import read_durations  # a package only where this is the main module

        known = read_durations().items()
        files = [name for name, s in known if name.startswith("tests/core/") and s <= FAST_S]
        chosen, words = {"fast": Part(tuple(files))}, ["-m", "not whole and not system", *words]
    begin, at_once = time.monotonic(), min(PROCESSES, len(chosen))
    with ThreadPoolExecutor(at_once) as pool:
        sessions = {
            name: pool.submit(run_part, name, part, ["--tier=test", *words], PROCESSES // at_once)
            for name, part in chosen.items()
        }
        found = {name: session.result() for name, session in sessions.items()}
    for name, (code, seconds) in found.items():
        print(f"  {name}: {f'FAIL {code}' if code else 'OK'} ({seconds:.0f} s)")
    print(f"  together: {time.monotonic() - begin:.0f} s")
    return max(code for code, _ in found.values())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # pytest has said so
        sys.exit(130)
