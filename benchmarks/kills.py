"""Kill thirty runs: each kill is named, leaves no process, and resuming gives the same files.

    python benchmarks/kills.py [--count 30] [--only NUMBER …] [--jobs 2] [--markdown]

Every pair of a start method and a victim occurs once; a hash chooses the moment, the framework, and
how the run is resumed. The machines are network namespaces (`machines`), which need root, iproute2,
openssh-server, slurm-wlm and munge. Moments are defined by the progress seen in the run folder.
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
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from judging import differing_files, last_digits, leftovers, lost_ranks, names, names_lost_rank
from kills_page import write
from machines import POLL_S, NamespaceMachine, machines, python, wait
from starting import Hand, Local, Msrun, Ssh, StartMethod, Torchrun, cmdline, status
from starting_slurm import Slurm

LAB = Path(__file__).with_name("kills.toml")
FIRST, SECOND, UPDATES = "first", "second", 100
WAYS: dict[str, type[StartMethod]] = {
    "hand": Hand,
    "torchrun": Torchrun,
    "msrun": Msrun,
    "hosts": Ssh,
    "slurm": Slurm,
    "local": Local,
}
#: Start method → what can be killed: one worker, a whole machine, one process, or a cable.
VICTIMS = {
    "hand": ("worker", "node a", "node b", "launcher", "cable"),
    "torchrun": ("worker", "node a", "node b", "launcher", "cable"),
    "msrun": ("worker", "node a", "node b", "launcher", "cable"),
    "hosts": ("worker", "node a", "node b", "launcher", "ssh", "sshd", "cable"),
    "slurm": ("worker", "node a", "node b", "runner"),
    "local": ("worker", "node a", "runner", "scheduler"),
}
MOMENTS = ("start", "training", "checkpoint", "between", "end")
#: Terminal lines that count as the last line: those of dualml and of its jobs.
OURS = re.compile(r"dualml: |^job \d+: ")
#: Limits until the moment of a kill, until the run's processes are gone after it (the promised
#: limit), and until a resumed run has ended.
COME_S, GONE_S, WHOLE_S = 500.0, 30.0, 500.0
CHECKPOINT = {"DUALML_CHECKPOINT_S": "0.05"}


@dataclass(frozen=True)
class Case:
    """One kill: start method, victim, moment, backend, and how the run is resumed."""

    number: int
    way: str
    victim: str
    moment: str
    backend: str
    #: Whether only one machine resumes the run, with both ranks.
    alone: bool


def drawn(seed: int, *words: object) -> int:
    """Return a number drawn from a seed and some words, by a hash."""
    return int.from_bytes(hashlib.sha256(" ".join(map(str, (seed, *words))).encode()).digest()[:4])


def cases(seed: int, count: int) -> list[Case]:
    """Return the first ``count`` of all pairs, in an order given by the seed."""
    pairs = [(way, victim) for way, victims in VICTIMS.items() for victim in victims]
    pairs.sort(key=lambda pair: drawn(seed, *pair))
    found = []
    for number, (way, victim) in enumerate(pairs[:count]):
        framework = {"torchrun": "torch", "msrun": "mindspore"}.get(way)
        chance = "mindspore" if drawn(seed, way, victim, "backend") % 6 == 0 else "torch"
        where = "worker 1" if drawn(seed, way, "rank") % 2 else "worker 0"
        found.append(
            Case(
                number + 1,
                way,
                where if victim == "worker" else victim,
                MOMENTS[number % len(MOMENTS)],
                framework or chance,
                way not in ("slurm", "local") and drawn(seed, way, victim, "alone") % 3 > 0,
            )
        )
    return found


# --- when -----------------------------------------------------------------------------------------


def last_step(path: Path) -> int:
    """Return the step of the last recorded loss; 0 before the first."""
    with contextlib.suppress(OSError, ValueError):
        lines = path.read_text("utf-8").rpartition("\n")[0].splitlines()
        return max((r["step"] for r in map(json.loads, lines) if r["metric"] == "loss"), default=0)
    return 0


def writing(way: StartMethod, seconds: float = 5.0) -> bool:
    """Return whether a checkpoint is being written within so many seconds, in the run folder or a
    rank's copy of it. The first few are skipped, then it polls continuously."""
    if last_step(way.place(FIRST) / "rank0.jsonl") < UPDATES // 10:
        return False
    copies = (m.temporary for m in way.there.values())
    places = [way.place(FIRST), *(p for c in copies for p in c.glob(f"*/trials/{FIRST}/*/seed0"))]
    end = time.monotonic() + seconds
    while time.monotonic() < end and status(way.out, FIRST) != "ok":
        for _ in range(100):
            for place in places:
                for name in os.listdir(place):
                    if name[0] == "." and "checkpoint" in name:
                        return True
    return False


