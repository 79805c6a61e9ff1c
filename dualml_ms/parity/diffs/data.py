"""Probes of data loading in MindSpore."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from mindspore import dataset as ds
from mindspore.dataset import vision
from numpy.typing import NDArray

from dualml.parity.diffs.inputs import DEVIATION, MEAN, PIXELS, normal

SAMPLES = np.arange(64, dtype=np.float32)


@contextmanager
def seed(value: int) -> Iterator[None]:
    """Set `ds.config`'s seed inside the block and restore it at the end."""
    before = ds.config.get_seed()
    ds.config.set_seed(value)
    try:
        yield
    finally:
        ds.config.set_seed(before)


def epoch(batches: ds.Dataset) -> NDArray:
    """Return the first column of a dataset's batches, in the order of one pass, as one array."""
    iterator = batches.create_tuple_iterator(num_epochs=1, output_numpy=True)
    return np.concatenate([columns[0] for columns in iterator])


def shuffle_default() -> NDArray:
    """Run the probe "Order of the samples by default" in MindSpore and return the samples of one
    pass in order. `NumpySlicesDataset` and `GeneratorDataset` shuffle a source that can be
    indexed."""
    return epoch(ds.NumpySlicesDataset(SAMPLES, ["x"]).batch(8))


def shuffle_default_equal() -> NDArray:
    """Run the probe "Order of the samples by default" in MindSpore, written to agree with PyTorch,
    and return the samples of one pass in order. Pass `shuffle` on both sides."""
    return epoch(ds.NumpySlicesDataset(SAMPLES, ["x"], shuffle=False).batch(8))


def order_of_a_seed() -> NDArray:
    """Run the probe "The order that a seed gives" in MindSpore and return the samples of one pass
    in order. The dataset draws from another generator: the same seed gives another order."""
    with seed(1):
        return epoch(ds.NumpySlicesDataset(SAMPLES, ["x"], shuffle=True).batch(8))


def order_of_a_seed_equal() -> NDArray:
    """Run the probe "The order that a seed gives" in MindSpore, written to agree with PyTorch, and
    return the samples of one pass in order. Draw the order in NumPy and pass it as the sampler: a
    list in PyTorch, `ds.SubsetSampler` in MindSpore."""
    order = np.random.default_rng(1).permutation(64)
    sampler = ds.SubsetSampler(order.tolist())
    return epoch(ds.NumpySlicesDataset(SAMPLES, ["x"], sampler=sampler).batch(8))


def epoch_order() -> int:
    """Return 1 if a second iterator of a shuffled dataset with a fixed seed gives the order of the
    first, else 0."""
    with seed(1):
        batches = ds.NumpySlicesDataset(SAMPLES, ["x"], shuffle=True).batch(8)
        epochs = []
        for _ in range(2):
            iterator = batches.create_tuple_iterator(num_epochs=1, output_numpy=True)
            epochs.append(np.concatenate([x for (x,) in iterator]))
        return int(np.array_equal(*epochs))


def epoch_order_equal() -> int:
    """Run the probe "The order of the second epoch" in MindSpore, written to agree with PyTorch,
    and return 1 if both epochs have one order, else 0. MindSpore: make one iterator with
    `num_epochs=n` before the loop over epochs and go through it n times."""
    with seed(1):
        batches = ds.NumpySlicesDataset(SAMPLES, ["x"], shuffle=True).batch(8)
        iterator = batches.create_tuple_iterator(num_epochs=2, output_numpy=True)
        epochs = [np.concatenate([x for (x,) in iterator]) for _ in range(2)]
        return int(np.array_equal(*epochs))


def distributed_sampler_epochs() -> int:
    """Return 1 if the second epoch of one iterator has the order of the first, else 0."""
    sampler = ds.DistributedSampler(num_shards=2, shard_id=0)
    batches = ds.NumpySlicesDataset(SAMPLES, ["x"], sampler=sampler).batch(8)
    iterator = batches.create_tuple_iterator(num_epochs=2, output_numpy=True)
    epochs = [np.concatenate([x for (x,) in iterator]) for _ in range(2)]
    return int(np.array_equal(*epochs))


def distributed_sampler_shuffle() -> NDArray:
    """Run the probe "Which samples `DistributedSampler` gives a rank" in MindSpore and return rank
    0's samples of one pass in order. Shuffles by default too, but takes no seed, and gives the rank
    other samples."""
    sampler = ds.DistributedSampler(num_shards=2, shard_id=0)
    return epoch(ds.NumpySlicesDataset(SAMPLES, ["x"], sampler=sampler).batch(8))


