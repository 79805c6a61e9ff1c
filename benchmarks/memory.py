"""Peak memory of a trial's worker process against a script written by hand.

    python benchmarks/memory.py --backend torch|mindspore     prints rows as JSON

Both train LeNet for one epoch on the same images, kept as float32, and evaluate on the test set.
The trial also records, traces and draws its rounding envelope.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ratio_rows import RatioRow

from dualml.interface.bench.timing import Ratio

SECTION = "peak memory"
BATCH, CHUNK = 64, 250  # CHUNK: samples of an evaluation at once, as in a trial
THREADS = 1  # memory hardly depends on them, and one does not wait for another on a busy machine
MEAN, STD = 0.1307, 0.3081
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte")
FILES += ("t10k-labels-idx1-ubyte",)


def read(path: Path) -> Any:
    """Return an IDX file of bytes as an array."""
    import numpy as np

    sizes = np.fromfile(path, ">i4", count=1 + path.read_bytes()[3])[1:]
    return np.fromfile(path, np.uint8, offset=4 + 4 * len(sizes)).reshape(sizes)


def arrays(folder: Path) -> list[Any]:
    """Return normalised float32 images and the labels, without a second copy of the images."""
    import numpy as np

    found = []
    for images, labels in (FILES[:2], FILES[2:]):
        x = read(folder / images).astype(np.float32)[:, None]
        x /= 255
        x -= MEAN
        x /= STD
        found += [x, read(folder / labels)]
    return found


def train_torch(folder: Path, lr: float) -> float:
    """Train a hand-written loop in PyTorch and return the test accuracy."""
    import torch
    from handwritten_torch import lenet
    from torch.nn import functional

    x, y, test_x, test_y = map(torch.from_numpy, arrays(folder))
    y, test_y = y.long(), test_y.long()
    net = lenet()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, fused=True)
    losses = []
    for batch in torch.randperm(len(y)).split(BATCH):
        loss = functional.cross_entropy(net(x.index_select(0, batch)), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    with torch.no_grad():
        pairs = zip(test_x.split(CHUNK), test_y.split(CHUNK), strict=True)
        hits = sum(int((net(a).argmax(1) == b).sum()) for a, b in pairs)
    return hits / len(test_y)


def train_mindspore(folder: Path, lr: float) -> float:
    """Train a hand-written loop in MindSpore and return the test accuracy."""
    import mindspore as ms
    import numpy as np
    from handwritten_mindspore import Step

    ms.set_context(mode=ms.GRAPH_MODE)
    x, y, test_x, test_y = arrays(folder)
    y, step = y.astype(np.int32), Step("sgd", lr)
    net, losses = step.loss.backbone_network, []
    order = np.random.default_rng(0).permutation(len(y))
    for i in range(0, len(y), BATCH):
        batch = order[i : i + BATCH]
        losses.append(step(ms.Tensor.from_numpy(x[batch]), ms.Tensor.from_numpy(y[batch])))
    losses = [float(loss.asnumpy()) for loss in losses]
    hits = 0
    for i in range(0, len(test_y), CHUNK):
        logits = net(ms.Tensor.from_numpy(test_x[i : i + CHUNK])).asnumpy()
        hits += int((logits.argmax(1) == test_y[i : i + CHUNK]).sum())
    return hits / len(test_y)


def by_hand(backend: str, folder: Path, lr: float) -> None:
    """Train in a separate process, and print its peak memory in MiB and the accuracy."""
    import resource

    accuracy = {"torch": train_torch, "mindspore": train_mindspore}[backend](folder, lr)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mb = peak / 2**20 if sys.platform == "darwin" else peak / 2**10
    print(json.dumps({"mb": mb, "accuracy": accuracy}), flush=True)
    os._exit(0)  # MindSpore's teardown can abort after the work is done


def write_idx(path: Path, array: Any) -> None:
    import numpy as np

    head = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">i4").tobytes()
    path.write_bytes(head + array.astype(np.uint8).tobytes())


def measure(backend: str, epochs: int = 1) -> RatioRow:
    """Run one trial and one script, one after the other."""
    from dualml.backend import backends
    from dualml.experiment.data import load
    from dualml.experiment.load import load as experiment

    data = load("mnist", explicit=False)
    lr = experiment("lab1", arms=["sgd"]).arms["sgd"].rule.lr
    env = {**os.environ, **backends()[backend].environ(THREADS)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = data.train_x, data.train_y, data.test_x, data.test_y
        for file, array in zip(FILES, parts, strict=True):
            write_idx(folder / file, array)
        hand = ["--backend", backend, "--by-hand", name, "--lr", str(lr)]
        told = output([sys.executable, __file__, *hand], env)
        script = json.loads(told.splitlines()[-1])
        out = folder / "run"
        command = ["-m", "dualml", "run", "lab1", "--arm", "sgd", "--backend", backend]
        command += ["--set", f"arms.sgd.epochs={epochs}", "--data", data.name, "--no-report"]
        command += ["--threads", str(THREADS)]
        output([sys.executable, *command, "--out", str(out)], env)
        trial = json.loads((out / "run.json").read_text("utf-8"))["trials"][0]
    ours, share = trial["peak_memory_mb"], trial["peak_memory_mb"] / script["mb"]
    accuracy = f"{trial['test_accuracy']:.3f} and {script['accuracy']:.3f}"
    return RatioRow(
        section=SECTION,
        what=f"{backend}: worker of a trial",
        against="hand-written script",
        ours=ours,
        other=script["mb"],
        unit="MiB",
        ratio=Ratio(share, share, share),
        # The embedded digits bring scikit-learn into the worker, which the script does not read.
        target=None if data.source == "embedded" else 1.1,
        note=f"{data.name}, test accuracies {accuracy}",
    )


def output(command: list[str], env: dict[str, str]) -> str:
    """Return the standard output of a command.

    Raises:
        RuntimeError: the command failed; the text is the end of its output.
    """
    made = subprocess.run(command, env=env, capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with {made.returncode}: {made.stderr[-800:]}"
        )
    return made.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("torch", "mindspore"), required=True)
    parser.add_argument("--by-hand", type=Path, metavar="DIR", help="train on DIR's IDX files")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate of --by-hand")
    asked = parser.parse_args()
    if asked.by_hand:
        by_hand(asked.backend, asked.by_hand, asked.lr)
    print(json.dumps([measure(asked.backend).describe()]))


if __name__ == "__main__":
    main()
