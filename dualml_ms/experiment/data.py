"""MindSpore's own data path: a `Sampler` with a given order, and its MnistDataset.

dualml trains on neutral arrays (`dualml.experiment.data`). These are for your own scripts, and for
the proof that the framework's reader, given the same order, delivers the same samples bit for bit.

    data = mindspore_mnist("data/mnist", True, OrderSampler(order))
    for x, y in loader(data, batch_size=64):            # x float32 (B, 1, 28, 28), y int32 (B,)
        ...

Unlike in PyTorch, a MindSpore dataset is a pipeline that contains its sampler from the beginning:
the order is given when the dataset is made, not when it is batched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mindspore
import mindspore.dataset as ds
import numpy as np

from dualml.common.errors import UserError
from dualml.experiment.data import normalised
from dualml.experiment.data.layout import plain_folder
from dualml.experiment.data.registry import find_dataset

COLUMNS = ["image", "label"]


class OrderSampler(ds.Sampler):
    """A sampler that yields exactly the given indices.

    Args:
        order: one order, shape (N,), used in every epoch; or one per epoch, shape (E, N) or a
            list of arrays: `set_epoch` chooses.
    """

    def __init__(self, order: np.ndarray | Sequence[np.ndarray]) -> None:
        self.single = np.ndim(order[0]) == 0
        self.orders = [np.asarray(o, np.int64) for o in ([order] if self.single else order)]
        self.epoch = 0
        super().__init__(num_samples=len(self))

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, from 0; takes effect when the next iterator is made. An
        order of shape (N,) is used whatever the epoch.

        Raises:
            UserError: the orders are one per epoch, and there is none for this one.
        """
        if not self.single and not 0 <= epoch < len(self.orders):
            raise UserError(f"epoch {epoch} has no order; there are {len(self.orders)}, from 0")
        self.epoch = epoch
        self.num_samples = len(self)

    def __iter__(self) -> Iterator[int]:
        yield from self.orders[0 if self.single else self.epoch].tolist()

    def __len__(self) -> int:
        return len(self.orders[0 if self.single else self.epoch])


class IndexedDataset:
    """A random-access source of neutral arrays: samples are (float32 (1, 28, 28), int32 label).

    Args:
        images: uint8 (N, 28, 28).
        labels: integers (N,).
        mean, std: for `normalised`.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, mean: float, std: float) -> None:
        self.images, self.labels, self.mean, self.std = images, labels, mean, std

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int32]:
        x = normalised(self.images[index : index + 1], self.mean, self.std)[0]
        return x, np.int32(self.labels[index])  # cross-entropy refuses int64 labels

    def __len__(self) -> int:
        return len(self.images)

    def pipeline(self, sampler: OrderSampler) -> Any:
        """Return the source as a MindSpore pipeline, in the sampler's order."""
        return ds.GeneratorDataset(self, COLUMNS, sampler=sampler, python_multiprocessing=False)


def mindspore_mnist(
    folder: str | Path, train: bool, sampler: OrderSampler | None = None, *, name: str = "mnist"
) -> Any:
    """Open MindSpore's ``MnistDataset`` (or ``FashionMnistDataset``) over the IDX files of a
    folder.

    Samples are normalised by `dualml.experiment.data.normalised`, because ``vision.ToTensor`` and
    ``vision.Normalize`` round differently: up to 2.4e-7 per pixel on MindSpore 2.10, CPU. The
    folder itself is not touched; files that must be unpacked go to the cache.

    Args:
        folder: with the four IDX files, plain or gzip.
        train: the training set; else the test set.
        sampler: without one, the samples come in the files' order.
        name: ``mnist`` or ``fashion_mnist``; decides the class and the constants.

    Raises:
        UserError: another name, or a file that is missing or damaged.
    """
    info = find_dataset(name)
    kinds = {"mnist": ds.MnistDataset, "fashion_mnist": ds.FashionMnistDataset}
    if name not in kinds:
        raise UserError(f"MindSpore reads {' and '.join(kinds)}; received name={name!r}")
    usage = "train" if train else "test"
    data = kinds[name](
        str(plain_folder(Path(folder))), usage, shuffle=None if sampler else False, sampler=sampler
    )

    def prepare(image: np.ndarray) -> np.ndarray:
        return normalised(image.reshape(1, 28, 28), info.mean, info.std)[0]

    data = data.map(prepare, "image", python_multiprocessing=False)
    return data.map(ds.transforms.TypeCast(mindspore.int32), "label")


def loader(pipeline: Any, batch_size: int) -> Any:
    """Batch a ``pipeline`` in its order; the last batch may be smaller than ``batch_size``.

    Iterating starts an epoch: ``sampler.set_epoch(e)`` before it chooses the order.
    """
    return pipeline.batch(batch_size, drop_remainder=False)
