"""The sources of a dataset, their order, the fallback dataset, and the arrays themselves."""

import gzip
import hashlib
import os
from pathlib import Path

import data_files
import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.experiment.data import DATASETS, digits, fingerprint, idx, load, normalised, sources
from dualml.experiment.data.layout import plain_folder, raw_folder
from dualml.experiment.data.registry import FILE_NAMES

REAL = Path(os.environ.get("DUALML_DATA") or "nowhere")
needs_mnist = [
    pytest.mark.mnist,
    pytest.mark.skipif(
        not (REAL / "mnist").is_dir(), reason="DUALML_DATA has no folder mnist with the IDX files"
    ),
]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty cache, no DUALML_DATA, no network, and a registry whose mnist is the small
    dataset."""
    monkeypatch.setenv("DUALML_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DUALML_DATA", raising=False)
    monkeypatch.setenv("DUALML_OFFLINE", "1")
    monkeypatch.setitem(DATASETS, "mnist", data_files.info_for(data_files.arrays()))
    return tmp_path


def use_env(monkeypatch, folder):
    monkeypatch.setenv("DUALML_DATA", str(folder))


@pytest.mark.parametrize("packed", [False, True])
def test_from_the_environment(home, monkeypatch, packed):
    parts = data_files.arrays()
    data_files.write(home / "env" / "mnist", parts, packed=packed)
    use_env(monkeypatch, home / "env")
    data = load("mnist", explicit=True)
    assert (data.name, data.source, data.notice) == ("mnist", "env", None)
    got = (data.train_x, data.train_y, data.test_x, data.test_y)
    assert all(np.array_equal(a, b) for a, b in zip(got, parts, strict=True))
    assert [a.dtype.name for a in got] == ["uint8", "int64", "uint8", "int64"]
    assert data.sha256 == fingerprint(*got)
    assert not (home / "cache").exists(), "reading a user's folder needs no copy"


def test_environment_before_cache(home, monkeypatch):
    data_files.write(home / "cache" / "mnist", data_files.arrays())
    assert load("mnist", explicit=True).source == "cache"
    data_files.write(home / "env" / "mnist", data_files.arrays())
    use_env(monkeypatch, home / "env")
    assert load("mnist", explicit=True).source == "env"


def test_environment_without_this_dataset_leaves_it_to_the_cache(home, monkeypatch):
    (home / "env").mkdir()
    use_env(monkeypatch, home / "env")
    data_files.write(home / "cache" / "mnist", data_files.arrays())
    assert load("mnist", explicit=True).source == "cache"


@pytest.mark.parametrize("explicit", [True, False])
def test_environment_that_names_no_folder(home, monkeypatch, explicit):
    use_env(monkeypatch, home / "absent")
    with pytest.raises(UserError, match=r"DUALML_DATA=.*absent is not a folder"):
        load("mnist", explicit=explicit)


@pytest.mark.parametrize("explicit", [True, False])
def test_incomplete_environment_is_an_error(home, monkeypatch, explicit):
    folder = data_files.write(home / "env" / "mnist", data_files.arrays())
    (folder / FILE_NAMES[3]).unlink()
    use_env(monkeypatch, home / "env")
    with pytest.raises(UserError, match=r"expected 4 files, found 3; missing: t10k-labels"):
        load("mnist", explicit=explicit)


def test_interrupted_cache_counts_as_empty(home):
    folder = data_files.write(home / "cache" / "mnist", data_files.arrays())
    (folder / FILE_NAMES[3]).unlink()
    assert load("mnist", explicit=False).source == "embedded"


def test_explicit_never_falls_back(home):
    with pytest.raises(UserError, match=r"mnist could not be downloaded.*dualml data get mnist"):
        load("mnist", explicit=True)


def test_not_explicit_falls_back_with_a_notice_in_both_languages(home):
    data = load("mnist", explicit=False)
    assert (data.name, data.source) == ("digits", "embedded")
    assert set(data.notice) == {"en", "zh"}
    for text in data.notice.values():
        assert "digits" in text
        assert "mnist" in text
        assert "dualml data get mnist" in text
        assert "1,437" in text


@pytest.mark.parametrize("explicit", [True, False])
def test_damaged_files_never_fall_back(home, monkeypatch, explicit):
    folder = data_files.write(home / "env" / "mnist", data_files.arrays())
    path = folder / FILE_NAMES[0]
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    use_env(monkeypatch, home / "env")
    with pytest.raises(UserError, match=r"ubyte has the right size but.*unset DUALML_DATA"):
        load("mnist", explicit=explicit)


def test_the_error_states_both_checksums(home):
    folder = data_files.write(home / "cache" / "mnist", data_files.arrays())
    labels = data_files.arrays(seed=1)[1]
    (folder / FILE_NAMES[1]).write_bytes(idx.encode(labels))
    want = DATASETS["mnist"].files[1].checksum.replace(":", " ")
    have = hashlib.sha256(idx.encode(labels)).hexdigest()
    with pytest.raises(UserError, match=f"expected {want}, found {have}.*dualml data get mnist"):
        load("mnist", explicit=True)


def test_another_number_of_images_than_published(home):
    parts = data_files.arrays()
    data_files.write(home / "cache" / "mnist", (parts[0][:-1], *parts[1:]))
    with pytest.raises(UserError, match=r"shape \(19, 28, 28\); expected \(20, 28, 28\)"):
        load("mnist", explicit=True)


def registered(monkeypatch, home, parts):
    """Register a dataset whose checksums are right and whose contents are wrong."""
    monkeypatch.setitem(DATASETS, "mnist", data_files.info_for(parts))
    data_files.write(home / "cache" / "mnist", parts)


def test_label_out_of_range(home, monkeypatch):
    x, y, *test = data_files.arrays()
    y[3] = 10
    registered(monkeypatch, home, (x, y, *test))
    with pytest.raises(
        UserError, match=r"\(mnist, train\) has labels from \d to 10; expected 0 to 9"
    ):
        load("mnist", explicit=True)


def test_images_and_labels_of_different_number(home, monkeypatch):
    *train, x, y = data_files.arrays()
    registered(monkeypatch, home, (*train, x, y[:-1]))
    with pytest.raises(UserError, match=r"\(mnist, test\) has 10 images but 9 labels"):
        load("mnist", explicit=True)


def test_unknown_name():
    with pytest.raises(UserError, match="unknown dataset 'mnits'; did you mean 'mnist'"):
        load("mnits", explicit=True)


def test_digits_are_the_same_everywhere():
    data = load("digits", explicit=True)
    assert (data.source, data.notice) == ("embedded", None)
    assert data.sha256 == digits.SHA256
    assert data.train_x.shape == (DATASETS["digits"].train, 28, 28)
    assert data.test_x.shape == (DATASETS["digits"].test, 28, 28)
    assert np.bincount(data.test_y).tolist() == [36] * 10
    pixels = data.train_x / 255
    assert (round(pixels.mean(), 4), round(pixels.std(), 4)) == (data.mean, data.std)


def test_digits_are_split_without_overlap():
    labels = np.arange(1797) % 10
    train, test = digits.split_indices(labels)
    assert sorted([*train, *test]) == list(range(1797))


def test_enlarging_is_bilinear_interpolation_at_half_integer_centres():
    rng = np.random.default_rng(0)
    small = rng.integers(0, 17, (5, 8, 8))
    at = np.clip((np.arange(28) + 0.5) * 8 / 28 - 0.5, 0, 7)
    lines = np.array([[np.interp(at, range(8), row) for row in image] for image in small])
    both = np.array([[np.interp(at, range(8), col) for col in image.T] for image in lines])
    exact = both.transpose(0, 2, 1) * 255 / 16
    assert np.abs(digits.enlarge(small) - exact).max() <= 0.5 + 1e-9
    assert digits.enlarge(np.full((1, 8, 8), 16)).min() == 255


def test_normalised_rounds_in_float32_after_every_operation():
    images = np.arange(784, dtype=np.int64).reshape(1, 28, 28).astype(np.uint8)
    got = normalised(images, 0.1307, 0.3081)
    assert got.dtype == np.float32
    assert got.shape == (1, 1, 28, 28)
    f = np.float32
    want = [(f(int(v)) / f(255) - f(0.1307)) / f(0.3081) for v in images.ravel()]
    assert got.ravel().tolist() == want
    assert images[0, 0, 1] == 1, "the images are not changed"


def test_fingerprint_sees_values_shape_and_type():
    a = np.arange(6, dtype=np.uint8)
    others = [a.reshape(2, 3), a.astype(np.int64), a[::-1]]
    assert len({fingerprint(x) for x in (a, *others)}) == 4
    assert fingerprint(a.astype(">i4")) == fingerprint(a.astype("<i4"))
    assert fingerprint(a.reshape(2, 3).T) == fingerprint(a.reshape(2, 3).T.copy())


def test_native_layout_leaves_the_source_alone(home):
    parts = data_files.arrays()
    source = data_files.write(home / "mine", parts, packed=True)
    before = sorted(p.name for p in source.iterdir())
    raw = raw_folder(source, "MNIST") / "MNIST" / "raw"
    assert sorted(p.name for p in source.iterdir()) == before
    for name, part in zip(FILE_NAMES, parts, strict=True):
        assert (raw / name).read_bytes() == idx.encode(part)
    assert raw_folder(source, "MNIST") / "MNIST" / "raw" == raw


def test_native_layout_of_plain_files_copies_nothing(home):
    source = data_files.write(home / "mine", data_files.arrays())
    assert plain_folder(source) == source.resolve()
    assert (raw_folder(source, "MNIST") / "MNIST" / "raw" / FILE_NAMES[0]).is_symlink()


def test_native_layout_follows_a_changed_source(home):
    source = data_files.write(home / "mine", data_files.arrays(), packed=True)
    first = plain_folder(source)
    path = source / f"{FILE_NAMES[1]}.gz"
    path.write_bytes(gzip.compress(idx.encode(data_files.arrays(seed=5)[1]), 1))
    os.utime(path, ns=(1, 1))
    second = plain_folder(source)
    assert first != second
    assert (second / FILE_NAMES[1]).read_bytes() == idx.encode(data_files.arrays(seed=5)[1])


def test_native_layout_refuses_damage(home):
    source = data_files.write(home / "mine", data_files.arrays())
    (source / FILE_NAMES[2]).write_bytes(b"\0\0\x08\x03")
    with pytest.raises(UserError, match="t10k-images-idx3-ubyte is cut off in its header"):
        plain_folder(source)
    (source / FILE_NAMES[2]).unlink()
    with pytest.raises(UserError, match="t10k-images-idx3-ubyte is missing"):
        plain_folder(source)


class TestRealMnist:
    pytestmark = needs_mnist

    def test_is_the_published_one(self):
        data = sources.load_folder(DATASETS["mnist"], REAL / "mnist", "env")
        assert data.train_x.shape == (60_000, 28, 28)
        assert data.test_x.shape == (10_000, 28, 28)
        assert data.train_y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
        pixels = data.train_x / 255
        assert (round(pixels.mean(), 4), round(pixels.std(), 4)) == (data.mean, data.std)