def moment_reached(way: StartMethod, moment: str) -> bool:
    """Return whether the moment of the kill has come."""
    if moment == "start":
        return all(way.parts(f"worker {rank}") for rank in (0, 1))
    if moment == "training":
        return last_step(way.place(FIRST) / "rank0.jsonl") > UPDATES // 5
    if moment == "checkpoint":
        return writing(way)
    if moment == "between":
        return status(way.out, FIRST) == "ok"
    return last_step(way.place(SECOND) / "rank0.jsonl") > UPDATES * 3 // 4


# --- what -----------------------------------------------------------------------------------------


def strike(way: StartMethod, victim: str) -> list[str]:
    """Kill the victim; return the machines on which no process is left to report it."""
    if victim == "cable":
        way.there["b"].link(up=False)
        return []
    if victim.startswith("node"):
        name = victim[-1]
        way.there[name].kill()
        return [name]
    parts = way.parts(victim)
    if not parts:
        raise RuntimeError(f"there is no {victim}")
    for process in parts:
        process.send_signal(signal.SIGKILL)
    return {t.process.pid: [n] for n, t in way.terminals.items()}.get(parts[0].pid, [])


def alive(there: Mapping[str, NamespaceMachine]) -> list[psutil.Process]:
    """Return all processes of the run, except msrun's ``tail -f`` of a log, which outlives a killed
    msrun."""
    every = [process for machine in there.values() for process in machine.processes()]
    return [process for process in every if cmdline(process)[1:2] != ["-f"]]


def described(processes: list[psutil.Process]) -> list[str]:
    """Return the ids and command lines of processes that still exist."""
    lines = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            lines.append(f"{process.pid} {' '.join(process.cmdline())[:160]}")
    return lines


def observe_kill(way: StartMethod, case: Case, dead: list[str], begin: float) -> dict[str, Any]:
    """Return what the surviving ends report of a kill, and when the last process of the run has
    gone."""
    ends = ["job"] if way.job else [n for n in way.terminals if n not in dead]
    before = {end: len(way.lines(end)) for end in ends}
    named, gone, last = dict[str, float](), None, dict[str, str]()
    ranks = lost_ranks(case.victim)
    while time.monotonic() - begin < WHOLE_S:
        now = time.monotonic() - begin
        over = not (left := alive(way.there)) and way.is_settled()
        for end in ends:
            lines = way.lines(end)[before[end] :]
            last[end] = next((x for x in reversed(lines) if OURS.search(x)), "")
            if end not in named and any(names_lost_rank(line, ranks, end) for line in lines):
                named[end] = now
        if over:
            gone = now
            break
        going = way.job or case.victim.startswith("worker")
        if now > GONE_S and not going:
            break
        time.sleep(POLL_S)
    codes = {n: way.terminals[n].code() for n in ends if n in way.terminals}
    if way.job:
        codes = {"job": way.state()["code"]}
    return {
        "ends": ends,
        "named_s": named,
        "gone_s": gone,
        "last": last,
        "codes": codes,
        "orphans": [] if gone is not None else described(left),
    }


def resume_run(way: StartMethod, case: Case) -> None:
    """Resume the run as the last lines suggest, and wait for its end.

    Raises:
        RuntimeError: the resumed run failed.
    """
    if case.alone:
        command = python("dualml", "run", "--resume", way.out, "--no-report", "--no-find")
        way.there["a"].run(command, WHOLE_S, **way.env)
        return
    way.resume()
    wait(way.is_over, WHOLE_S, "the end of the run that goes on")
    if way.job:
        if (state := way.state())["status"] != "ok":
            raise RuntimeError(f"the job is {state['status']}: {state['reason']}")
        return
    for name, terminal in way.terminals.items():
        if terminal.code():
            raise RuntimeError(f"{name} ended with {terminal.code()}: {terminal.text()[-1500:]}")


