"""Killed writers and full disks: the last good checkpoint survives."""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_cases import arrays, assert_equal, files_of, on_mesh, save_on

from dualml.common.errors import UserError
from dualml.runner.checkpoint import Slice, convert, manifest, open_checkpoint, saving, writing

FORK = multiprocessing.get_context("fork")
Stop = Callable[[], None]


def in_the_middle_of_a_file(patch: pytest.MonkeyPatch, stop: Stop) -> None:
    contents = writing.iter_contents

    def stop_after_two(tensors: Any) -> Iterator[memoryview]:
        for number, piece in enumerate(contents(tensors)):
            yield piece
            if number == 1:
                stop()

    patch.setattr(writing, "iter_contents", stop_after_two)


def before_the_manifest(patch: pytest.MonkeyPatch, stop: Stop) -> None:
    patch.setattr(saving, "commit", lambda *a, **k: stop())


def before_the_manifest_is_renamed(patch: pytest.MonkeyPatch, stop: Stop) -> None:
    patch.setattr(manifest.os, "replace", lambda *a: stop())


MOMENTS = (in_the_middle_of_a_file, before_the_manifest, before_the_manifest_is_renamed)


def killed(work: Callable[[], None], moment: Any) -> None:
    """Run ``work`` in a process and kill it at the given moment."""
    reached = FORK.Event()

    def stop() -> None:
        reached.set()
        time.sleep(60)

    def child() -> None:
        with pytest.MonkeyPatch.context() as patch:
            moment(patch, stop)
            work()

    process = FORK.Process(target=child)
    process.start()
    try:
        assert reached.wait(30), "the moment never came"
    finally:
        process.kill()
        process.join(10)
    assert process.exitcode == -9


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_writer_that_is_killed_leaves_the_last_good_one(moment: Any, tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    save_on(4, lambda rank: on_mesh(rank, arrays(1)), folder, step=1)
    killed(lambda: save_on(4, lambda r: on_mesh(r, arrays(2)), folder, step=2), moment)
    left = open_checkpoint(folder)
    assert left.step == 1
    left.verify()
    assert_equal(left, arrays(1))
    assert any("step00000002/" in name for name in files_of(folder)), "it had begun"
    save_on(4, lambda rank: on_mesh(rank, arrays(3)), folder, step=3)
    assert_equal(open_checkpoint(folder), arrays(3))
    assert {name.partition("/")[0] for name in files_of(folder)} == {
        "checkpoint.json",
        "step00000003",
    }


def test_one_that_is_killed_after_the_manifest_leaves_the_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    save_on(4, lambda rank: on_mesh(rank, arrays(1)), folder, step=1)

    def moment(patch: pytest.MonkeyPatch, stop: Stop) -> None:
        forget, calls = manifest.remove_step_folders, []

        def second(*given: Any) -> None:
            calls.append(given)
            stop() if len(calls) == 2 else forget(*given)

        patch.setattr(manifest, "remove_step_folders", second)

    killed(lambda: save_on(4, lambda r: on_mesh(r, arrays(2)), folder, step=2), moment)
    assert_equal(open_checkpoint(folder), arrays(2))


@pytest.mark.parametrize("to", ["dualml", "safetensors", "dcp", "npz"])
def test_a_conversion_that_is_killed_leaves_nothing_under_its_name(to: str, tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    big = np.arange(3 * convert.READ_CHUNK_BYTES // 8, dtype=np.float64)
    save_on(1, lambda rank: [Slice.full("x", big)], source)

    def moment(patch: pytest.MonkeyPatch, stop: Stop) -> None:
        pieces = convert.StoredTensor.iter_pieces

        def stop_after_two(self: Any, *given: Any) -> Iterator[Any]:
            for number, piece in enumerate(pieces(self, *given)):
                yield piece
                if number == 1:
                    stop()

        patch.setattr(convert.StoredTensor, "iter_pieces", stop_after_two)

    killed(lambda: print(convert.convert(open_checkpoint(source), target, to)), moment)
    assert not target.exists()
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".b.")], "it had begun"
    convert.convert(open_checkpoint(source), target, to)
    final = target
    assert open_checkpoint(final).read("x").tobytes() == big.tobytes()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".b.")]


