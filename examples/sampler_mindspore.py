"""A partition's sampler in a MindSpore pipeline of your own: who trains on which digits.

Two ranks share scikit-learn's handwritten digits by labels drawn from a Dirichlet distribution. In
training every rank makes its own sampler and needs no message for it; here one process makes both
and counts what the batches hold. PyTorch's loaders give the same partition: sampler_torch.py prints
the same table.

    python examples/sampler_mindspore.py
"""

from __future__ import annotations

import mindspore.dataset as ds
import numpy as np
from sklearn.datasets import load_digits

from dualml.parallel.partition import DirichletLabels, partition_stats
from dualml_ms.parallel.partition import PartitionSampler

RANKS, EPOCHS = 2, 2


def main() -> None:
    digits = load_digits()
    dataset = list(zip(np.float32(digits.data / 16), np.int32(digits.target), strict=True))
    rule, parts = DirichletLabels(alpha=0.3), []
    print(f"{len(dataset)} digits to {RANKS} ranks; of each digit")
    print("epoch  rank  samples" + "".join(f"{digit:5}" for digit in range(10)))
    for rank in range(RANKS):
        sampler = PartitionSampler(rule, digits.target, RANKS, rank, seed=0)
        batches = ds.GeneratorDataset(dataset, ["image", "label"], sampler=sampler).batch(64)
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)  # before the iterator of the epoch is made
            seen = np.zeros(10, int)
            for _, labels in batches.create_tuple_iterator(num_epochs=1, output_numpy=True):
                seen += np.bincount(labels, minlength=10)
            print(f"{epoch:5}{rank:6}{seen.sum():9}" + "".join(f"{n:5}" for n in seen))
        parts.append(sampler.order())
    statement = partition_stats(parts, digits.target)
    print(f"assigned to nobody: {statement.missed}, to both: {statement.shared}")
    print(f"SHA-256 of the lists of epoch {EPOCHS - 1}: {statement.sha256}")


if __name__ == "__main__":
    main()
