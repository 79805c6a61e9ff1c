"""Several writers and readers of one checkpoint folder at the same time."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_cases import save_on

from dualml.common.errors import UserError
from dualml.runner.checkpoint import Slice, manifest, open_checkpoint, saving
from dualml.runner.checkpoint.manifest import lock_folder

FORK = multiprocessing.get_context("fork")


def single_slice(rank: int) -> list[Slice]:
    return [Slice.full("x", np.arange(4.0))]


def test_two_jobs_in_one_folder(tmp_path: Path) -> None:
    save_on(2, single_slice, tmp_path, step=1)
    with (
        lock_folder(tmp_path),
        pytest.raises(UserError, match=r"another process saves into .* step 1"),
    ):
        save_on(2, single_slice, tmp_path, step=2)
    assert open_checkpoint(tmp_path).step == 1
    save_on(2, single_slice, tmp_path, step=2)
    assert open_checkpoint(tmp_path).step == 2


def test_files_that_another_takes_away_are_noticed_before_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that another writer removes are noticed before the manifest is written, as on a disk
    without locks."""
    save_on(2, single_slice, tmp_path, step=1)
    commit = manifest.commit

    def late_commit(place: Path, *given: Any, **words: Any) -> None:
        manifest.make_step_folder(tmp_path, 2)
        commit(place, *given, **words)

    monkeypatch.setattr(saving, "commit", late_commit)
    with pytest.raises(UserError, match="is not as it was written: another process has changed"):
        save_on(2, single_slice, tmp_path, step=2)
    left = open_checkpoint(tmp_path)
    left.verify()
    assert left.step == 1


def test_a_checkpoint_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    save_on(1, single_slice, tmp_path, step=1)
    for step in (2, 2, 2):  # a file of the same name is another one, too
        before = open_checkpoint(tmp_path)
        save_on(1, single_slice, tmp_path, step=step)
        with pytest.raises(UserError, match="was replaced while it was read; open it again"):
            before.read("x")
    with pytest.raises(UserError, match="was replaced while it was read; open it again"):
        before.verify()


def test_two_jobs_that_save_all_the_time_leave_a_whole_checkpoint(tmp_path: Path) -> None:
    def job(number: int) -> None:
        for _ in range(15):
            try:
                save_on(2, lambda rank: [Slice.full("x", np.full(20_000, number))], tmp_path)
            except UserError as error:
                assert "another process saves into" in str(error)  # noqa: PT017 - in a child

    jobs = [FORK.Process(target=job, args=(number,)) for number in (1, 2)]
    for process in jobs:
        process.start()
    for process in jobs:
        process.join(60)
    assert [process.exitcode for process in jobs] == [0, 0]
    open_checkpoint(tmp_path).verify()