def limited(work: Callable[[], None], nbytes: int) -> str:
    """Return the output of a process whose files are limited to so many bytes."""
    ours, theirs = FORK.Pipe(duplex=False)

    def child() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))
        try:
            work()
            theirs.send("it ended well")
        except UserError as error:
            theirs.send(str(error))

    process = FORK.Process(target=child)
    process.start()
    try:
        assert ours.poll(30)
        return str(ours.recv())
    finally:
        process.join(10)


def test_no_room_while_saving_is_told_on_every_rank(tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    save_on(4, lambda rank: on_mesh(rank, arrays(1)), folder, step=1)
    kept = files_of(folder)

    def big(rank: int) -> list[Slice]:  # of 4 ranks one has too much
        return [Slice.full(f"w{rank}", np.zeros(30_000 if rank == 2 else 10))]

    said = limited(lambda: save_on(4, big, folder, step=2), 100_000)
    assert said.startswith(f"rank 2: {folder}"), said
    assert "bytes are free: free some space, or raise the limit (ulimit -f), or name" in said
    assert f"the checkpoint of step 1 in {folder} is as it was" in said
    assert files_of(folder) == kept
    assert_equal(open_checkpoint(folder), arrays(1))


@pytest.mark.parametrize("to", ["dualml", "safetensors", "dcp", "npz"])
def test_no_room_while_converting_leaves_nothing(to: str, tmp_path: Path) -> None:
    save_on(1, lambda rank: [Slice.full("x", np.zeros(30_000))], tmp_path / "a")
    said = limited(
        lambda: print(convert.convert(open_checkpoint(tmp_path / "a"), tmp_path / "b", to)), 100_000
    )
    assert "bytes are free: free some space" in said
    assert "nothing is left of it" in said
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_too_little_room_is_told_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = {"x": np.zeros(1000)}
    save_on(1, lambda rank: [Slice.full("x", given["x"])], tmp_path / "a")
    usage = shutil.disk_usage(tmp_path)._replace(free=5000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(UserError, match=r"73,536 bytes are to be written and 5,000 are free"):
        convert.convert(open_checkpoint(tmp_path / "a"), tmp_path / "b")
    with pytest.raises(UserError, match=r"8,000 bytes are to be written and 5,000 .*step 10"):
        save_on(2, lambda rank: [Slice.full("x", given["x"])], tmp_path / "a", step=20)
    assert_equal(open_checkpoint(tmp_path / "a"), given)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    done = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, timeout=10
    )
    if not done or done.returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True, timeout=10)


def test_a_disk_that_is_really_full(monkeypatch: pytest.MonkeyPatch, small_disk: Path) -> None:
    monkeypatch.setattr(saving, "check_free_space", lambda folder, nbytes: None)
    monkeypatch.setattr(convert, "check_free_space", lambda folder, nbytes: None)
    folder = small_disk / "ckpt"
    save_on(4, lambda rank: on_mesh(rank, arrays(1)), folder, step=1)
    for _ in range(3):  # what failed is removed, and there is room for it again
        with pytest.raises(UserError, match=r"No space left on device; [\d,]+ bytes are free"):
            save_on(2, lambda r: [Slice.full(f"w{r}", np.zeros(80_000))], folder, step=2)
        assert_equal(open_checkpoint(folder), arrays(1))
    save_on(2, lambda r: [Slice.full(f"w{r}", np.zeros(40_000))], folder, step=3)
    with pytest.raises(UserError, match="No space left on device"):
        convert.convert(open_checkpoint(folder), small_disk / "b.npz")
    assert [path.name for path in small_disk.iterdir()] == ["ckpt"]
