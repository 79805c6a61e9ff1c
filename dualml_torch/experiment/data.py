"""PyTorch's own data path: a `Sampler` with a given order, and torchvision's MNIST.

dualml trains on neutral arrays (`dualml.experiment.data`). These are for your own scripts, and for
the proof that the framework's reader, given the same order, delivers the same samples bit for bit.

    data = torchvision_mnist("data/mnist", train=True)
    for x, y in loader(data, order, batch_size=64):     # x float32 (B, 1, 28, 28), y int64 (B,)
        ...
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import library
from torch.utils.data import DataLoader, Dataset, Sampler

from dualml.common.errors import Unsupported, UserError
from dualml.experiment.data import normalised
from dualml.experiment.data.layout import raw_folder
from dualml.experiment.data.registry import find_dataset

#: Operator schemas defined in torchvision's place; torch forgets them when this list is dropped.
_schemas: list[library.Library] = []
MATCHING = "install the torchvision build that matches your torch (see pytorch.org, Get Started)"


class OrderSampler(Sampler[int]):
    """A sampler that yields exactly the given indices.

    Args:
        order: one order, shape (N,), used in every epoch; or one per epoch, shape (E, N) or a
            list of arrays: `set_epoch` chooses.
    """

    def __init__(self, order: np.ndarray | Sequence[np.ndarray]) -> None:
        single = np.ndim(order[0]) == 0
        self.orders = [np.asarray(o, np.int64) for o in ([order] if single else order)]
        self.single = single
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, from 0; an order of shape (N,) is used whatever the epoch.

        Raises:
            UserError: the orders are one per epoch, and there is none for this one.
        """
        if not self.single and not 0 <= epoch < len(self.orders):
            raise UserError(f"epoch {epoch} has no order; there are {len(self.orders)}, from 0")
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        yield from self.orders[0 if self.single else self.epoch].tolist()

    def __len__(self) -> int:
        return len(self.orders[0 if self.single else self.epoch])


class IndexedDataset(Dataset[tuple[torch.Tensor, int]]):
    """A map-style dataset of neutral arrays: samples are (float32 (1, 28, 28), label).

    Args:
        images: uint8 (N, 28, 28).
        labels: integers (N,).
        mean, std: for `normalised`.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, mean: float, std: float) -> None:
        self.images, self.labels, self.mean, self.std = images, labels, mean, std

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        x = normalised(self.images[index : index + 1], self.mean, self.std)[0]
        return torch.from_numpy(x), int(self.labels[index])

    def __len__(self) -> int:
        return len(self.images)


def torchvision_mnist(folder: str | Path, train: bool, *, name: str = "mnist") -> Any:
    """Open torchvision's ``MNIST`` (or ``FashionMNIST``) over the IDX files of a folder.

    Samples are normalised by torchvision's ``ToTensor`` and ``Normalize``: the same bits as
    `dualml.experiment.data.normalised`. The folder itself is not touched; links and unpacked files
    go to the cache.

    Args:
        folder: with the four IDX files, plain or gzip.
        train: the training set; else the test set.
        name: ``mnist`` or ``fashion_mnist``; decides the class and the constants.

    Raises:
        UserError: another name, or a file that is missing or damaged.
        Unsupported: torchvision cannot be used.
    """
    vision = import_torchvision()
    info = find_dataset(name)
    kinds = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}
    if name not in kinds:
        raise UserError(f"torchvision reads {' and '.join(kinds)}; received name={name!r}")
    root = raw_folder(Path(folder), kinds[name])
    steps = [vision.transforms.ToTensor(), vision.transforms.Normalize((info.mean,), (info.std,))]
    make = getattr(vision.datasets, kinds[name])
    return make(str(root), train=train, transform=vision.transforms.Compose(steps))


def loader(
    dataset: Dataset[Any],
    order: np.ndarray | Sequence[np.ndarray],
    batch_size: int,
    *,
    epoch: int = 0,
) -> DataLoader[Any]:
    """Make a DataLoader over a map-style dataset in the given order; the last batch may be smaller.

    Args:
        dataset: `IndexedDataset`, `torchvision_mnist`, or any other.
        order: as for `OrderSampler`.
        batch_size: samples.
        epoch: from 0; ``loader(…).sampler.set_epoch(e)`` changes it.
    """
    sampler = OrderSampler(order)
    sampler.set_epoch(epoch)
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler)


def import_torchvision() -> Any:
    """Import ``torchvision``, with ``datasets`` and ``transforms`` ready to use, and return it.

    A CUDA build of torchvision beside a CPU build of torch cannot load its compiled operators and
    fails on the first missing one. The datasets and transforms need none of them: two empty
    schemas make the import succeed. Box operators still raise when called.

    Raises:
        Unsupported: not installed, or unusable; with the reason and the remedy.
    """
    try:
        return _import()
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise Unsupported(f"torchvision cannot be imported: {error}; {MATCHING}") from None
        raise Unsupported(
            "torchvision is not installed; remedy: pip install 'dualml[torch]'"
        ) from None
    except Exception as error:
        if "torchvision::nms does not exist" not in str(error):
            raise Unsupported(f"torchvision cannot be imported: {error}; {MATCHING}") from None
    _forget()
    missing = library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        missing.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _schemas.append(missing)
    try:
        return _import()
    except Exception as error:
        _forget()
        raise Unsupported(f"torchvision cannot be imported: {error}; {MATCHING}") from None


def _import() -> Any:
    """Import torchvision with its ``datasets`` and ``transforms`` and return the module."""
    vision = importlib.import_module("torchvision")
    importlib.import_module("torchvision.datasets")
    importlib.import_module("torchvision.transforms")
    return vision


def _forget() -> None:
    """Remove torchvision's modules, which a failed import left behind, from `sys.modules`, so that
    the next import starts afresh."""
    for name in [m for m in sys.modules if m.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
