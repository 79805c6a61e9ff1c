"""Time and memory of `compare` on a Llama-shaped pair, beside the plain step of each side.

    python benchmarks/compare_size.py [--sizes 5m 159m ...] [--optimizer adam] [--out FILE]
    python benchmarks/compare_size.py --table FILE    # tables of an earlier --out, for docs

A plain step is what a script does: forward, cross entropy of 64 tokens, gradients and, with an
optimizer, one update. Memory is the largest sum over all processes, sampled every 0.1 s, or less
often where a sample takes longer (proportional set size: shared pages count once).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

HERE = Path(__file__).resolve().parent
NETS = HERE / "llama"
SIDES = ("torch", "mindspore")
SIZES = ("5m", "20m", "60m", "159m", "1100m")
#: Runs of a step that a comparison makes on each side: the first, its repetition, three draws.
RUNS = 5
#: Steps whose median is the time of a plain one; the first also allocates and is left out.
PLAIN_STEPS = 3
#: Seconds between two samples of the memory, and their least multiple of what a sample takes.
SAMPLE_S, SAMPLE_REST = 0.1, 10
MB = 1e6


def make_batch(vocab: int) -> tuple[Any, Any]:
    """Return tokens and targets of one sequence, int64 (1, 64)."""
    rng = np.random.default_rng(0)
    return rng.integers(0, vocab, (1, 64)), rng.integers(0, vocab, (1, 64))


def used_bytes(process: psutil.Process, busy: dict[int, float]) -> int:
    """Return the proportional set size of a process and all of its children, and note the seconds
    of processor time of each in ``busy``."""
    total = 0
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            text = Path(f"/proc/{one.pid}/smaps_rollup").read_text()
            line = next(line for line in text.splitlines() if line.startswith("Pss:"))
            total += int(line.split()[1]) * 1024
            busy[one.pid] = sum(one.cpu_times()[:2])
    return total


def measure(argv: Sequence[str]) -> dict[str, Any]:
    """Run a program that prints JSON; return that with its seconds, those of all processors, and
    its peak memory in MB."""
    start, peak, busy = time.monotonic(), 0, dict[int, float]()
    with subprocess.Popen([sys.executable, *argv], stdout=subprocess.PIPE, text=True) as program:
        own, text = psutil.Process(program.pid), []
        assert program.stdout is not None
        reader = threading.Thread(target=lambda: text.append(program.stdout.read()))
        reader.start()
        while program.poll() is None:
            begin = time.monotonic()
            with contextlib.suppress(psutil.Error):
                peak = max(peak, used_bytes(own, busy))
            # Counting the pages of a large process takes a while: it may not disturb the others.
            time.sleep(max(SAMPLE_S, SAMPLE_REST * (time.monotonic() - begin)))
        reader.join()
    if program.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(argv)}: exit code {program.returncode}")
    found = json.loads(text[0].strip().splitlines()[-1])
    measured = {"wall": time.monotonic() - start, "busy": sum(busy.values()), "peak": peak / MB}
    return {**found, **measured}


def run_plain(side: str, size: str, optimizer: str | None) -> dict[str, Any]:
    """Make a few plain steps in this process; return the seconds of one and those of loading."""
    start = time.monotonic()
    sys.path.insert(0, str(NETS))
    from sizes import SIZES as SHAPES

    x, y = make_batch(SHAPES[size].vocab)
    step = make_torch_step if side == "torch" else make_mindspore_step
    update = step(size, x, y, optimizer)
    loaded = time.monotonic()
    seconds = []
    for _ in range(1 + PLAIN_STEPS):
        begin, used = time.monotonic(), time.process_time()
        update()
        seconds.append((time.monotonic() - begin, time.process_time() - used))
    wall, busy = np.median(seconds[1:], axis=0)
    return {"seconds": float(wall), "busy_step": float(busy), "loading": loaded - start}


def make_torch_step(size: str, x: Any, y: Any, optimizer: str | None) -> Any:
    """Return a function that makes one step in PyTorch."""
    import net_torch
    import torch

    model = getattr(net_torch, f"build_{size}")()
    rule = torch.optim.Adam(model.parameters(), lr=1e-3) if optimizer else None
    tokens, targets = torch.from_numpy(x), torch.from_numpy(y)

    def update() -> None:
        model.zero_grad()
        logits = model(tokens)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        if rule is not None:
            rule.step()

    return update


def make_mindspore_step(size: str, x: Any, y: Any, optimizer: str | None) -> Any:
    """Return a function that makes one step in MindSpore's PyNative mode."""
    import mindspore as ms
    import net_mindspore

    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.runtime.launch_blocking()
    model = getattr(net_mindspore, f"build_{size}")()
    model.set_train(True)
    rule = ms.nn.Adam(model.trainable_params(), 1e-3) if optimizer else None
    tokens, targets = ms.Tensor(x.astype(np.int32)), ms.Tensor(y.astype(np.int32))

    def loss() -> Any:
        logits = model(tokens)
        return ms.ops.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))

    weights = ms.ParameterTuple(model.trainable_params())
    gradient = ms.value_and_grad(loss, None, weights)

    def update() -> None:
        _, gradients = gradient()
        if rule is not None:
            rule(gradients)
        gradients[0].asnumpy()  # the runtime is asynchronous

    return update


