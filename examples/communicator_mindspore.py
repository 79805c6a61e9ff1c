"""A communicator in a script of your own: two MindSpore processes average their gradients.

Each rank has half of a batch of scikit-learn's handwritten digits. Strategies of dualml, each a way
to add a vector up over the ranks, make the gradient of the whole batch of the two halves; one
process that has all of it is the yardstick. The last columns are what rank 0 sent for it.

Under msrun, a rank makes its communicator itself: `dualml_ms.algorithms.communicator.connect` with
`Place(rank, size, FileBoard(folder), "env://")`.

    python examples/communicator_mindspore.py
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from sklearn.datasets import load_digits

from dualml.algorithms.communicator import Communicator
from dualml.launch.ranks import run_ranks
from dualml.parallel.aggregation import strategy

RANKS, BATCH = 2, 128
STRATEGIES = ["all_reduce", "ring", "tree", "parameter_server"]


def gradient(batch: slice) -> ms.Tensor:
    """Return the gradient of the mean loss over these digits as one vector; all ranks have the same
    model."""
    digits, draw = load_digits(), np.random.default_rng(0)
    x, y = ms.Tensor(np.float32(digits.data[batch] / 16)), ms.Tensor(np.int32(digits.target[batch]))
    model = nn.SequentialCell(nn.Dense(64, 32), nn.Tanh(), nn.Dense(32, 10))
    for weight in model.trainable_params():
        weight.set_data(ms.Tensor(np.float32(draw.normal(0, 0.1, weight.shape))))
    criterion = nn.CrossEntropyLoss()

    def loss_of(x, y):
        return criterion(model(x), y)

    gradients = ms.grad(loss_of, None, model.trainable_params())(x, y)
    return ops.concat([g.reshape(-1) for g in gradients])


def work(comm: Communicator, names: list[str]) -> dict[str, Any]:
    """Run on one rank; return, by strategy, the largest difference from one process and the bytes
    sent."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    share = BATCH // comm.size
    own = gradient(slice(comm.rank * share, (comm.rank + 1) * share))
    whole, results = gradient(slice(0, BATCH)).asnumpy(), {}
    for name in names:
        comm.traffic.reset()
        total = strategy(name).sum(comm, comm.copy(own))  # `sum` may overwrite its argument
        gap = float(np.abs(total.asnumpy() / comm.size - whole).max())
        results[name] = [gap, comm.traffic.sent, comm.traffic.bytes_sent]
    return {"numbers": len(own), "largest": float(np.abs(whole).max()), "results": results}


if __name__ == "__main__":
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # the ranks import this file
    first, *_ = run_ranks("mindspore", RANKS, "communicator_mindspore:work", STRATEGIES)
    print(f"a gradient of {first['numbers']} numbers up to {first['largest']:.3f}, {RANKS} ranks")
    print(f"{'strategy':18}{'off by':>10}{'messages':>10}{'bytes':>8}")
    for name, (gap, messages, size) in first["results"].items():
        print(f"{name:18}{gap:10.1e}{messages or 'native':>10}{size or '':>8}")
