"""Training next to processes that keep the cores busy, for several thread settings and cores.

    python benchmarks/busy.py --backend torch|mindspore [--quick] [--json] [--times FILE]

LeNet, SGD, 64 samples per update, on one rank as in a trial, and split over two and four ranks. The
ranks of each setting are started once and stopped (SIGSTOP) outside their turn. First the machine
is quiet, then 1, 2 and 4 processes spin in Python. In each round all settings take turns in a new
random order.

Fair share: with n ranks of t threads on c cores, each thread gets min(1, c / nt) of a core on a
quiet machine, and min(1, c / (nt + b)) next to b busy processes. The fair time is that of the best
quiet setting with the same ranks and threads, times the quotient of the two: max(1, (nt + b) / c) /
max(1, nt / c). Linux with ``sched_autogroup_enabled`` shares by session instead, so every rank and
every busy process is started in its own session, as if by different people.

dualml measures the load of others when it starts, and chooses its setting by it. The limits are
1.02 times the best setting with as many ranks on a machine that is quiet at the start, and 1.5
times the fair time next to busy processes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from busy_groups import Group, ThreadSetting, busy
from busy_work import STEPS
from ratio_rows import RatioRow, fastest_variant, make_row

from dualml.interface.bench.timing import Ratio, Times, ratio_quartiles

CORES, LOADS = 2, (0, 1, 2, 4)
QUIET, FAIR = 1.02, 1.5
#: Seconds of measuring, by number of ranks; a round longer than `LONG_S` is not repeated.
BUDGET_S, QUICK_S = {1: 140.0, 2: 100.0, 4: 70.0}, {1: 15.0, 2: 12.0, 4: 10.0}
LONG_S = 3.0
OURS, BESIDE, DEFAULT = "as dualml, begun quiet", "as dualml, begun beside others", "nothing set"


def variable(name: str, value: object, threads: int) -> ThreadSetting:
    """Return the setting that sets one environment variable."""
    return ThreadSetting(f"{name}={value}", threads, {name: str(value)})


def settings(backend: str, size: int, quick: bool, cores: Sequence[int]) -> list[ThreadSetting]:
    """Return the settings that are measured with so many ranks."""
    found = [ThreadSetting(OURS, max(1, CORES // size)), ThreadSetting(BESIDE, 1, busy=(0.5, 0.5))]
    found += [ThreadSetting(DEFAULT, t, {}) for t in (2, 1)]
    if quick:
        return found[:3] if size < 4 else found[:2]
    found += [ThreadSetting("bound to one core", 1, {}, 1), variable("GOMP_SPINCOUNT", 0, 2)]
    if size > 2:
        return found
    found.append(variable("OMP_WAIT_POLICY", "passive", 2))
    if size > 1:
        return found
    found += [variable("GOMP_SPINCOUNT", count, 2) for count in (1000, 10_000, 100_000)]
    found.append(variable("OMP_WAIT_POLICY", "active", 2))
    where = {"GOMP_CPU_AFFINITY": " ".join(map(str, cores))}
    found += [
        ThreadSetting("each thread on a core", 2, where),
        ThreadSetting(
            "each thread on a core, GOMP_SPINCOUNT=3000", 2, {**where, "GOMP_SPINCOUNT": "3000"}
        ),
    ]
    if backend == "mindspore":
        runtime = {"dispatch_threads_num": (1, 2), "op_tuning.threads_num": (1, 2)}
        for name, values in {**runtime, "set_cpu_affinity": (1,)}.items():
            found += [ThreadSetting(f"{name}({v})", 2, None, 0, {name: v}) for v in values]
    return found


def measure(groups: Mapping[str, Group], seconds: float) -> dict[int, Times]:
    """Return load → setting → its times, from at least two cycles through all loads."""
    draw, begin, cycles = random.Random(0), time.monotonic(), 0
    times: dict[int, Times] = {load: {name: [] for name in groups} for load in LOADS}
    while cycles < 2 or time.monotonic() - begin < seconds:
        for load in (0, 0, *LOADS):  # the narrower limit needs more rounds
            with busy(load):
                for name in draw.sample(list(groups), len(groups)):
                    before = times[load][name]
                    if load and before and before[-1] * STEPS > LONG_S * 1e3:
                        continue
                    before.append(groups[name](load))
        cycles += 1
    return times


def fair(size: int, threads: int, load: int, cores: int) -> float:
    """Return the factor by which fair sharing lengthens a quiet second.

    >>> fair(1, 2, 1, 2), fair(1, 1, 1, 2), fair(4, 1, 4, 2)
    (1.5, 1.0, 2.0)
    """
    ours = size * threads
    return max(1.0, (ours + load) / cores) / max(1.0, ours / cores)


def judge(
    section: str, size: int, asked: Sequence[ThreadSetting], times: Mapping[int, Times], cores: int
) -> list[RatioRow]:
    """Return a row for each setting, four for dualml's own choice, and the settings within both
    limits."""
    ranks, quiet = f"{size} rank{'s' * (size > 1)}", times[0]
    best, kept, made = fastest_variant(quiet, list(quiet)), [], []
    middle = {load: {n: statistics.median(t) for n, t in by.items()} for load, by in times.items()}
    for one in asked:
        alike = [str(s) for s in asked if s.threads == one.threads]
        base = min(middle[0][name] for name in alike)
        limits = {b: base * fair(size, one.threads, b, cores) for b in LOADS if b}
        shares = {b: middle[b][str(one)] / limits[b] for b in limits}
        ours = one.name == OURS
        beside = ", ".join(f"{share:.2f}" for share in shares.values())
        note = f"beside 1, 2 and 4 busy processes {beside} of fair"
        found = make_row(
            section,
            f"{ranks}, {one}, quiet",
            best,
            quiet,
            str(one),
            best,
            target=QUIET if ours else None,
            note=note,
        )
        made.append(found)
        if one.name == BESIDE:
            made += [
                RatioRow(
                    section=section,
                    what=f"{ranks}, {one}, beside {b} busy",
                    against="fair share",
                    ours=middle[b][str(one)],
                    other=limits[b],
                    unit="ms",
                    target=FAIR,
                    ratio=ratio_quartiles(times[b][str(one)], [limits[b]] * len(times[b][str(one)]))
                    if len(times[b][str(one)]) > 1
                    else Ratio(*[shares[b]] * 3),
                )
                for b in limits
            ]
        assert found.ratio is not None
        if found.ratio.median <= QUIET and max(shares.values()) <= FAIR:
            kept.append(str(one))
    return [
        *made,
        RatioRow(
            section=section,
            what=f"{ranks}, settings that keep to both limits",
            against="settings measured",
            ours=len(kept),
            other=len(asked),
            unit="",
            ratio=None,
            note="; ".join(kept),
        ),
    ]


def rows(backend: str, quick: bool) -> tuple[list[RatioRow], dict[str, Any]]:
    usable = sorted(os.sched_getaffinity(0))[-CORES:]
    os.sched_setaffinity(0, usable)
    made, raw = [], {}
    for size, seconds in (QUICK_S if quick else BUDGET_S).items():
        asked = settings(backend, size, quick, usable)
        groups: dict[str, Group] = {}
        with tempfile.TemporaryDirectory(prefix="dualml-busy-") as place:
            try:
                for number, one in enumerate(asked):
                    folder = Path(place, str(number))
                    folder.mkdir()
                    group = groups[str(one)] = Group(backend, size, one, folder)
                    group.wait()
                    log_line(f"{size} ranks, {one}: ready")
                times = measure(groups, seconds)
                log_line(f"{size} ranks: {len(times[0][str(asked[0])])} cycles")
            finally:
                for group in groups.values():
                    group.end()
        section = f"beside busy processes, {backend}"
        made += judge(section, size, asked, times, len(usable))
        raw[str(size)] = times
    return made, raw


def log_line(text: str) -> None:
    """Print a line with the time of day to standard error."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("torch", "mindspore"), required=True)
    parser.add_argument("--quick", action="store_true", help="fewer settings and rounds")
    parser.add_argument("--json", action="store_true", help="rows as JSON, no table")
    parser.add_argument("--times", type=Path, metavar="FILE", help="the times of all rounds")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends, too
    made, raw = rows(asked.backend, asked.quick)
    if asked.times:
        asked.times.write_text(json.dumps(raw), "utf-8")
    described = [r.describe() for r in made]
    if asked.json:
        print(json.dumps(described))
        return
    from rich.console import Console
    from tables import machine, show

    show(described, machine(1), Console(width=None if sys.stdout.isatty() else 160))


if __name__ == "__main__":
    main()
