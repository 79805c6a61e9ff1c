"""Ask dualml about small cases made of public bug reports, and count right verdicts and causes.

python benchmarks/reports/run.py [--half tuned|held-out|both] [--only NAME …] [--jobs N]
    [--out FILE] [--limit SECONDS]

Each case runs as its user would run it: in a folder of its own, by its command or script. A hash
of its name decides which half a case belongs to. Causes were developed with the tuned half; the
figures that count are those of the held-out half. FORMAT.md describes the cases.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CASES = HERE / "cases"
HALVES = ("tuned", "held-out")
VERDICTS = ("equal", "different", "not comparable")
PHASES = ("parameters", "forward", "loss", "gradient", "update", "state")
#: Keys that every case has, and those that it may have.
REQUIRED = frozenset(("source", "title", "symptom", "expected", "truth"))
OPTIONAL = frozenset(("command", "script", "words", "phase"))
#: Seconds after which a case is ended.
LIMIT = 120
#: Command whose answer is judged; it ends a case's command and is asked for JSON.
QUESTION = "dualml compare "


@dataclass(frozen=True)
class Case:
    """A bug report as a case: a folder with `case.toml` and the files of its user."""

    name: str
    facts: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        return CASES / self.name

    @property
    def half(self) -> str:
        return HALVES[hashlib.sha256(self.name.encode()).digest()[0] % 2]

    @property
    def expected(self) -> str:
        return str(self.facts["expected"])

    @property
    def commands(self) -> tuple[str, str]:
        """The commands that prepare the question, and the question itself."""
        if "script" in self.facts:
            return "", f"python {self.facts['script']}"
        prepare, _, question = str(self.facts["command"]).rpartition(QUESTION)
        return prepare.rstrip(" &"), f"{QUESTION}{question} --json"


@dataclass(frozen=True)
class Outcome:
    """Output of a shell command, its exit status (None: ended at the limit), and its times."""

    stdout: str
    stderr: str
    status: int | None
    seconds: float
    cpu_seconds: float


def read_cases() -> list[Case]:
    """Read all cases, in the order of their names."""
    files = sorted(CASES.glob("*/case.toml"))
    return [Case(file.parent.name, tomllib.loads(file.read_text("utf-8"))) for file in files]


def run_command(command: str, folder: Path, limit: float) -> Outcome:
    """Run a shell command in a folder, with this source tree, for at most ``limit`` seconds."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(HERE.parents[1]),
        "MPLBACKEND": "Agg",
        "NO_COLOR": "1",
    }
    shell = f"{command}\nstatus=$?; times > .times; exit $status"
    start = time.perf_counter()
    process = subprocess.Popen(
        ["bash", "-c", shell],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    status: int | None = None
    try:
        stdout, stderr = process.communicate(timeout=max(limit, 0))
        status = process.returncode
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
    seconds = time.perf_counter() - start
    return Outcome(stdout, stderr, status, seconds, read_times(folder / ".times"))


def read_times(file: Path) -> float:
    """Return the CPU seconds that bash's ``times`` wrote, of a shell and its children; 0 without
    the file."""
    text = file.read_text() if file.exists() else ""
    found = re.findall(r"(\d+)m([\d.]+)s", text)
    return sum(60 * int(minutes) + float(seconds) for minutes, seconds in found)


def run_case(case: Case, limit: float = LIMIT) -> dict[str, Any]:
    """Run a case in a copy of its folder for at most ``limit`` seconds, and return its graded
    row."""
    row: dict[str, Any] = {
        "name": case.name,
        "half": case.half,
        "source": case.facts["source"],
        "expected": case.expected,
    }
    prepare, question = case.commands
    with tempfile.TemporaryDirectory(prefix="dualml-report-") as parent:
        folder = Path(parent) / case.name
        shutil.copytree(case.folder, folder)
        prepared = 0.0
        if prepare:
            first = run_command(prepare, folder, limit)
            prepared = first.seconds
            row |= {"prepare_seconds": prepared, "prepare_cpu_seconds": first.cpu_seconds}
            if first.status != 0:
                verdict, text, _ = read_answer(first, "")
                verdict = verdict if verdict in ("timeout", "refused") else "stumbled"
                causes = split_causes(verdict, text)
                return row | {"verdict": verdict, "text": text} | grade(case, verdict, "", *causes)
        outcome = run_command(question, folder, limit - prepared)
    row |= {"seconds": outcome.seconds, "cpu_seconds": outcome.cpu_seconds}
    verdict, text, phase = read_answer(outcome, question)
    row |= {"verdict": verdict, "phase": phase, "text": text}
    return row | grade(case, verdict, phase, *split_causes(verdict, text))


def read_answer(outcome: Outcome, question: str) -> tuple[str, str, str]:
    """Return the verdict, the English text and the phase of the first divergence.

    The verdict is ``timeout`` or ``stumbled`` if there is none, and ``refused`` where the question
    was answered by an error in one line.
    """
    if outcome.status is None:
        return "timeout", (outcome.stdout + outcome.stderr)[-600:], ""
    if question.endswith("--json") and (begin := outcome.stdout.find("{\n")) >= 0:
        found = json.loads(outcome.stdout[begin:])
        text = found["text"]["en"] if isinstance(found.get("text"), dict) else str(found)
        return found["verdict"], text, (found.get("first") or {}).get("phase", "")
    output = f"{outcome.stdout}\n{outcome.stderr}"
    pattern = rf"^(?:\S*AssertionError: |E\s+)?({'|'.join(VERDICTS)})[:.](?=\s|$)"
    if matches := list(re.finditer(pattern, output, re.MULTILINE)):
        text = output[matches[-1].start(1) :]
        phase = re.match(rf"[^\n]*?step \d+, ({'|'.join(PHASES)})", text)
        return matches[-1][1], text, phase[1] if phase else ""
    lines = output.strip().splitlines()
    error = re.sub(r"^[\w.]*UserError: ", "", lines[-1]) if lines else ""
    is_traceback = "Traceback (most recent call last)" in output
    if outcome.status == 0 or (is_traceback and error == (lines[-1] if lines else "")):
        return "stumbled", output.strip()[-600:], ""
    return "refused", error, ""


def split_causes(verdict: str, text: str) -> tuple[str, str]:
    """Return the part of an answer that names causes, and the part that names equally good ones.

    Of a comparison that was refused, or is not comparable, the whole text is the cause.
    """
    if verdict in ("not comparable", "refused"):
        return text, ""
    if verdict != "different":
        return "", ""
    text = join_page(text)
    ties = " ".join(re.findall(r"[Ee]xplains? it equally well: (.*?\.)(?= [A-Z]|$)", text))
    text = re.sub(
        r"(These explain|This explains|Explains) it equally well: .*?\.(?= [A-Z]|$)", "", text
    )
    parts = re.findall(
        r"(?:Cause, tested: |Likely cause: |\bcause: |\bThen: |\bthen: ).*?"
        r"(?=With th|That is not all|Tested: with |Apart from that|Cause, tested|Likely cause"
        r"|\bThen: |\bthen: |$)",
        text,
    )
    return " ".join(part for part in parts if "No cause was found" not in part), ties


def join_page(text: str) -> str:
    """Return the parts of a page, or a paragraph, as one line; labels of causes end in a colon."""
    lines = []
    for line in text.splitlines():
        labelled = re.match(r"(cause|then|open|note|numbers|phases|more|patch)  +(.*)", line)
        if labelled and labelled[1] in ("cause", "then"):
            lines.append(f"{labelled[1]}: {labelled[2]}")
        elif labelled and labelled[1] in ("numbers", "phases", "more"):
            lines.append("With that " + labelled[2])  # ends what stands before it
        else:
            lines.append(labelled[2] if labelled else line)
    return re.sub(r"\s+", " ", " ".join(lines))


def grade(case: Case, verdict: str, phase: str, causes: str, ties: str) -> dict[str, Any]:
    """Return whether the verdict, the phase and the cause are right."""
    expected = case.expected
    refusal = expected == "not comparable" and verdict == "refused"
    flags: dict[str, Any] = {
        "right": verdict == expected or refusal,
        "wrong_equal": verdict == "equal" and expected != "equal",
        "wrong_different": verdict == "different" and expected != "different",
        "cause": causes,
    }
    if "words" not in case.facts or not flags["right"]:
        return flags
    alternatives = case.facts["words"]
    flags["named"] = bool(causes)
    flags["cause_right"] = has_words(causes, alternatives)
    flags["cause_tied"] = has_words(ties, alternatives)
    if "phase" in case.facts:
        flags["phase_right"] = phase == case.facts["phase"]
    return flags


def has_words(text: str, alternatives: list[list[str]]) -> bool:
    """Return whether all words of one of the alternatives are in a text, in any case.

    A minus sign counts as a hyphen.
    """
    text = text.lower().replace("\N{MINUS SIGN}", "-")
    return any(all(word in text for word in words) for words in alternatives)


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each half, as `benchmarks/ports/run.py` does, and its times."""
    for half in HALVES:
        of_half = [row for row in rows if row["half"] == half]
        wrong = [row for row in of_half if row["expected"] == "different"]
        found = [row for row in wrong if row["verdict"] == "different"]
        named = [row for row in found if row.get("named")]
        true = [row for row in named if row["cause_right"]]
        tied = [row for row in named if not row["cause_right"] and row["cause_tied"]]
        phases = [row for row in found if row.get("phase_right")]
        others = [row for row in of_half if row["expected"] != "different"]
        agreed = [row for row in others if row["right"]]
        equal = sum(row["wrong_equal"] for row in of_half)
        different = sum(row["wrong_different"] for row in of_half)
        ended = sum(row["verdict"] in ("timeout", "stumbled") for row in of_half)
        refused = sum(row["verdict"] == "refused" and not row["right"] for row in of_half)
        yield (
            f"{half}: {len(found)} of {len(wrong)} different cases are different; a cause is named "
            f"for {len(named)} and right for {len(true)} (precision {share(true, named)}, recall "
            f"{share(true, wrong)}; {len(tied)} more among ties); phase {len(phases)}; "
            f"{len(agreed)} of {len(others)} other cases are right"
        )
        seconds = [row["seconds"] for row in of_half if "seconds" in row]
        cpu = [row["cpu_seconds"] for row in of_half if "seconds" in row]
        if seconds:
            yield (
                f"{half}: {equal} wrong equal, {different} wrong different, {refused} refused, "
                f"{ended} stumbled or too late; median {statistics.median(seconds):.1f} s, "
                f"{statistics.median(cpu):.1f} s of CPU"
            )


def share(some: list[Any], of: list[Any]) -> str:
    """Return a share in per cent, or "none" if there is nothing to share."""
    return f"{len(some) / len(of):.1%}" if of else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=(*HALVES, "both"), default="both")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for each case")
    given = parser.parse_args()
    chosen = [
        case
        for case in read_cases()
        if given.half in (case.half, "both") and (not given.only or case.name in given.only)
    ]
    rows = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for row in pool.map(partial(run_case, limit=given.limit), chosen):
            rows.append(row)
            flags = [key for key in ("right", "phase_right", "cause_right") if row.get(key)]
            flags += [key for key in ("wrong_equal", "wrong_different") if row[key]]
            seconds = f"{row.get('seconds', 0):6.1f} s"
            print(f"{row['name']:40} {row['verdict']:14} {seconds}  {' '.join(flags)}", flush=True)
            if given.out:
                given.out.write_text(json.dumps(rows, indent=1))
    for line in summary(rows):
        print(line)


if __name__ == "__main__":
    sys.exit(main())
