"""A small run folder with several ranks: `fake_run` plus the files of such arms.

Seconds follow the α–β model exactly, so that a test knows every number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fake_run
import numpy as np

from dualml.parallel.aggregation import strategy as strategy_of
from dualml.planning.cost import Point, fit_all
from dualml.planning.cost.closed_form import cost

ALPHA, BETA = 1e-4, 1e-9
SIZES = (1024, 2**20)
STRATEGIES = ("all_reduce", "ring", "tree", "neighbour", "reduce_broadcast")
#: Factor of each backend on the model's times, and how many times its bytes cross the wire.
SLOWER = {"numpy": 0.5, "torch": 1.0, "mindspore": 3.0}
WIRE = {"numpy": 0.0, "torch": 1.0, "mindspore": 2.0}
#: Milliseconds that a rank computes, waits and transfers.
HEALTHY = (6.0, 1.0, 3.0)
UPDATES = 100


def arm(
    n: int, strategy: str = "all_reduce", group: str = "strategies", lr: float = 0.05, **more: Any
) -> dict:
    """Return an arm; ``slow`` and ``kind`` are keys of the arm, all others of its aggregation."""
    made = fake_run.arm("sgd", lr, 12, 1, group) | {"world_size": n}
    made |= {key: more.pop(key) for key in ("slow", "kind", "sizes", "strategies") if key in more}
    if strategy != "all_reduce" or more:
        made["aggregation"] = {"strategy": strategy, **more}
    return made


def micro(n: int) -> dict:
    options = {"sizes": list(SIZES), "strategies": list(STRATEGIES)}
    return arm(n, group="micro", kind="collectives", **options)


ASYNC = "parameter_server_async"
ARMS = {
    "micro-n2": micro(2),
    "micro-n4": micro(4),
    "single": fake_run.arm("sgd", 0.05, 12, 1, "strategies"),
    "all-reduce-n2": arm(2),
    "ring-n2": arm(2, "ring"),
    "sum": arm(2, group="reduce", reduce="sum"),
    "sum-lr-over-n": arm(2, group="reduce", lr=0.025, reduce="sum"),
    "parameters": arm(2, group="averaging", of="parameters"),
    "local-4": arm(2, group="averaging", of="parameters", every=4),
    "async": arm(2, ASYNC, group="averaging"),
    "async-free": arm(2, ASYNC, group="averaging", arrival="free"),
    "fp16": arm(2, group="messages", compress="fp16"),
    "top": arm(2, group="messages", compress="topk", fraction=0.01),
    "one-by-one": arm(2, group="messages", bucket_bytes=0),
    "base-ring": arm(2, "ring", group="bottleneck"),
    "slow-ring": arm(2, "ring", group="bottleneck", slow={"rank": 1, "compute": 4.0}),
    "slow-late": arm(2, "ring", group="bottleneck", slow={"rank": 1, "compute": 4.0, "since": 51}),
}
RULES = {"sum": "sum", "sum-lr-over-n": "sum", "local-4": "local_updates", "fp16": "compressed"}
RULES |= {"async": "asynchronous", "async-free": "asynchronous", "top": "compressed"}
HOW = {
    "numpy": {"all_reduce": "composed: threads", "exchange": "native: queues"},
    "torch": {"all_reduce": "native: dist", "reduce": "native: dist", "broadcast": "native: dist"},
    "mindspore": {
        "all_reduce": "native: mint",
        "reduce": "composed: gather and fold",
        "broadcast": "native: mint",
    },
}


def make_run(
    folder: Path,
    *,
    arms: Sequence[str] | None = None,
    backends: Sequence[str] = ("torch", "mindspore"),
    different: bool = False,
    costs: bool = True,
    parity: bool = True,
    change: Callable[[dict], None] | None = None,
) -> Path:
    """Write the run folder and return it; with ``different``, ring-n2 on mindspore differs from one
    rank."""
    chosen = {name: ARMS[name] for name in arms or ARMS}

    def edit(run: dict) -> None:
        run["name"] = run["experiment"]["name"] = "lab2"
        for trial in run["trials"]:
            _trial(folder, trial, chosen[trial["arm"]])
        if change:
            change(run)

    fake_run.make_run(
        folder,
        arms=chosen,
        backends=backends,
        seeds=[0],
        failed=None,
        different=None,
        notice=None,
        parity=parity,
        change=edit,
    )
    run = json.loads((folder / "run.json").read_text("utf-8"))
    if parity:
        path = folder / "parity.json"
        told = json.loads(path.read_text("utf-8"))
        told["comparisons"] = [c for c in told["comparisons"] if "kind" not in chosen[c["arm"]]]
        for c in told["comparisons"]:
            if c["arm"] == "async-free":
                c.update(verdict="not comparable", reason="free_order", phases={}, curve={})
        told["serial"] = [s for t in run["trials"] for s in _serial(t, told, chosen, different)]
        path.write_text(json.dumps(told), "utf-8")
    if costs:
        fake_run._write(folder / "cost.json", _costs(chosen, backends))
    return folder


def seconds(backend: str, strategy: str, n: int, nbytes: int) -> float:
    p = Point.from_measurement(strategy, n, nbytes, 1.0)
    half = 0.5 if strategy == "all_reduce" else 1.0
    return SLOWER[backend] * half * (ALPHA * p.steps + BETA * p.bytes)


def rows(backend: str, n: int) -> list[dict[str, Any]]:
    made = []
    for nbytes in SIZES:
        for strategy in STRATEGIES:
            told, mid = cost(strategy, n, nbytes, 4), seconds(backend, strategy, n, nbytes)
            counted = strategy in ("ring", "tree", "neighbour")
            ranks = []
            for rank in range(n):
                sent, moved = strategy_of(strategy).schedule(n).sent_volume(rank, nbytes // 4)
                told_here = {"sent": sent, "bytes_sent": 4 * moved} if counted else {}
                zero = {"sent": 0, "received": 0, "bytes_sent": 0, "bytes_received": 0}
                native = {"calls": 0 if counted else 1, "payload": nbytes}
                ranks.append({**zero, **told_here, **native})
            made.append(
                {
                    "strategy": strategy,
                    "bytes": nbytes,
                    "seconds": mid,
                    "low": 0.99 * mid,
                    "high": 1.01 * mid,
                    "repeats": 9,
                    "counted": counted,
                    "traffic": ranks,
                    "wire_bytes": WIRE[backend] * told.total_bytes,
                }
            )
    return made


#: Arms whose update takes longer than `HEALTHY`.
LONGER = {"ring-n2": 1.5, "one-by-one": 3.0}


def _trial(folder: Path, trial: dict, settings: dict) -> None:
    """Add ranks to a trial of `fake_run`."""
    backend, n = trial["backend"], settings.get("world_size", 1)
    place = folder / "trials" / trial["arm"] / backend / "seed0"
    if n == 1:
        trial["train_s"] = UPDATES * 0.008 * SLOWER[backend]
        return
    trial |= {"world_size": n, "how": HOW[backend]}
    if settings.get("kind") == "collectives":
        (place / "rank0.jsonl").unlink()
        trial |= dict.fromkeys(("train_s", "final_loss", "train_accuracy", "test_accuracy"))
        trial |= {"updates": None, "sample_gradients": None, "measurements": len(rows(backend, n))}
        copies = {str(size): size * 1e-10 for size in SIZES}
        told = {"format": 1, "backend": backend, "device": "cpu", "world_size": n}
        told |= {"rows": rows(backend, n), "copy_s": copies}
        fake_run._write(place / "collectives.json", told)
        return
    slow = settings.get("slow") or {}
    parts = [HEALTHY] * n
    if slow:  # rank 1 computes 18 ms longer, for which the other waits
        parts = [(6.0, 19.0, 3.0), (24.0, 1.0, 3.0)]
    late = slow.get("since", 1) > 1
    trial["ranks"] = [
        _split(
            [(a + b) / 2 if late else a for a, b in zip(p, HEALTHY, strict=True)], SLOWER[backend]
        )
        for p in parts
    ]
    trial["communication_share"] = 0.4
    trial["train_s"] = UPDATES * trial["ranks"][0]["step_s"] * LONGER.get(trial["arm"], 1.0)
    if settings.get("aggregation", {}).get("strategy") == ASYNC:
        trial["staleness"] = {"mean": 1.0, "max": 3, "ranks": [0.5, 1.5]}
    if slow:
        for rank, part in enumerate(parts):
            _times(place / f"rank{rank}.times.npz", part, slow.get("since", 1), SLOWER[backend])


def _split(milliseconds: Sequence[float], times: float) -> dict[str, float]:
    compute, wait, transfer = (times * v / 1e3 for v in milliseconds)
    whole = {"compute_s": compute, "wait_s": wait, "transfer_s": transfer}
    return whole | {"step_s": compute + wait + transfer}


def _times(path: Path, slow: Sequence[float], since: int, times: float) -> None:
    length = [sum(HEALTHY if k + 1 < since else slow) * times / 1e3 for k in range(UPDATES)]
    done = np.cumsum(length)
    begin = done - length
    np.savez(path, begin=begin, arrive=begin, end=done, done=done)


def _serial(trial: dict, parity: dict, arms: dict, different: bool) -> list[dict[str, Any]]:
    arm, backend = trial["arm"], trial["backend"]
    if arms[arm].get("world_size", 1) == 1 or arms[arm].get("kind") or "single" not in arms:
        return []
    here = {"arm": arm, "seed": 0, "backend": backend, "against": "single"}
    if arm in RULES:
        return [{**here, "verdict": None, "reason": RULES[arm]}]
    pattern = fake_run._comparison(
        trial, trial, arms[arm], different and arm == "ring-n2" and backend == "mindspore"
    )
    return [{k: v for k, v in pattern.items() if k not in ("a", "b")} | here]


def _costs(arms: dict, backends: Sequence[str]) -> dict[str, Any]:
    fits, checks, slowdowns = [], [], []
    for backend in backends:
        sizes = [s["world_size"] for s in arms.values() if s.get("kind")]
        for n in sizes:
            points = [
                Point.from_measurement(name, n, size, seconds(backend, name, n, size))
                for name in STRATEGIES
                for size in (*SIZES, 4 * SIZES[0], 4 * SIZES[1])
            ]
            found = fit_all(points)
            named = {None: found.point_to_point, **found.strategies}
            fits += [
                {"backend": backend, "world_size": n, "strategy": s, "fit": f.describe()}
                for s, f in named.items()
                if f is not None
            ]
            if n != min(sizes):
                where = {"backend": backend, "world_size": n, "from_world_size": min(sizes)}
                checks += [
                    {
                        **where,
                        "strategy": r["strategy"],
                        "bytes": r["bytes"],
                        "measured_s": r["seconds"],
                        "predicted_s": 1.5 * r["seconds"],
                    }
                    for r in rows(backend, n)
                ]
        slowdowns += [
            {
                "backend": backend,
                "seed": 0,
                "arm": name,
                "base": "base-ring",
                "measured": 2.8,
                "predicted": 3.5,
            }
            for name, s in arms.items()
            if s.get("slow") and "base-ring" in arms
        ]
    told = {"fits": fits, "checks": checks, "slowdowns": slowdowns}
    return {"format": 1, "topology": "flat", **told}