def trial(case: Case, whole: Path, folder: Path) -> dict[str, Any]:
    """Run one kill, from the first command to the comparison with the undisturbed run."""
    row: dict[str, Any] = asdict(case)
    with machines(folder) as there:
        env = {**CHECKPOINT, "DUALML_TOKEN": "of all the machines here"}
        way = WAYS[case.way](there, [LAB, "--threads", 1], case.backend, env)
        try:
            way.setup()
            for machine in there.values():
                machine.mark_daemons()
            way.begin()
            wait(lambda: moment_reached(way, case.moment), COME_S, f"the moment {case.moment!r}")
            row["step"] = last_step(way.place(FIRST) / "rank0.jsonl")
            begin = time.monotonic()
            dead = strike(way, case.victim)
            row |= observe_kill(way, case, dead, begin)
            row["half"] = leftovers(way.out, whole)
            if case.way == "slurm" and dead:
                dead.append("login")  # tasks take the submission's folder along, the dead one's too
            row["temporary"] = [
                p.name
                for n, m in there.items()
                if n not in dead
                for p in m.temporary.glob("dualml-*")
            ]
            if case.victim == "cable":
                there["b"].link(up=True)
            for process in alive(there) if not way.job else ():
                with contextlib.suppress(psutil.Error):
                    process.kill()
            begin = time.monotonic()
            resume_run(way, case)
            row["resumed_s"] = time.monotonic() - begin
            row["differing"] = differing_files(whole, way.out, case.backend)
            row["last_digits"] = last_digits(whole, way.out, case.backend)
            row["left"] = leftovers(way.out, whole)
        except (TimeoutError, RuntimeError, subprocess.TimeoutExpired, OSError) as error:
            row["error"] = f"{type(error).__name__}: {error}"
            row["output"] = {n: t.text()[-1500:] for n, t in way.terminals.items()}
            print(traceback.format_exc(), file=sys.stderr)
        finally:
            with contextlib.suppress(TimeoutError):
                way.close()
    return row | names(row)


@contextlib.contextmanager
def references(backends: set[str], folder: Path) -> Iterator[Callable[[str], Path]]:
    """Run the undisturbed runs, one for each backend, and return their folders."""
    for backend in sorted(backends):
        words = ["run", LAB, "--threads", 1, "--out", folder / backend, "--backend", backend]
        core = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]  # as many as machines have
        command = [*core, *python("dualml", *words, "--no-report", "--no-find")]
        if status(folder / backend, SECOND) != "ok":
            subprocess.run(command, check=True, timeout=WHOLE_S, capture_output=True)
    yield lambda backend: folder / backend


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", type=int, nargs="*", help="numbers; else what --out lacks or has badly"
    )
    parser.add_argument("--jobs", type=int, default=1, help="kills at a time")
    parser.add_argument("--list", action="store_true", help="say which they are, and kill nothing")
    parser.add_argument(
        "--out", type=Path, default=LAB.with_suffix(".json"), help="kept row by row"
    )
    parser.add_argument("--markdown", action="store_true", help="into docs/benchmarks(.zh).md")
    parser.add_argument("--keep", type=Path, help="folder for what the runs leave")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the machines go with this process
    every = cases(asked.seed, asked.count)
    if asked.list:
        for case in every:
            print(case)
        return 0
    rows = {r["number"]: r for r in json.loads(asked.out.read_text())} if asked.out.exists() else {}
    done = {number for number, row in rows.items() if row["well"]}
    left = [case.number for case in every if case.number not in done]
    chosen = [case for n in asked.only or left for case in every if case.number == n]
    with tempfile.TemporaryDirectory(prefix="kills-") as temporary:
        folder = asked.keep or Path(temporary)
        with (
            references({c.backend for c in chosen}, folder / "whole") as whole,
            ThreadPoolExecutor(asked.jobs) as pool,
        ):

            def run_case(case: Case) -> dict[str, Any]:
                place = folder / str(case.number)
                shutil.rmtree(place, ignore_errors=True)
                return trial(case, whole(case.backend), place)

            for row in map(Future.result, as_completed([pool.submit(run_case, c) for c in chosen])):
                rows[row["number"]] = row
                print(json.dumps(row), flush=True)
                text = json.dumps([rows[n] for n in sorted(rows)], indent=1)
                asked.out.write_text(text + "\n")
    if asked.markdown:
        write([rows[n] for n in sorted(rows)])
    bad = [r["number"] for r in rows.values() if not r["well"]]
    print(f"{len(rows)} kills, not well: {bad}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