def distributed_sampler_shuffle_equal() -> NDArray:
    """Run the probe "Which samples `DistributedSampler` gives a rank" in MindSpore, written to
    agree with PyTorch, and return rank 0's samples of one pass in order. With `shuffle=False` both
    sides give the same partition; shuffle the data beforehand."""
    sampler = ds.DistributedSampler(num_shards=2, shard_id=0, shuffle=False)
    return epoch(ds.NumpySlicesDataset(SAMPLES, ["x"], sampler=sampler).batch(8))


def distributed_sampler_padding() -> list[NDArray]:
    """Run the probe "Samples that can't be divided by the ranks" in MindSpore and return the
    samples of rank 0 and of rank 1. As in PyTorch."""
    samplers = [ds.DistributedSampler(2, rank, shuffle=False) for rank in range(2)]
    return [epoch(ds.NumpySlicesDataset(SAMPLES[:7], ["x"], sampler=s).batch(1)) for s in samplers]


def shuffle_buffer() -> int:
    """Return the largest index among the first 8 of 64 samples that are shuffled by a buffer of
    8."""
    samples = ds.NumpySlicesDataset(SAMPLES, ["x"], shuffle=False).shuffle(buffer_size=8)
    return int(max(epoch(samples.batch(8))[:8]))


def last_batch() -> list[int]:
    """Run the probe "The last, smaller batch" in MindSpore and return the lengths of the batches.
    Kept by default too (`drop_remainder=False`)."""
    batches = ds.NumpySlicesDataset(SAMPLES[:10], ["x"], shuffle=False).batch(4)
    return [len(x) for (x,) in batches.create_tuple_iterator(num_epochs=1)]


def batch_dtype() -> list[NDArray]:
    """Run the probe "Types of a batch of Python numbers" in MindSpore and return the two columns of
    a batch. As in PyTorch."""
    samples = [(0.5, 1), (1.5, 0)]
    batches = ds.GeneratorDataset(samples, ["x", "label"], shuffle=False).batch(2)
    return [column.asnumpy() for column in next(batches.create_tuple_iterator(num_epochs=1))]


def normalize_layout() -> NDArray:
    """Run the probe "`Normalize` after `ToTensor`" in MindSpore, where it raises RuntimeError; else
    return the normalised image. `Normalize` expects channels last by default; after `ToTensor` it
    raises an error, or takes columns for channels where the image is three pixels wide."""
    image = (normal(8, 8, 3) * 50 + 128).clip(0, 255).astype(np.uint8)
    normalize = vision.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])
    return normalize(vision.ToTensor()(image))


def normalize_layout_equal() -> NDArray:
    """Run the probe "`Normalize` after `ToTensor`" in MindSpore, written to agree with PyTorch, and
    return the normalised image. MindSpore: `Normalize(mean, std, is_hwc=False)`."""
    image = (normal(8, 8, 3) * 50 + 128).clip(0, 255).astype(np.uint8)
    normalize = vision.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4], is_hwc=False)
    return normalize(vision.ToTensor()(image))


def to_tensor_rounding() -> NDArray:
    """Run the probe "Rounding of `ToTensor`" in MindSpore and return the normalised pixels (16,
    16). `ToTensor` multiplies by 1/255, a rounded number: last digits differ, and `Normalize`
    passes the difference on. `Normalize` itself has the bits of torchvision."""
    scaled = vision.ToTensor()(PIXELS)
    return vision.Normalize([MEAN], [DEVIATION], is_hwc=False)(scaled)[0]


def to_tensor_rounding_equal() -> NDArray:
    """Run the probe "Rounding of `ToTensor`" in MindSpore, written to agree with PyTorch, and
    return the normalised pixels (16, 16). Divide the array by 255 in float32 before `Normalize`, as
    `dualml.experiment.data` does."""
    scaled = PIXELS[None].astype(np.float32) / np.float32(255)
    return vision.Normalize([MEAN], [DEVIATION], is_hwc=False)(scaled)[0]


def resize_antialias() -> NDArray:
    """Run the probe "Making images smaller" in MindSpore and return the small image (4, 4).
    `vision.Resize` of an array interpolates between neighbours only."""
    image = normal(1, 1, 16, 16)[0, 0]
    return vision.Resize((4, 4))(image)
