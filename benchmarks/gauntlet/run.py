"""Compare models of PyTorch's zoos with other people's MindSpore ports of them.

python benchmarks/gauntlet/run.py [--only NAME …] [--patched] [--jobs N] [--out FILE] [--markdown]
python benchmarks/gauntlet/run.py --real …     # pairs at real size, see real.py

``pairs.toml`` names the pairs. Each is compared in a separate process, with the zoos' own code.
``--patched`` compares pairs with patches once more, with the patches applied to a copy of the port;
``--markdown`` writes the table into docs/gauntlet.md and its Chinese page.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from table import write

from dualml.common.errors import UserError
from dualml.parity import compare

HERE = Path(__file__).parent
PAIRS = HERE / "pairs.toml"
BATCH = 2
WORDS = 200  # of the models of text
LIMIT_S = 300
#: Seconds between two samples of the memory.
LOOK_S = 0.2
SIDE = """import sys
sys.path[:0] = {paths!r}
from {zoo} import *
{imports}

def build():
    return {expression}
"""


def pairs() -> dict[str, dict[str, Any]]:
    return tomllib.loads(PAIRS.read_text())


def inputs(pair: dict[str, Any]) -> np.ndarray:
    rng = np.random.default_rng(7)
    if "text" in pair:
        return rng.integers(3, WORDS, (BATCH, pair["text"]))
    return rng.standard_normal((BATCH, 3, pair["size"], pair["size"])).astype(np.float32)


def compared(name: str, patched: bool) -> dict[str, Any]:
    """Compare one pair and return its row."""
    pair = pairs()[name]
    row: dict[str, Any] = {"name": name, "patched": patched}
    with tempfile.TemporaryDirectory(prefix="dualml-gauntlet-") as folder, measured(row):
        paths = [*patches(pair.get("patch", ()), Path(folder))] if patched else []
        sides = []
        for side in ("torch", "mindspore"):
            file = Path(folder) / f"{name}_{side}.py"
            file.write_text(
                SIDE.format(
                    paths=[*paths, str(HERE)],
                    imports="import transformers" if "transformers" in pair[side] else "",
                    zoo=f"zoo_{side}",
                    expression=pair[side],
                )
            )
            sides.append(f"{file}:build")
        try:
            found = compare(*sides, inputs(pair), train=pair.get("train", True), timeout=LIMIT_S)
        except UserError as error:
            row |= {"verdict": "refused", "text": {"en": str(error), "zh": str(error)}}
        else:
            row |= found.describe()
    return row


def patches(rows: Sequence[dict[str, str]], folder: Path) -> Iterator[str]:
    """Copy each package that has patches and apply them; return the folder to import from."""
    for row in rows:
        package = row["file"].partition("/")[0]
        copy = folder / "patched" / package
        if not copy.exists():
            spec = importlib.util.find_spec(package)
            if spec is None or spec.origin is None:
                raise SystemExit(f"{package} is not installed")
            shutil.copytree(Path(spec.origin).parent, copy)
            yield str(copy.parent)
        file = copy.parent / row["file"]
        source = file.read_text("utf-8")
        if row["old"] not in source:
            raise SystemExit(f"{row['file']} has no {row['old']!r}")
        file.write_text(source.replace(row["old"], row["new"]), "utf-8")


@contextlib.contextmanager
def measured(row: dict[str, Any]) -> Iterator[None]:
    """Measure seconds and peak memory, over all processes together, into a row."""
    done, most = threading.Event(), [0]
    own = psutil.Process()

    def sample_memory() -> None:
        while not done.wait(LOOK_S):
            with contextlib.suppress(psutil.Error):
                of_all = [own, *own.children(recursive=True)]
                most[0] = max(most[0], sum(one.memory_info().rss for one in of_all))

    watcher, start = threading.Thread(target=sample_memory, daemon=True), time.perf_counter()
    watcher.start()
    try:
        yield
    finally:
        row["seconds"] = time.perf_counter() - start
        done.set()
        watcher.join()
        row["megabytes"] = most[0] / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--patched", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="pairs at a time")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(compared(given.one, given.patched)))
        return
    asked = [
        (name, patched)
        for name, pair in pairs().items()
        if not given.only or name in given.only
        for patched in ([False, True] if given.patched and "patch" in pair else [False])
    ]
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for row in pool.map(in_process, *zip(*asked, strict=True)):
            rows.append(row)
            shown = row["name"] + (" (patched)" if row["patched"] else "")
            print(
                f"{shown:32} {row['verdict']:14} {row.get('seconds', 0):6.1f} s  "
                f"{row['text']['en'][:2000]}\n",
                flush=True,
            )
            if given.out:
                given.out.write_text(json.dumps(rows, indent=1))
    if given.markdown:
        write(rows)


def in_process(name: str, patched: bool) -> dict[str, Any]:
    """Compare a pair in a separate process, to measure its memory alone; return its row."""
    command = [sys.executable, __file__, "--one", name, *(["--patched"] if patched else [])]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=3 * LIMIT_S)
    if ended.returncode:
        reason = ended.stderr.strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
        text = dict.fromkeys(("en", "zh"), reason[0])
        return {"name": name, "patched": patched, "verdict": "failed", "text": text}
    row: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return row


if __name__ == "__main__":
    if sys.argv[1:2] == ["--real"]:
        import real

        real.main(sys.argv[2:])
    else:
        main()