def run_compare(size: str, optimizer: str | None) -> dict[str, Any]:
    """Compare the pair in this process; return the verdict and the worst ratio."""
    sys.path.insert(0, str(NETS))
    from sizes import SIZES as SHAPES

    from dualml.parity import compare

    x, y = make_batch(SHAPES[size].vocab)
    start = time.monotonic()
    found = compare(
        f"{NETS}/net_torch.py:build_{size}",
        f"{NETS}/net_mindspore.py:build_{size}",
        x,
        targets=y,
        loss="cross_entropy",
        optimizer={"name": optimizer, "lr": 1e-3} if optimizer else None,
        timeout=3600.0,
    )
    seconds = time.monotonic() - start
    return {"seconds": seconds, "verdict": found.verdict, "worst": found.worst}


def measure_size(size: str, optimizer: str | None) -> dict[str, Any]:
    """Measure both plain steps and the comparison of one size, with their ratios."""
    extra = ["--optimizer", optimizer] if optimizer else []
    plain = {side: measure([__file__, "--plain", side, "--sizes", size, *extra]) for side in SIDES}
    ours = measure([__file__, "--compare", "--sizes", size, *extra])
    loading = sum(one["loading"] for one in plain.values())
    steps = sum(one["seconds"] for one in plain.values())
    peak = max(one["peak"] for one in plain.values())
    return {
        "size": size,
        "optimizer": optimizer,
        "plain": plain,
        "compare": ours,
        "time_ratio": (ours["seconds"] - loading) / (RUNS * steps),
        "memory_ratio": ours["peak"] / peak,
        "memory_limit": 1.5 * peak + 400,
        "time_limit": 2 * RUNS * steps + loading,
    }


HEADS = {
    "en": (
        "parameters",
        "step, torch",
        "step, MindSpore",
        "`compare`",
        "limit",
        "time / (5 steps of both)",
        "peak",
        "limit",
        "peak / larger step",
    ),
    "zh": (
        "参数量",
        "一步，torch",
        "一步，MindSpore",
        "`compare`",
        "上限",
        "时间 /（两侧各 5 步）",
        "峰值",
        "上限",
        "峰值 / 较大一侧的一步",
    ),
}


def format_table(rows: Sequence[dict[str, Any]], lang: str) -> str:
    """Return the measured rows as a Markdown table."""
    lines = [HEADS[lang], ("---",) * len(HEADS[lang])]
    for row in rows:
        torch, mindspore = (row["plain"][side] for side in SIDES)
        name = row["size"].upper().replace("1100M", "1.1B")
        update = f", {row['optimizer'].capitalize()}" if row["optimizer"] else ""
        lines.append(
            (
                f"{name}{update}",
                *(f"{one['seconds']:.2f} s, {one['peak']:.0f} MB" for one in (torch, mindspore)),
                f"{row['compare']['seconds']:.0f} s",
                f"{row['time_limit']:.0f} s",
                f"{row['time_ratio']:.2f}",
                f"{row['compare']['peak']:.0f} MB",
                f"{row['memory_limit']:.0f} MB",
                f"{row['memory_ratio']:.2f}",
            )
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--optimizer", choices=["adam"])
    parser.add_argument("--out", type=Path, help="append each row as one line of JSON")
    parser.add_argument("--table", type=Path, help="print the tables of such a file")
    parser.add_argument("--plain", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--compare", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.table:
        rows = [json.loads(line) for line in asked.table.read_text().splitlines()]
        print("\n".join(format_table(rows, lang) for lang in HEADS))
    elif asked.plain:
        print(json.dumps(run_plain(asked.plain, asked.sizes[0], asked.optimizer)))
    elif asked.compare:
        print(json.dumps(run_compare(asked.sizes[0], asked.optimizer)))
    else:
        for size in asked.sizes:
            row = measure_size(size, asked.optimizer)
            print(format_table([row], "en"), flush=True)
            if asked.out:
                with asked.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
