"""Measurements in a network of namespaces (`netbed`): bytes, predictions, a slow link, two levels.

    python benchmarks/network.py --json FILE [--quick] [--only PART]    measures; needs root
    python benchmarks/network.py --json FILE --write                    its tables into the pages

Each measurement is a `dualml run` of Lab 2's micro-benchmark with one rank per namespace and no
shared folder. With ``--only``, the earlier results of the other parts stay in FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import netbed

Record = dict[str, Any]
STRATEGIES = (
    "all_reduce",
    "all_gather",
    "reduce_broadcast",
    "parameter_server",
    "reduce_scatter_all_gather",
    "ring",
    "tree",
    "halving_doubling",
    "hierarchical",
    "neighbour",
)
MB = 2**20
SIZES, LARGE = (MB, 2 * MB, 4 * MB), (MB, 4 * MB)
#: Seconds of repetitions of one measurement, three at least; the first ones take longer, by half
#: where four ranks gather 4 MB.
SECONDS, BRIEF_S = 4.0, 0.1
#: Mbit/s → sizes, which take the link tens of milliseconds at least, and whose halves exceed a
#: sender's buffer.
RATES = {100: SIZES, 500: (2 * MB, 3 * MB, 4 * MB)}
#: Shorter and longer sizes, which are not used in any fit.
OTHER_SIZES = {100: (8 * MB,), 500: (MB, 8 * MB)}
USUAL_MBIT = 100
FITTED, HELD_OUT = 2, (3, 4)  # nodes
#: The slow one of four nodes, and the rate of its link.
SLOW_NODE, SLOW_MBIT, SLOW_SIZES = 1, 20, (2 * MB,)
#: Numbers of nodes, and ranks on each.
LEVELS = ((2, 2), (3, 2))
ACROSS = ("all_reduce", "ring", "halving_doubling", "hierarchical")
#: Lab, its arms, and settings that keep them short.
LABS = (
    ("lab3", ("one-node", "nodes-n2"), ()),
    ("lab4", ("course", "deep-gpipe"), ()),
)
PARTS = ("predictions", "sizes", "mindspore", "slow", "levels", "labs")


def lab2(
    nodes: Sequence[netbed.Node],
    backend: str,
    sizes: Sequence[int],
    *,
    strategies: Sequence[str] = STRATEGIES,
    ranks: int = 1,
    seconds: float = SECONDS,
) -> Record:
    """Run Lab 2's micro-benchmark and return its records, with its settings and the load
    beside it.

    Args:
        ranks: number of ranks on each node.
        seconds: time for the repetitions of one measurement.
    """
    n = len(nodes) * ranks
    with tempfile.TemporaryDirectory(prefix="dualml-network-") as made:
        folder, load = Path(made), [os.getloadavg()[0]]
        settings = {
            "world_size": [n],
            "sizes": list(sizes),
            "strategies": list(strategies),
            "seconds": seconds,
        }
        words = [
            w for k, v in settings.items() for w in ("--set", f"arms.micro.{k}={json.dumps(v)}")
        ]
        netbed.dualml_run(
            nodes,
            [
                "lab2",
                "--backend",
                backend,
                "--arm",
                f"micro-n{n}",
                *words,
                "--threads",
                1,
                "--out",
                folder / "out",
                "--no-report",
                "--no-find",
            ],
            folder,
            ranks=ranks,
        )
        (path,) = (folder / "out").glob("trials/*/*/*/collectives.json")
        record: Record = json.loads(path.read_text("utf-8"))
    mbit = [node.mbit for node in nodes]
    return {
        **record,
        "nodes": len(nodes),
        "ranks_per_node": ranks,
        "mbit": mbit,
        "load": [*load, os.getloadavg()[0]],
    }


def predictions(quick: bool) -> Iterator[Record]:
    """Measure two to four nodes of the same rate."""
    for rate in (USUAL_MBIT,) if quick else RATES:
        for n in (FITTED, *HELD_OUT):
            with netbed.bed(*[rate] * n) as nodes:
                seconds = BRIEF_S if quick else SECONDS
                yield lab2(nodes, "torch", RATES[rate], seconds=seconds)


def sizes(quick: bool) -> Iterator[Record]:
    """Measure three and four nodes with other sizes."""
    for rate in (USUAL_MBIT,) if quick else OTHER_SIZES:
        for n in HELD_OUT:
            with netbed.bed(*[rate] * n) as nodes:
                seconds = BRIEF_S if quick else SECONDS
                yield lab2(nodes, "torch", OTHER_SIZES[rate], seconds=seconds)


def mindspore(quick: bool) -> Iterator[Record]:
    """Measure MindSpore on two nodes of the same network."""
    with netbed.bed(*[USUAL_MBIT] * FITTED) as nodes:
        yield lab2(nodes, "mindspore", LARGE[:1] if quick else LARGE, seconds=1.0)


def slow(quick: bool) -> Iterator[Record]:
    """Measure four nodes of which one is behind a slow link."""
    mbit = [SLOW_MBIT if i == SLOW_NODE else USUAL_MBIT for i in range(max(HELD_OUT))]
    with netbed.bed(*mbit) as nodes:
        yield lab2(nodes, "torch", SLOW_SIZES, seconds=BRIEF_S if quick else SECONDS)


def levels(quick: bool) -> Iterator[Record]:
    """Measure several ranks on each node, and two on one node for the link inside."""
    with netbed.bed(None) as nodes:
        yield lab2(nodes, "torch", SIZES, strategies=("ring",), ranks=2)
    for count, ranks in LEVELS[: 1 if quick else None]:
        with netbed.bed(*[USUAL_MBIT] * count) as nodes:
            yield lab2(nodes, "torch", LARGE, strategies=ACROSS, ranks=ranks)


def labs(quick: bool) -> Iterator[Record]:
    """Run Lab 3's data-parallel training and Lab 4's split model over two nodes, on both
    frameworks."""
    for name, arms, settings in LABS:
        with netbed.bed(*[USUAL_MBIT] * 2) as nodes, tempfile.TemporaryDirectory() as made:
            out, before = Path(made) / "out", [node.counters() for node in nodes]
            chosen = [w for arm in arms for w in ("--arm", arm)]
            netbed.dualml_run(
                nodes,
                [
                    name,
                    "--quick",
                    "--backend",
                    "both",
                    *chosen,
                    *settings,
                    "--out",
                    out,
                    "--no-report",
                    "--no-find",
                ],
                Path(made),
            )
            crossed = sum(
                (node.counters() - old).sent for node, old in zip(nodes, before, strict=True)
            )
            parity = json.loads((out / "parity.json").read_text("utf-8"))
            trials = json.loads((out / "run.json").read_text("utf-8"))["trials"]
            facts = [
                {k: t.get(k, 1) for k in ("arm", "backend", "status", "world_size")} for t in trials
            ]
            pairs = [{k: c[k] for k in ("arm", "verdict")} for c in parity["comparisons"]]
            yield {"lab": name, "trials": facts, "pairs": pairs, "bytes_crossed": crossed}


def main() -> None:
    from network_tables import write
    from tables import machine

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True, help="of the figures")
    parser.add_argument("--only", action="append", choices=PARTS, help="repeatable")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, rates and topologies")
    parser.add_argument("--write", action="store_true", help="no measuring: tables of the pages")
    asked = parser.parse_args()
    known: Mapping[str, Any] = (
        json.loads(asked.json.read_text("utf-8")) if asked.json.exists() else {}
    )
    if asked.write:
        write(known)
        return
    parts = {
        "predictions": predictions,
        "sizes": sizes,
        "mindspore": mindspore,
        "slow": slow,
        "levels": levels,
        "labs": labs,
    }
    content = {**known, "machine": machine(1)}
    try:
        for part in asked.only or PARTS:
            content[part] = []
            for number, case in enumerate(parts[part](asked.quick), start=1):
                content[part].append(case)
                asked.json.write_text(json.dumps(content) + "\n", "utf-8")
                print(part, number, flush=True)
    except netbed.NoBed as error:
        sys.exit(f"no network can be made here: {error}")


if __name__ == "__main__":
    main()
