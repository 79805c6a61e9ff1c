"""A communicator in a script of your own: two PyTorch processes average their gradients.

Each rank has half of a batch of scikit-learn's handwritten digits. Strategies of dualml, each a way
to add a vector up over the ranks, make the gradient of the whole batch of the two halves; one
process that has all of it is the yardstick. The last columns are what rank 0 sent for it.

Under torchrun, a rank makes its communicator itself: `dualml_torch.algorithms.communicator.connect`
with `Place(rank, size, FileBoard(folder), "env://")`.

    python examples/communicator_torch.py
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn

from dualml.algorithms.communicator import Communicator
from dualml.launch.ranks import run_ranks
from dualml.parallel.aggregation import strategy

RANKS, BATCH = 2, 128
STRATEGIES = ["all_reduce", "ring", "tree", "parameter_server"]


def gradient(batch: slice) -> torch.Tensor:
    """Return the gradient of the mean loss over these digits as one vector; all ranks have the same
    model."""
    digits = load_digits()
    x = torch.tensor(digits.data[batch] / 16, dtype=torch.float32)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    nn.functional.cross_entropy(model(x), torch.tensor(digits.target[batch])).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def work(comm: Communicator, names: list[str]) -> dict[str, Any]:
    """Run on one rank; return, by strategy, the largest difference from one process and the bytes
    sent."""
    share = BATCH // comm.size
    own = gradient(slice(comm.rank * share, (comm.rank + 1) * share))
    whole, results = gradient(slice(0, BATCH)), {}
    for name in names:
        comm.traffic.reset()
        mean = strategy(name).sum(comm, own.clone()) / comm.size  # `sum` may overwrite its argument
        gap = (mean - whole).abs().max().item()
        results[name] = [gap, comm.traffic.sent, comm.traffic.bytes_sent]
    return {"numbers": len(own), "largest": whole.abs().max().item(), "results": results}


if __name__ == "__main__":
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # the ranks import this file
    first, *_ = run_ranks("torch", RANKS, "communicator_torch:work", STRATEGIES)
    print(f"a gradient of {first['numbers']} numbers up to {first['largest']:.3f}, {RANKS} ranks")
    print(f"{'strategy':18}{'off by':>10}{'messages':>10}{'bytes':>8}")
    for name, (gap, messages, size) in first["results"].items():
        print(f"{name:18}{gap:10.1e}{messages or 'native':>10}{size or '':>8}")
