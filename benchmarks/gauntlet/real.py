"""Compare pairs of models at the size at which people use them, beside the plain step of each side.

python benchmarks/gauntlet/real.py [--only NAME …] [--out FILE] [--markdown]

``real.toml`` names the pairs; most are two implementations in PyTorch. A plain step is what a
script does: forward, the mean of all outputs, gradients. ``--out`` keeps the rows and measures none
of them again; ``--markdown`` writes their table into docs/gauntlet.md and its Chinese page.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

import compare_size  # noqa: E402
from compare_size import PLAIN_STEPS, RUNS, measure  # noqa: E402
from real_table import write  # noqa: E402
from run import SIDE  # noqa: E402

PAIRS = HERE / "real.toml"
BATCH = 2
LIMIT_S = 1800.0
compare_size.SAMPLE_S = 0.5  # the sums over all pages of larger models take their time
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait do not count as work


def read_pairs() -> dict[str, dict[str, Any]]:
    """Return name → settings of all pairs."""
    return tomllib.loads(PAIRS.read_text())


def make_inputs(pair: dict[str, Any]) -> np.ndarray:
    """Return a batch of random tokens, int64, or of normal numbers, float32."""
    rng = np.random.default_rng(7)
    if "text" in pair:
        return rng.integers(4, pair["vocab"], (BATCH, pair["text"]))
    shape = pair.get("features") or (3, pair["size"], pair["size"])
    return rng.standard_normal((BATCH, *shape)).astype(np.float32)


def name_models(name: str, pair: dict[str, Any], folder: Path, mended: bool) -> list[str]:
    """Return both models as ``FILE:FUNCTION``; files of expressions are written into a folder."""
    if "a" in pair:
        return [
            f"{HERE / 'pairs' / name}.py:build_{side}"
            for side in (pair["a"], "mended" if mended else pair["b"])
        ]
    models = []
    for side in ("torch", "mindspore"):
        file = folder / f"{name}_{side}.py"
        imports = "import transformers" if "transformers" in pair[side] else ""
        settings = {"paths": [str(HERE)], "zoo": f"zoo_{side}", "imports": imports}
        file.write_text(SIDE.format(**settings, expression=pair[side]))
        models.append(f"{file}:build")
    return models


def run_plain(name: str, side: int) -> dict[str, Any]:
    """Make a few plain steps in this process; return the seconds of one, those of loading, and the
    number of parameters."""
    start, pair = time.monotonic(), read_pairs()[name]
    with tempfile.TemporaryDirectory(prefix="dualml-real-") as folder:
        file, function = name_models(name, pair, Path(folder), mended=False)[side].rsplit(":", 1)
        sys.path.insert(0, str(Path(file).parent))
        spec = importlib.util.spec_from_file_location("plain_model", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model = getattr(module, function)()
    make = make_mindspore_step if side and "mindspore" in pair else make_torch_step
    update, parameters = make(model, make_inputs(pair), pair.get("train", True))
    loaded, seconds = time.monotonic(), []
    for _ in range(1 + PLAIN_STEPS):
        begin, used = time.monotonic(), time.process_time()
        update()
        seconds.append((time.monotonic() - begin, time.process_time() - used))
    wall, busy = np.median(seconds[1:], axis=0)
    return {
        "seconds": float(wall),
        "busy_step": float(busy),
        "loading": loaded - start,
        "parameters": parameters,
    }


def make_torch_step(model: Any, batch: np.ndarray, train: bool) -> tuple[Callable[[], None], int]:
    """Return a function that makes one step in PyTorch, and the model's number of parameters."""
    import torch
    from torch.utils._pytree import tree_leaves

    model.train(train)
    tensor = torch.from_numpy(batch)

    def update() -> None:
        model.zero_grad()
        outputs = model(tensor)
        values = tree_leaves(dict(outputs) if hasattr(outputs, "keys") else outputs)
        sum(one.mean() for one in values if torch.is_tensor(one)).backward()

    return update, sum(p.numel() for p in model.parameters())


def make_mindspore_step(
    model: Any, batch: np.ndarray, train: bool
) -> tuple[Callable[[], None], int]:
    """Return a function that makes one step in MindSpore's PyNative mode, and the model's number of
    parameters."""
    import mindspore as ms

    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.runtime.launch_blocking()
    model.set_train(train)
    tensor = ms.Tensor(batch)

    def loss() -> Any:
        outputs = model(tensor)
        values = outputs if isinstance(outputs, tuple | list) else [outputs]
        return sum(one.mean() for one in values if isinstance(one, ms.Tensor))

    gradient = ms.value_and_grad(loss, None, ms.ParameterTuple(model.trainable_params()))

    def update() -> None:
        gradient()[1][0].asnumpy()  # the runtime is asynchronous

    return update, sum(p.size for p in model.get_parameters())


def run_compare(name: str, mended: bool) -> dict[str, Any]:
    """Compare a pair in this process and return what the table needs."""
    from dualml.common.errors import UserError
    from dualml.parity import compare

    pair, start = read_pairs()[name], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dualml-real-") as folder:
        models = name_models(name, pair, Path(folder), mended)
        settings: dict[str, Any] = {"train": pair.get("train", True), "timeout": LIMIT_S}
        try:
            row = compare(*models, make_inputs(pair), **settings).describe()
        except UserError as error:
            row = {"verdict": "refused", "text": dict.fromkeys(("en", "zh"), str(error))}
    return row | {"seconds": time.monotonic() - start}


def processor_ratio(plain: Sequence[dict[str, Any]], found: dict[str, Any]) -> float:
    """Return the processor time of a comparison without loading, as a multiple of the steps that it
    makes on both sides; other work on the machine hardly changes it."""
    loading = sum(one["busy"] - (1 + PLAIN_STEPS) * one["busy_step"] for one in plain)
    steps = sum(one["busy_step"] for one in plain)
    return float(found["busy"] - loading) / (RUNS * steps)


def measure_pair(name: str) -> dict[str, Any]:
    """Measure both plain steps and the comparison of one pair, and return its row."""
    pair, program = read_pairs()[name], str(Path(__file__).resolve())
    plain = [measure([program, "--only", name, "--plain", str(side)]) for side in range(2)]
    found = measure([program, "--only", name, "--compare"])
    row = {
        "name": name,
        "versions": {one: importlib.metadata.version(one) for one in pair["packages"]},
        "sides": [pair.get("a", "torch"), pair.get("b", "mindspore")],
        "plain": plain,
        "compare": found,
        "time_ratio": processor_ratio(plain, found),
        "memory_ratio": found["peak"] / max(one["peak"] for one in plain),
    }
    if "mended" in pair:
        row["mended"] = measure([program, "--only", name, "--compare", "--mended"])["verdict"]
    return row


def main(words: Sequence[str] | None = None) -> None:
    """Run what the command line, or ``words`` in its place, asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path, help="append each row as one line of JSON")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--plain", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--compare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--mended", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    if asked.plain is not None:
        print(json.dumps(run_plain(asked.only[0], asked.plain)))
        return
    if asked.compare:
        print(json.dumps(run_compare(asked.only[0], asked.mended)))
        return
    rows = {}
    if asked.out and asked.out.exists():
        rows = {row["name"]: row for row in map(json.loads, asked.out.read_text().splitlines())}
    for name in asked.only or read_pairs():
        if name in rows:
            continue
        row = rows[name] = measure_pair(name)
        print(f"{name}: {row['compare']['text']['en'][:2000]}\n", flush=True)
        if asked.out:
            with asked.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    if asked.markdown:
        write([rows[name] for name in read_pairs() if name in rows])


if __name__ == "__main__":
    main()
