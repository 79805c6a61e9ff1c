"""Probes of data loading in PyTorch."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler

from dualml.parity.diffs.inputs import DEVIATION, MEAN, PIXELS, normal

SAMPLES = np.arange(64, dtype=np.float32)


def shuffle_default() -> NDArray:
    """Run the probe "Order of the samples by default" in PyTorch and return the samples of one pass
    in order. `DataLoader` keeps the order of the dataset."""
    return torch.cat(list(DataLoader(SAMPLES, batch_size=8))).numpy()


def order_of_a_seed() -> NDArray:
    """Run the probe "The order that a seed gives" in PyTorch and return the samples of one pass in
    order. A shuffled `DataLoader` draws from its generator."""
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(SAMPLES, batch_size=8, shuffle=True, generator=generator)
    return torch.cat(list(loader)).numpy()


def order_of_a_seed_equal() -> NDArray:
    """Run the probe "The order that a seed gives" in PyTorch, written to agree with MindSpore, and
    return the samples of one pass in order. Draw the order in NumPy and pass it as the sampler: a
    list in PyTorch, `ds.SubsetSampler` in MindSpore."""
    order = np.random.default_rng(1).permutation(64)
    return torch.cat(list(DataLoader(SAMPLES, batch_size=8, sampler=order.tolist()))).numpy()


def epoch_order() -> int:
    """Return 1 if the second epoch of a shuffled `DataLoader` with one generator has the order of
    the first, else 0."""
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(SAMPLES, batch_size=8, shuffle=True, generator=generator)
    epochs = [torch.cat(list(loader)) for _ in range(2)]
    return int(epochs[0].equal(epochs[1]))


def distributed_sampler_epochs() -> int:
    """Return 1 if the second epoch has the order of the first, without `set_epoch`, else 0."""
    sampler = DistributedSampler(SAMPLES, num_replicas=2, rank=0)
    loader = DataLoader(SAMPLES, batch_size=8, sampler=sampler)
    epochs = [torch.cat(list(loader)) for _ in range(2)]
    return int(epochs[0].equal(epochs[1]))


def distributed_sampler_epochs_equal() -> int:
    """Run the probe "`DistributedSampler` in the second epoch" in PyTorch, written to agree with
    MindSpore, and return 1 if both epochs have one order, else 0. PyTorch: call
    `sampler.set_epoch(epoch)` before each epoch."""
    sampler = DistributedSampler(SAMPLES, num_replicas=2, rank=0)
    loader = DataLoader(SAMPLES, batch_size=8, sampler=sampler)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epochs.append(torch.cat(list(loader)))
    return int(epochs[0].equal(epochs[1]))


def distributed_sampler_shuffle() -> NDArray:
    """Run the probe "Which samples `DistributedSampler` gives a rank" in PyTorch and return rank
    0's samples of one pass in order. Shuffles by default, with its argument `seed`."""
    sampler = DistributedSampler(SAMPLES, num_replicas=2, rank=0)
    return torch.cat(list(DataLoader(SAMPLES, batch_size=8, sampler=sampler))).numpy()


def distributed_sampler_shuffle_equal() -> NDArray:
    """Run the probe "Which samples `DistributedSampler` gives a rank" in PyTorch, written to agree
    with MindSpore, and return rank 0's samples of one pass in order. With `shuffle=False` both
    sides give the same partition; shuffle the data beforehand."""
    sampler = DistributedSampler(SAMPLES, num_replicas=2, rank=0, shuffle=False)
    return torch.cat(list(DataLoader(SAMPLES, batch_size=8, sampler=sampler))).numpy()


def distributed_sampler_padding() -> list[NDArray]:
    """Run the probe "Samples that can't be divided by the ranks" in PyTorch and return the samples
    of rank 0 and of rank 1. `DistributedSampler` starts again with the first samples, so that all
    ranks get as many."""
    samplers = [DistributedSampler(SAMPLES[:7], 2, rank, shuffle=False) for rank in range(2)]
    return [torch.cat(list(DataLoader(SAMPLES[:7], sampler=s))).numpy() for s in samplers]


def shuffle_buffer() -> int:
    """Return the largest index among the first 8 of 64 samples that `DataLoader` shuffles."""
    generator = torch.Generator().manual_seed(1)
    return int(max(next(iter(DataLoader(SAMPLES, 8, shuffle=True, generator=generator)))))


def last_batch() -> list[int]:
    """Run the probe "The last, smaller batch" in PyTorch and return the lengths of the batches.
    Kept by default (`drop_last=False`)."""
    return [len(batch) for batch in DataLoader(SAMPLES[:10], batch_size=4)]


def batch_dtype() -> list[NDArray]:
    """Run the probe "Types of a batch of Python numbers" in PyTorch and return the two columns of a
    batch. Floats become float64, integers int64."""
    samples = [(0.5, 1), (1.5, 0)]
    return [column.numpy() for column in next(iter(DataLoader(samples, batch_size=2)))]


def normalize_layout() -> NDArray:
    """Run the probe "`Normalize` after `ToTensor`" in PyTorch and return the normalised image.
    torchvision's `Normalize` expects channels first, which is what `ToTensor` gives."""
    image = (normal(8, 8, 3) * 50 + 128).clip(0, 255).astype(np.uint8)
    mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.3, 0.4])
    x = torch.from_numpy(image).permute(2, 0, 1) / 255  # what torchvision calls ToTensor
    return ((x - mean[:, None, None]) / std[:, None, None]).numpy()


def to_tensor_rounding() -> NDArray:
    """Return what torchvision's `ToTensor` and `Normalize` make of `PIXELS`, bytes of one channel:
    float32 (16, 16)."""
    scaled = torch.from_numpy(PIXELS).float().div(255)
    return scaled.sub(torch.tensor(MEAN)).div(torch.tensor(DEVIATION)).numpy()


def resize_antialias() -> NDArray:
    """Return a 16×16 image made 4×4 by the function behind torchvision's `Resize`, with its default
    `antialias=True`."""
    image = torch.from_numpy(normal(1, 1, 16, 16))
    small = F.interpolate(image, size=(4, 4), mode="bilinear", antialias=True)
    return small[0, 0].numpy()


def resize_antialias_equal() -> NDArray:
    """Run the probe "Making images smaller" in PyTorch, written to agree with MindSpore, and return
    the small image (4, 4). PyTorch: `antialias=False`."""
    image = torch.from_numpy(normal(1, 1, 16, 16))
    small = F.interpolate(image, size=(4, 4), mode="bilinear", antialias=False)
    return small[0, 0].numpy()
