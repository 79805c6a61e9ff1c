"""MindSpore's own readers deliver the neutral arrays, sample by sample, in the requested order."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.experiment.data import DATASETS, idx, normalised
from dualml.experiment.data.registry import FILE_NAMES

if "mindspore" in os.environ.get("DUALML_REQUIRE", "").split(","):
    import mindspore
else:
    mindspore = pytest.importorskip("mindspore")
from dualml_ms.experiment import data as room

REAL = Path(os.environ.get("DUALML_DATA") or "nowhere") / "mnist"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Small IDX files with MNIST's names, one of them gzip; an empty cache."""
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
    images, labels = (
        idx.read(path if path.exists() else path.with_name(f"{path.name}.gz"))
        for path in (folder / n for n in (FILE_NAMES[:2] if train else FILE_NAMES[2:]))
    )
    return images, labels, DATASETS[name].mean, DATASETS[name].std


def assert_equal_in_order(batches, folder, train, order, batch_size, name="mnist"):
    """Assert that every batch equals the neutral arrays at its place in the order, bit for bit."""
    images, labels, mean, std = neutral(folder, train, name)
    at = 0
    for x, y in batches:
        want = order[at : at + batch_size]
        assert x.dtype == mindspore.float32
        assert y.dtype == mindspore.int32
        assert np.array_equal(x.asnumpy(), normalised(images[want], mean, std))
        assert np.array_equal(y.asnumpy(), labels[want])
        at += len(want)
    assert at == len(order) > 0


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
@pytest.mark.parametrize("train", [True, False])
def test_mindspore_equals_the_neutral_arrays(folder, train, name):
    order = np.random.default_rng(0).permutation(40 if train else 15)
    data = room.mindspore_mnist(folder, train, room.OrderSampler(order), name=name)
    assert_equal_in_order(room.loader(data, 7), folder, train, order, 7, name)


def test_without_a_sampler_the_files_order(folder):
    data = room.mindspore_mnist(folder, True)
    assert_equal_in_order(room.loader(data, 16), folder, True, np.arange(40), 16)


@pytest.mark.mnist
@pytest.mark.skipif(not REAL.is_dir(), reason="DUALML_DATA has no folder mnist")
def test_mindspore_equals_the_neutral_arrays_on_mnist(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALML_CACHE", str(tmp_path))
    for train, size in ((True, 60_000), (False, 10_000)):
        order = np.random.default_rng(1).permutation(size)[:5_000]
        data = room.mindspore_mnist(REAL, train, room.OrderSampler(order))
        assert_equal_in_order(room.loader(data, 64), REAL, train, order, 64)
    assert room.mindspore_mnist(REAL, True).get_dataset_size() == 60_000


def test_indexed_dataset_equals_the_neutral_arrays(folder):
    order = np.random.default_rng(0).integers(0, 40, 50)  # with repetitions
    data = room.IndexedDataset(*neutral(folder, True)).pipeline(room.OrderSampler(order))
    assert_equal_in_order(room.loader(data, 8), folder, True, order, 8)


def test_the_comparison_notices_another_order_and_another_constant(folder):
    images, labels, mean, std = neutral(folder, True)
    order = np.arange(40)
    sampler = room.OrderSampler(order[::-1])
    other = room.IndexedDataset(images, labels, mean, std).pipeline(sampler)
    with pytest.raises(AssertionError):
        assert_equal_in_order(room.loader(other, 8), folder, True, order, 8)
    shifted = room.IndexedDataset(images, labels, mean + 1e-6, std)
    pipeline = shifted.pipeline(room.OrderSampler(order))
    with pytest.raises(AssertionError):
        assert_equal_in_order(room.loader(pipeline, 8), folder, True, order, 8)


@pytest.mark.parametrize("orders", [np.array([[2, 0, 1], [1, 2, 0]]), [[2, 0, 1], [1, 2]]])
def test_one_order_per_epoch(orders):
    sampler = room.OrderSampler(orders)
    for epoch in (1, 0, 1):
        sampler.set_epoch(epoch)
        assert list(sampler) == list(orders[epoch])
        assert len(sampler) == sampler.num_samples == len(orders[epoch])
    with pytest.raises(UserError, match="epoch 2 has no order; there are 2"):
        sampler.set_epoch(2)


@pytest.mark.parametrize("native", [True, False])
def test_the_pipeline_follows_the_epoch(folder, native):
    orders = [np.arange(40), np.arange(40)[::-1], np.arange(24)]
    sampler = room.OrderSampler(orders)
    if native:
        data = room.mindspore_mnist(folder, True, sampler)
    else:
        data = room.IndexedDataset(*neutral(folder, True)).pipeline(sampler)
    batches = room.loader(data, 16)
    for epoch in (0, 1, 0, 2, 1):
        sampler.set_epoch(epoch)
        assert_equal_in_order(batches, folder, True, orders[epoch], 16)


def test_mindspores_own_normalisation_rounds_differently():
    """MindSpore's own normalisation differs, which is why `mindspore_mnist` maps `normalised`."""
    vision = mindspore.dataset.vision
    image = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    own = vision.Normalize([0.1307], [0.3081], is_hwc=False)(vision.ToTensor()(image))
    ours = normalised(image[None, :, :, 0], 0.1307, 0.3081)[0]
    assert 0 < np.abs(own - ours).max() < 1e-6


def test_other_datasets_are_refused(folder):
    with pytest.raises(UserError, match="MindSpore reads mnist and fashion_mnist"):
        room.mindspore_mnist(folder, True, name="digits")


def test_damage_is_told_before_mindspore_reads(folder):
    (folder / FILE_NAMES[3]).write_bytes(b"\0\0\x08\x01\0\0")
    with pytest.raises(UserError, match="t10k-labels-idx1-ubyte is cut off in its header"):
        room.mindspore_mnist(folder, False)
