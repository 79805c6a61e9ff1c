"""PyTorch's own readers deliver the neutral arrays, sample by sample, in the requested order."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dualml.common.errors import Unsupported, UserError
from dualml.experiment.data import DATASETS, idx, normalised
from dualml.experiment.data.registry import FILE_NAMES

if "torch" in os.environ.get("DUALML_REQUIRE", "").split(","):
    import torch
else:
    torch = pytest.importorskip("torch")
from dualml_torch.experiment import data as room

REAL = Path(os.environ.get("DUALML_DATA") or "nowhere") / "mnist"


def usable() -> str | None:
    try:
        room.import_torchvision()
    except Unsupported as error:
        return str(error)
    return None


needs_torchvision = pytest.mark.skipif(usable() is not None, reason=str(usable()))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Small IDX files with MNIST's names, one of them gzip; an empty cache."""
    import gzip

    monkeypatch.setenv("DUALML_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(3)
    made = tmp_path / "mine"
    made.mkdir()
    for name, n in zip(FILE_NAMES, (40, 40, 15, 15), strict=True):
        if "images" in name:
            part = rng.integers(0, 256, (n, 28, 28), np.uint8)
        else:
            part = (np.arange(n) % 10).astype(np.uint8)
        (made / name).write_bytes(idx.encode(part))
    first = made / FILE_NAMES[0]
    (made / f"{first.name}.gz").write_bytes(gzip.compress(first.read_bytes()))
    first.unlink()
    return made


def neutral(folder: Path, train: bool, name: str = "mnist"):
    images, labels = FILE_NAMES[:2] if train else FILE_NAMES[2:]
    paths = [
        p if p.exists() else p.with_name(f"{p.name}.gz") for p in (folder / images, folder / labels)
    ]
    info = DATASETS[name]
    return idx.read(paths[0]), idx.read(paths[1]), info.mean, info.std


def assert_equal_in_order(batches, folder, train, order, batch_size, name="mnist"):
    """Assert that every batch equals the neutral arrays at its place in the order, bit for bit."""
    images, labels, mean, std = neutral(folder, train, name)
    at = 0
    for x, y in batches:
        want = order[at : at + batch_size]
        assert x.dtype == torch.float32
        assert y.dtype == torch.int64
        assert np.array_equal(x.numpy(), normalised(images[want], mean, std))
        assert np.array_equal(y.numpy(), labels[want])
        at += len(want)
    assert at == len(order) > 0


@needs_torchvision
@pytest.mark.parametrize(("name", "kind"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
@pytest.mark.parametrize("train", [True, False])
def test_torchvision_equals_the_neutral_arrays(folder, train, name, kind):
    data = room.torchvision_mnist(folder, train, name=name)
    assert type(data).__name__ == kind
    order = np.random.default_rng(0).permutation(len(data))
    assert_equal_in_order(room.loader(data, order, 7), folder, train, order, 7, name)


@needs_torchvision
@pytest.mark.mnist
@pytest.mark.skipif(not REAL.is_dir(), reason="DUALML_DATA has no folder mnist")
def test_torchvision_equals_the_neutral_arrays_on_mnist(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALML_CACHE", str(tmp_path))
    for train, size in ((True, 60_000), (False, 10_000)):
        data = room.torchvision_mnist(REAL, train)
        assert len(data) == size
        order = np.random.default_rng(1).permutation(size)[:5_000]
        assert_equal_in_order(room.loader(data, order, 64), REAL, train, order, 64)


def test_indexed_dataset_equals_the_neutral_arrays(folder):
    data = room.IndexedDataset(*neutral(folder, True))
    order = np.random.default_rng(0).integers(0, len(data), 50)  # with repetitions
    assert_equal_in_order(room.loader(data, order, 8), folder, True, order, 8)


def test_the_comparison_notices_another_order_and_another_constant(folder):
    images, labels, mean, std = neutral(folder, True)
    data = room.IndexedDataset(images, labels, mean, std)
    order = np.arange(40)
    with pytest.raises(AssertionError):
        assert_equal_in_order(room.loader(data, order[::-1].copy(), 8), folder, True, order, 8)
    shifted = room.IndexedDataset(images, labels, mean + 1e-6, std)
    with pytest.raises(AssertionError):
        assert_equal_in_order(room.loader(shifted, order, 8), folder, True, order, 8)


@pytest.mark.parametrize("orders", [np.array([[2, 0, 1], [1, 2, 0]]), [[2, 0, 1], [1, 2]]])
def test_one_order_per_epoch(orders):
    sampler = room.OrderSampler(orders)
    for epoch in (1, 0, 1):
        sampler.set_epoch(epoch)
        assert list(sampler) == list(orders[epoch])
        assert len(sampler) == len(orders[epoch])
    with pytest.raises(UserError, match="epoch 2 has no order; there are 2"):
        sampler.set_epoch(2)


def test_a_single_order_serves_every_epoch():
    sampler = room.OrderSampler(np.array([3, 1, 2]))
    sampler.set_epoch(7)
    assert list(sampler) == [3, 1, 2]
    assert all(type(index) is int for index in sampler)


def test_the_loader_follows_the_epoch(folder):
    images, labels, mean, std = neutral(folder, True)
    orders = np.stack([np.arange(40), np.arange(40)[::-1]])
    batches = room.loader(room.IndexedDataset(images, labels, mean, std), orders, 16, epoch=1)
    assert_equal_in_order(batches, folder, True, orders[1], 16)
    batches.sampler.set_epoch(0)
    assert_equal_in_order(batches, folder, True, orders[0], 16)


@needs_torchvision
def test_other_datasets_are_refused(folder):
    with pytest.raises(UserError, match="torchvision reads mnist and fashion_mnist"):
        room.torchvision_mnist(folder, True, name="digits")


@pytest.fixture
def importing(monkeypatch):
    """Return ``importing(error)``: the next import of torchvision raises that error."""
    real = importlib.import_module

    def arrange(error):
        def fake(name, *rest):
            if name.partition(".")[0] == "torchvision":
                raise error
            return real(name, *rest)

        monkeypatch.setattr(importlib, "import_module", fake)

    return arrange


def test_torchvision_not_installed(importing):
    importing(ModuleNotFoundError("No module named 'torchvision'", name="torchvision"))
    with pytest.raises(Unsupported, match=r"not installed; remedy: pip install 'dualml\[torch\]'"):
        room.import_torchvision()


def test_torchvision_that_cannot_be_loaded(importing):
    importing(OSError("libcudart.so.13: cannot open shared object file"))
    with pytest.raises(
        Unsupported, match=r"cannot be imported: libcudart.*install the torchvision"
    ):
        room.import_torchvision()


FRESH = """
from dualml_torch.experiment.data import _schemas, import_torchvision
vision = import_torchvision()
vision.transforms.ToTensor(), vision.datasets.MNIST
if _schemas:  # the operators are not there, and say so
    import torch
    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    try:
        vision.ops.nms(boxes, torch.ones(1), 0.5)
    except Exception as error:
        assert "ops" in str(error) or "nms" in str(error), error
    else:
        raise SystemExit("nms without its operator returned something")
"""


@needs_torchvision
def test_a_build_for_another_torch_works_in_a_fresh_process():
    subprocess.run([sys.executable, "-c", FRESH], check=True, timeout=120)


def test_the_room_imports_without_torchvision():
    code = (
        "import sys; sys.modules['torchvision'] = None\n"
        "import dualml_torch.experiment.data as d\n"
        "try:\n    d.import_torchvision()\n"
        "except d.Unsupported as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=120, capture_output=True, text=True
    )
    assert "torchvision" in done.stdout
    assert "remedy" in done.stdout or "install" in done.stdout
