"""A partition's sampler in a DataLoader of your own: who trains on which digits.

Two ranks share scikit-learn's handwritten digits by labels drawn from a Dirichlet distribution. In
training every rank makes its own sampler and needs no message for it; here one process makes both
and counts what the batches hold. MindSpore's pipelines give the same partition:
sampler_mindspore.py prints the same table.

    python examples/sampler_torch.py
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from dualml.parallel.partition import DirichletLabels, partition_stats
from dualml_torch.parallel.partition import PartitionSampler

RANKS, EPOCHS = 2, 2


def main() -> None:
    digits = load_digits()
    dataset = TensorDataset(
        torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    )
    rule, parts = DirichletLabels(alpha=0.3), []
    print(f"{len(dataset)} digits to {RANKS} ranks; of each digit")
    print("epoch  rank  samples" + "".join(f"{digit:5}" for digit in range(10)))
    for rank in range(RANKS):
        sampler = PartitionSampler(rule, digits.target, RANKS, rank, seed=0)
        loader = DataLoader(dataset, batch_size=64, sampler=sampler)
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)  # without it, every epoch is the first one
            seen = np.zeros(10, int)
            for _, labels in loader:
                seen += np.bincount(labels.numpy(), minlength=10)
            print(f"{epoch:5}{rank:6}{seen.sum():9}" + "".join(f"{n:5}" for n in seen))
        parts.append(sampler.order())
    statement = partition_stats(parts, digits.target)
    print(f"assigned to nobody: {statement.missed}, to both: {statement.shared}")
    print(f"SHA-256 of the lists of epoch {EPOCHS - 1}: {statement.sha256}")


if __name__ == "__main__":
    main()
