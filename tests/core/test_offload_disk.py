"""Files of offloaded tensors: written data is read back, errors have names, and no file is left."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dualml.common.errors import TrialError
from dualml.parallel.offload import disk, files
from dualml.parallel.offload.disk import DiskRecords
from dualml.parallel.offload.records import HostRecords, UnitRecords
from dualml.parallel.offload.traffic import Meter

LENGTHS = [5, 9, 2, 7]
BYTES = 4 * sum(LENGTHS)


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def records(kind: str, folder: Path, thread: ThreadPoolExecutor, meter: Meter) -> UnitRecords:
    if kind == "host":
        return HostRecords(LENGTHS, "float32")
    return DiskRecords(folder, LENGTHS, "float32", meter, thread if kind == "ahead" else None)


@pytest.mark.parametrize("kind", ["host", "disk", "ahead"])
def test_what_is_given_is_taken_again(
    kind: str, tmp_path: Path, thread: ThreadPoolExecutor
) -> None:
    """Two hundred updates, alternately in order and in reverse, each add their number."""
    meter = Meter()
    own = records(kind, tmp_path, thread, meter)
    for number in range(len(LENGTHS)):
        own.acquire(number)[...] = number
        own.release()
    rounds = 200
    for turn in range(rounds):
        order = list(range(len(LENGTHS)))[:: -1 if turn % 2 else 1]
        own.set_acquire_order(order)
        for number in order:
            array = own.acquire(number)
            assert len(array) == LENGTHS[number]
            assert (array == number + sum(range(turn))).all(), (turn, number)
            array += turn
            own.release()
    own.flush()
    if kind != "host":
        assert meter.current.written == (1 + rounds) * BYTES
        assert meter.current.read == (1 + rounds) * BYTES
        assert own.host == (2 if kind == "ahead" else 1) * 4 * max(LENGTHS)
    assert (own.disk or own.host) == BYTES
    own.close()
    own.close()


def test_looks_out_of_order_are_right(tmp_path: Path, thread: ThreadPoolExecutor) -> None:
    """Reads out of order are right: records that were prefetched and not used do no harm."""
    own = records("ahead", tmp_path, thread, Meter())
    for number in range(len(LENGTHS)):
        own.acquire(number)[...] = number
        own.release()
    own.set_acquire_order([0, 1, 2])
    for number in (0, 3, 1, 1, 2, 0):
        assert (own.acquire(number) == number).all()
    own.set_acquire_order([2, 3])
    assert (own.acquire(2) == 2).all()
    own.close()


def test_files_have_no_names(tmp_path: Path, thread: ThreadPoolExecutor) -> None:
    own = records("ahead", tmp_path, thread, Meter())
    assert os.fstat(own.scratch.file.fileno()).st_size == BYTES  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []
    own.close()


# --- what goes wrong ------------------------------------------------------------------------------


def failing(number: int) -> Any:
    def fail(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_full_disk_is_told_of_when_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", failing(errno.ENOSPC))
    with pytest.raises(TrialError) as told:
        DiskRecords(tmp_path, LENGTHS, "float32", Meter())
    assert str(told.value).startswith(f"offload needs a file of {BYTES} bytes in {tmp_path}: No ")
    assert "bytes free; make room, choose another folder with --out" in str(told.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("call", ["pwritev", "preadv"])
def test_an_error_of_the_thread_is_the_caller_s(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    thread: ThreadPoolExecutor,
    ahead: bool,
    call: str,
) -> None:
    own = records("ahead" if ahead else "disk", tmp_path, thread, Meter())
    number = errno.ENOSPC if call == "pwritev" else errno.EIO
    own.acquire(0)
    monkeypatch.setattr(os, call, failing(number))

    def use_records() -> None:
        if call == "pwritev":
            own.release()
            own.flush()
        own.acquire(1)

    with pytest.raises(TrialError, match=os.strerror(number)):
        use_records()
    own.close()


def test_a_write_that_failed_is_told_of_before_anything_else_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: ThreadPoolExecutor
) -> None:
    own = records("ahead", tmp_path, thread, Meter())
    own.acquire(0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", failing(errno.ENOSPC))
        own.release()
        thread.submit(lambda: None).result(10)
    with pytest.raises(TrialError, match="No space left"):
        own.acquire(1)
    own.close()


def test_nobody_waits_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: ThreadPoolExecutor
) -> None:
    own, hangs = records("ahead", tmp_path, thread, Meter()), threading.Event()
    monkeypatch.setattr(disk, "LIMIT_S", 0.05)
    thread.submit(hangs.wait, 10)
    try:
        with pytest.raises(TrialError, match=r"has not answered for 0\.05 s"):
            own.acquire(0)
    finally:
        hangs.set()
    assert own.hung
    own.close()


def test_a_limit_of_files_is_kept(tmp_path: Path) -> None:
    """The file-size limit (RLIMIT_FSIZE) is a real one, which the system enforces."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES - 4, hard))
    try:
        with pytest.raises(TrialError, match=rf"a file may have {BYTES - 4} bytes here \(ulimit"):
            DiskRecords(tmp_path, LENGTHS, "float32", Meter())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk is mounted by root alone")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("reserving", [True, False])
def test_a_disk_that_is_really_full(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, thread: ThreadPoolExecutor, reserving: bool
) -> None:
    """A disk that is really full fails at once where the file system reserves space, else at the
    write."""
    lengths = [1024] * 20  # of 4 KiB each
    if not reserving:
        monkeypatch.setattr(os, "posix_fallocate", failing(errno.EOPNOTSUPP))

    def fill() -> None:
        own = DiskRecords(small_disk, lengths, "float32", Meter(), thread)
        with contextlib.closing(own):
            for number in range(len(lengths)):
                own.acquire(number)[...] = 1
                own.release()
            own.flush()

    with pytest.raises(TrialError, match=r"No space left on device, [0-9,]+ bytes free; make room"):
        fill()
    assert list(small_disk.iterdir()) == []


@pytest.mark.parametrize("folder", ["/proc", "missing", "file"])
def test_a_folder_that_cannot_be_written_in(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrialError, match=r"offload needs a file of 92 bytes in .*; choose another"):
        files.Scratch(tmp_path / folder, BYTES)


def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from dualml.parallel.offload.files import "
        "Scratch;"
        f"s = Scratch(Path({str(tmp_path)!r}), 4096); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == -9
    assert list(tmp_path.iterdir()) == []
