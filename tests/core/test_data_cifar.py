"""CIFAR's binary files: read, checked, downloaded, extracted from their archive, and summarised."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import cifar_files
import numpy as np
import pytest
from typer.testing import CliRunner

from dualml.common.errors import UserError
from dualml.experiment.data import archive, cifar, fetch, load, locations, registry, user_images
from dualml.experiment.data.registry import DATASETS, RecordInfo
from dualml.experiment.data.stats import statistics
from dualml.interface.cli.app import app


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DUALML_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DUALML_DATA", raising=False)
    monkeypatch.delenv("DUALML_OFFLINE", raising=False)
    for name in ("cifar10", "cifar100", "cifar100_coarse"):
        monkeypatch.setitem(registry.DATASETS, name, cifar_files.info_for(name))
    return tmp_path


def test_registry_has_what_was_published() -> None:
    ten, hundred, coarse = (DATASETS[n] for n in ("cifar10", "cifar100", "cifar100_coarse"))
    assert [file.size for file in ten.files] == [30_730_000] * 6
    assert [file.size for file in hundred.files] == [153_700_000, 30_740_000]
    assert (len(ten.classes), len(hundred.classes), len(coarse.classes)) == (10, 100, 20)
    for info in (ten, hundred, coarse):
        assert isinstance(info, RecordInfo)
        assert sum(file.records for file in info.files) == info.train + info.test == 60_000
        assert info.shape == (3, 32, 32)
        assert len(info.mean) == len(info.std) == 3
        assert len(set(info.classes)) == len(info.classes)


@pytest.mark.parametrize("folder", ["cifar10", "cifar-10-batches-bin"])
def test_images_and_classes_of_ten(home: Path, folder: str, monkeypatch) -> None:
    cifar_files.write(home / "env" / folder, "cifar10")
    monkeypatch.setenv("DUALML_DATA", str(home / "env"))
    data = load("cifar10", explicit=True)
    assert (data.source, data.train_x.shape, data.test_x.shape) == (
        "env",
        (11, 3, 32, 32),
        (4, 3, 32, 32),
    )
    assert np.array_equal(data.train_x[:6], cifar_files.images(6, 0))
    assert np.array_equal(data.train_x[6:], cifar_files.images(5, 1))
    assert np.array_equal(data.test_x, cifar_files.images(4, 2))
    assert data.train_y.tolist() == [0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5]
    assert data.classes[data.train_y[3]] == "cat"


def test_fine_and_coarse_classes_of_a_hundred(home: Path) -> None:
    cifar_files.write(home / "cache" / "cifar100", "cifar100")
    fine, coarse = (load(n, explicit=True) for n in ("cifar100", "cifar100_coarse"))
    assert fine.train_y.tolist() == [40, 41, 42, 43, 44, 45, 46]
    assert coarse.train_y.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert np.array_equal(fine.train_x, coarse.train_x)
    assert (fine.classes[40], coarse.classes[1]) == ("lamp", "fish")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda data: data[:-1000],
            r"is cut short: 5 records of 3,073 bytes need 15,365 bytes, found "
            r"14,365 \(4 records and 2,073 bytes\); remedy: ",
        ),
        (lambda data: b"", r"is cut short: .*found 0 \(0 records and 0 bytes\)"),
        (lambda data: data + b"x", r"has bytes after its end: .* \(5 records and 1 bytes\)"),
        (lambda data: data + bytes(10_000), r"has 25,365 bytes; at most 18,438 are read"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "has the right size but other contents"),
    ],
)
def test_damaged_files_are_named_with_their_numbers(home: Path, change, words: str) -> None:
    folder = cifar_files.write(home / "cache" / "cifar10", "cifar10")
    path = folder / "data_batch_2.bin"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError, match=f"data_batch_2.bin {words}"):
        load("cifar10", explicit=True)


def test_an_incomplete_folder_says_what_is_missing(home: Path, monkeypatch) -> None:
    (cifar_files.write(home / "env" / "cifar10", "cifar10") / "test_batch.bin").unlink()
    monkeypatch.setenv("DUALML_DATA", str(home / "env"))
    with pytest.raises(UserError, match=r"expected 3 files, found 2; missing: test_batch.bin"):
        load("cifar10", explicit=True)


def test_packed_record_files_do_not_count(home: Path, monkeypatch) -> None:
    path = cifar_files.write(home / "env" / "cifar10", "cifar10") / "test_batch.bin"
    path.rename(f"{path}.gz")
    monkeypatch.setenv("DUALML_DATA", str(home / "env"))
    with pytest.raises(UserError, match=r"expected 3 files, found 2; missing: test_batch.bin"):
        load("cifar10", explicit=True)


def test_get_takes_files_out_of_the_archive(home: Path) -> None:
    info = DATASETS["cifar100"]
    assert isinstance(info, RecordInfo)
    (home / "usb").mkdir()
    packed = cifar_files.archive(info, cifar_files.files("cifar100"))
    (home / "usb" / info.archive).write_bytes(packed)
    folder = locations.import_files(info, home / "usb")
    assert folder == home / "cache" / "cifar100"
    assert sorted(path.name for path in folder.iterdir()) == ["test.bin", "train.bin"]
    assert len(load("cifar100_coarse", explicit=True).train_y) == 7  # the same files


def test_archives_that_are_not_the_published_one(home: Path) -> None:
    info = cifar_files.info_for("cifar10")
    content = cifar_files.files("cifar10")
    packed = cifar_files.archive(info, content)
    path = Path("x.tar.gz")
    with pytest.raises(UserError, match=r"is cut short: expected [\d,]+ bytes, found 100"):
        archive.unpack_archive(info, path, packed[:100], "again")
    with pytest.raises(UserError, match=r"is another archive: expected sha256"):
        archive.unpack_archive(info, path, packed[:-1] + b"\1", "again")


def signed(
    content: dict[str, bytes], more: tuple[tarfile.TarInfo, ...] = ()
) -> tuple[RecordInfo, bytes]:
    """Return an archive and a registry entry that declares it the published one."""
    data = cifar_files.archive(cifar_files.info_for("cifar10"), content, more)
    return cifar_files.info_for("cifar10", data=data), data


def test_members_are_taken_one_by_one_within_limits() -> None:
    content = cifar_files.files("cifar10")
    link = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    rest = {name: data for name, data in content.items() if name != "data_batch_1.bin"}
    info, data = signed(rest, (link,))
    with pytest.raises(UserError, match=r"data_batch_1\.bin that is a link"):
        archive.unpack_archive(info, Path("a"), data, "again")
    info, data = signed(rest)
    with pytest.raises(UserError, match=r"has no data_batch_1.bin"):
        archive.unpack_archive(info, Path("a"), data, "again")
    info, data = signed({**content, "huge.txt": bytes(archive.MAX_SKIPPED_BYTES + 1)})
    with pytest.raises(UserError, match=r"has a member .*huge.txt of 1,048,577 bytes; at most"):
        archive.unpack_archive(info, Path("a"), data, "again")
    info, data = signed({f"{n}.txt": b"" for n in range(archive.MAX_MEMBERS)} | content)
    with pytest.raises(UserError, match="more than 64 members"):
        archive.unpack_archive(info, Path("a"), data, "again")
    elsewhere = tarfile.TarInfo("../../data_batch_1.bin")
    info, data = signed(content, (elsewhere,))
    assert archive.unpack_archive(info, Path("a"), data, "again") == content  # passed over


def test_download_brings_the_archive_and_checks_it(home: Path, monkeypatch) -> None:
    info = cifar_files.info_for("cifar10", mirrors=("http://one/", "http://two/"))
    good = cifar_files.archive(info, cifar_files.files("cifar10"))
    asked = []

    def transferred(mirror: str, name: str, most: int, seconds: float) -> bytes:
        asked.append((mirror, name, most))
        return good[:-1] + b"\1" if "one" in mirror else good

    monkeypatch.setattr(fetch, "probe_mirrors", lambda mirrors, name: {})
    monkeypatch.setattr(fetch, "fetch_with_retries", transferred)
    folder = fetch.download(info)
    assert asked == [(m, "cifar-10-binary.tar.gz", len(good)) for m in info.mirrors]
    assert cifar.read_images(info, folder, "")[1].tolist() == [0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5]
    monkeypatch.setenv("DUALML_OFFLINE", "1")
    (folder / "test_batch.bin").unlink()
    words = (
        "bring cifar-10-binary.tar.gz, or the files of it, and run `dualml data get cifar10 --from"
    )
    with pytest.raises(UserError, match=words):
        fetch.download(info)


# --- statistics -----------------------------------------------------------------------------------


def test_statistics_are_those_of_all_pixels() -> None:
    images = cifar_files.images(2_345)
    found = statistics(images)
    pixels = images / 255
    np.testing.assert_allclose(found.mean, pixels.mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(found.std, pixels.std(axis=(0, 2, 3)), rtol=1e-12)
    inside = pixels.std(axis=(2, 3)).mean(axis=0)
    np.testing.assert_allclose(found.image_std, inside, rtol=1e-12)
    assert found.mean[0] < found.mean[1] < found.mean[2]
    grey = statistics(images[:, 0])
    assert (grey.mean, grey.std) == (found.mean[:1], found.std[:1])


def test_a_channel_without_deviation_is_refused() -> None:
    images = cifar_files.images(3)
    images[:, 1] = 7
    with pytest.raises(UserError, match="channel 1 has the same value in all 3,072 pixels"):
        _ = statistics(images).constants


def test_data_stats_prints_what_was_measured(home: Path) -> None:
    cifar_files.write(home / "cache" / "cifar10", "cifar10")
    result = CliRunner().invoke(app, ["data", "stats", "cifar10", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    want = statistics(load("cifar10", explicit=True).train_x)
    assert found["mean"] == list(want.mean)
    assert found["std"] == list(want.std)
    assert found["published"] == [[0.4914, 0.4822, 0.4465], [0.247, 0.2435, 0.2616]]
    text = CliRunner().invoke(app, ["data", "stats", "cifar10"]).stdout
    assert f"{want.mean[2]:.6f}" in text
    assert "11 images, 11,264 pixels a channel" in text
    refused = CliRunner().invoke(app, ["data", "stats", "sentences"])
    assert "sentences is a text" in str(refused.exception)


# --- a user's own images --------------------------------------------------------------------------


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    folder = cifar_files.write(tmp_path / "mine", "cifar10")
    data = load(str(folder), explicit=True)
    assert (data.name, data.source, data.path) == ("mine", "file", str(folder.resolve()))
    assert data.classes == tuple(map(str, range(6)))
    assert data.mean == statistics(data.train_x).mean
    (folder / user_images.NAMES).write_text("a\nb\nc\nd\ne\nf\n\n")
    assert load(str(folder), explicit=True).classes == tuple("abcdef")
    (folder / user_images.NAMES).write_text("a\nb\n")
    with pytest.raises(UserError, match="labels from 0 to 5; expected 0 to 1"):
        load(str(folder), explicit=True)
    with (folder / "data_batch_2.bin").open("ab") as file:
        file.write(b"123")
    with pytest.raises(UserError, match=r"data_batch_2.bin is cut short: 6 records"):
        load(str(folder), explicit=True)
    for path in folder.glob("data_batch_*"):
        path.unlink()
    with pytest.raises(UserError, match=r"no data_batch_1\.bin"):
        load(str(folder), explicit=True)


def test_encode_takes_colour_images_alone() -> None:
    with pytest.raises(UserError, match=r"must be uint8 \(N, 3, 32, 32\); received float64"):
        cifar.encode_records(np.zeros((1, 3, 32, 32)), np.zeros(1))
