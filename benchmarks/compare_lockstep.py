"""Time and memory of ``compare(lockstep=True)`` on a Llama-shaped pair.

    python benchmarks/compare_lockstep.py [--sizes 5m 159m ...] [--loss none] [--adam] [--out FILE]
    python benchmarks/compare_lockstep.py --table FILE    # tables of an earlier --out, for docs

Weights are drawn by name, the batch is one sequence of 64 tokens. Memory is the largest sum over
all processes, sampled every 0.1 s (proportional set size: shared pages count once).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compare_size import MB, NETS, make_batch, measure

SIZES = ("5m", "159m", "1100m", "7b")
LOSSES = ("none", "cross_entropy")
TIMEOUT = 4 * 3600.0
NETWORKS = {"torch": "net_torch.py", "mindspore": "net_mindspore.py"}


#: The rule of the updates that are compared on request.
ADAM = {"name": "adam", "lr": 1e-3}


def run_compare(
    size: str, loss: str, pair: Sequence[str], dtype: str, adam: bool
) -> dict[str, Any]:
    """Compare the pair in this process; return verdict, seconds and what the result says."""
    sys.path.insert(0, str(NETS))
    from sizes import SIZES as SHAPES

    from dualml.parity import Side, compare

    x, y = make_batch(SHAPES[size].vocab)
    start = time.monotonic()
    found = compare(
        *(f"{NETS}/{NETWORKS[side]}:build_{size}" for side in pair),
        x,
        targets=None if loss == "none" else y,
        loss=loss,
        optimizer=ADAM if adam else None,
        lockstep=True,
        timeout=TIMEOUT,
        sides=(Side(dtype=dtype), Side(dtype=dtype)),
    )
    seconds = time.monotonic() - start
    last = found.blocks[-1]
    return {
        "seconds": seconds,
        "verdict": found.verdict,
        "worst": found.worst,
        "blocks": len(found.blocks),
        "drift": last["drift"],
        "rounding": last["rounding"],
    }


HEADS = {
    "en": (
        "parameters",
        "blocks",
        "compared",
        "time",
        "processor time",
        "peak",
        "verdict",
        "farthest",
        "drift / rounding",
    ),
    "zh": (
        "参数量",
        "块数",
        "比较内容",
        "时间",
        "处理器时间",
        "峰值内存",
        "判定",
        "最远",
        "漂移 / 舍入",
    ),
}
COMPARED = {
    "en": {"none": "forward", "cross_entropy": "forward, gradients", "adam": ", Adam"},
    "zh": {"none": "前向", "cross_entropy": "前向与梯度", "adam": "，Adam 更新一次"},
}


def format_table(rows: Sequence[dict[str, Any]], lang: str) -> str:
    """Return the measured rows as a Markdown table."""
    lines = [HEADS[lang], ("---",) * len(HEADS[lang])]
    for row in rows:
        name = row["size"].upper().replace("1100M", "1.1B")
        lines.append(
            (
                name + ("" if row["dtype"] == "float32" else f", {row['dtype']}"),
                str(row["blocks"]),
                COMPARED[lang][row["loss"]] + (COMPARED[lang]["adam"] if row.get("adam") else ""),
                f"{row['seconds']:.0f} s",
                f"{row['busy']:.0f} s",
                f"{row['peak'] * MB / 2**30:.1f} GiB",
                row["verdict"],
                f"{row['worst']:.2f} ×",
                f"{row['drift']:.1e} / {row['rounding']:.1e}",
            )
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES[:3])
    parser.add_argument("--loss", choices=LOSSES, default="cross_entropy")
    parser.add_argument("--adam", action="store_true", help="one update of each block, too")
    parser.add_argument("--pair", nargs=2, choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--out", type=Path, help="append each row as one line of JSON")
    parser.add_argument("--table", type=Path, help="print the tables of such a file")
    parser.add_argument("--compare", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.table:
        rows = [json.loads(line) for line in asked.table.read_text().splitlines()]
        print("\n".join(format_table(rows, lang) for lang in HEADS))
        return
    if asked.compare:
        print(
            json.dumps(run_compare(asked.sizes[0], asked.loss, asked.pair, asked.dtype, asked.adam))
        )
        return
    for size in asked.sizes:
        words = ["--loss", asked.loss, "--pair", *asked.pair, "--dtype", asked.dtype]
        words += ["--adam"] if asked.adam else []
        row = measure([__file__, "--compare", "--sizes", size, *words])
        row |= {"size": size, "loss": asked.loss, "dtype": asked.dtype, "adam": asked.adam}
        print(format_table([row], "en"), flush=True)
        if asked.out:
            with asked.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
