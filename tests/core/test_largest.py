"""The largest model under a limit: the search, the limit that the system enforces, and the
output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import page_parts
import pytest
from command import dualml
from fake_run import make_run

from dualml import backend
from dualml.common.errors import UserError
from dualml.common.words import Messages
from dualml.experiment.store.largest import LARGEST, SizeAttempt
from dualml.experiment.store.load import load
from dualml.interface.cli import largest as command
from dualml.planning.planner.zoo import shape_by_name
from dualml.report.topics import largest as topic
from dualml.runner.largest import search
from dualml.runner.largest.limit import is_out_of_memory
from dualml.runner.largest.search import SizeSearch, find_largest

SET = ["sizes.width=32", "data.words=100"]
SHAPE = shape_by_name("gpt", SET)
ARM = {"model": "gpt", "optimizer": {"name": "adam", "lr": 0.001}, "batch_size": 8, "updates": 2}
#: A process that may allocate 64 MiB more than it has, and its reaction.
PROGRAM = """
import numpy as np
from dualml.runner.largest.limit import data_bytes, limit_memory
base = data_bytes()
with limit_memory(base, 64 * 2**20):
    held = np.ones(2**20)
    {}
print("fits", held[0])
"""


@pytest.mark.parametrize("top", [0, 1, 2, 13, 40, 41])
@pytest.mark.parametrize("start", [0, 1, 12, 13, 14, 41, 500])
def test_bisection_finds_the_last_that_fits(top: int, start: int) -> None:
    tries: list[int] = []

    def fits(n: int) -> bool:
        assert 1 <= n <= 41
        tries.append(n)
        return n <= top

    assert find_largest(fits, start, 41) == top
    assert top == 41 or top + 1 in tries
    assert top == 0 or top in tries
    assert len(tries) == len(set(tries)) <= 12


def limited(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(line)], capture_output=True, text=True, check=False
    )


def test_the_limit_is_enforced() -> None:
    assert "fits 1.0" in limited("more = np.ones(4 * 2**20)").stdout
    done = limited("more = np.ones(9 * 2**20)")
    assert "OutOfMemory: out of memory: the limit of 67,108,864 bytes is reached" in done.stderr
    assert "Unable to allocate" in done.stderr
    assert "ZeroDivisionError" in limited("1 / 0").stderr


def test_what_is_there_before_counts() -> None:
    program = PROGRAM.replace(
        "with limit_memory(", "first = np.ones(10 * 2**20)\nwith limit_memory("
    )
    done = subprocess.run(
        [sys.executable, "-c", program.format("pass")], capture_output=True, text=True, check=False
    )
    assert "before the first update" in done.stderr


def test_words_of_allocators() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    assert is_out_of_memory(RuntimeError("rank 1 was ended by SIGSEGV"))
    assert not is_out_of_memory(RuntimeError("shapes differ"))


def test_the_prediction_grows_with_the_blocks_and_shrinks_with_zero() -> None:
    plain, sharded = (
        SizeSearch("torch", SHAPE, {**ARM, "world_size": 2, "zero": zero}, 10**7) for zero in (0, 3)
    )
    assert plain.predict_bytes(4) > plain.predict_bytes(3) > sharded.predict_bytes(3)
    layer = plain.predict_bytes(4) - plain.predict_bytes(3)
    assert layer == 20 * SHAPE.layer_parameters + 4 * 32 * 4 * 16 * 32 + 4 * 32 * 4 * (4 + 4)


def rows(
    monkeypatch: pytest.MonkeyPatch, top: dict[int, int], out: Path | None = None
) -> list[dict[str, object]]:
    """Return the result rows when ``top`` blocks fit per ZeRO stage, after running the command with
    ``out``."""

    def try_setting(setting: SizeSearch, blocks: int) -> SizeAttempt:
        if blocks > top[setting.arm["zero"]]:
            return SizeAttempt(blocks=blocks, fits=False, reason="rank 1: out of memory: the limit")
        return SizeAttempt(blocks=blocks, fits=True, losses=[4.5, 4.0], held_bytes=5, step_s=0.5)

    monkeypatch.setattr(search, "try_size", try_setting)
    if out is not None:
        monkeypatch.setattr(
            backend, "select_backends", lambda name: [SimpleNamespace(name="torch")]
        )
        command.largest("gpt", "1MiB", zero=",".join(map(str, top)), out=out, set_=SET)
    options = {
        "ranks": 2,
        "zero": list(top),
        "recompute": ["none"],
        "batch": 8,
        "updates": 2,
        "limit": 2**20,
    }
    return [
        search.search_largest(s).describe() for s in search.iter_searches(SHAPE, options, ["torch"])
    ]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_report_has_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lang: str) -> None:
    make_run(tmp_path)
    run = load([tmp_path])
    assert not topic.rows(run)
    assert not list(topic.evidence(run, Messages(lang)))
    record = LARGEST.make_record({"rows": rows(monkeypatch, {0: 4, 3: 9})})
    LARGEST.write(tmp_path, record)
    (table,) = topic.evidence(run, Messages(lang))
    assert [row[5] for row in table.rows] == ["4", "9"]
    (said,) = topic.TOPIC.findings(run, Messages(lang))
    ratio = record.rows[1].parameters / record.rows[0].parameters
    assert f"{ratio:.3g}" in said.text
    assert page_parts.findings_by_key(tmp_path, lang)


def test_not_one_block_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="with one block does not fit 1,048,576 bytes on torch"):
        rows(monkeypatch, {0: 0})


def test_a_setting_that_fails_leaves_what_was_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="one block does not fit"):
        rows(monkeypatch, {0: 0, 3: 2}, tmp_path / "out")
    (row,) = LARGEST.read(tmp_path / "out").rows
    assert (row.zero, row.blocks) == (3, 2)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("gpt", "--memory", "1MB", "--backend", "numpy"), "threads of one process"),
        (("gpt", "--memory", "1MB", "--zero", "4"), "write some of 0,1,2,3"),
        (("gpt", "--memory", "1MB", "--ranks", "1", "--zero", "3"), "use --ranks 2 or more"),
        (("gpt", "--memory", "1MB", "--ranks", "0"), "--ranks is from 1"),
        (("gpt", "--memory", "1MB", "--batch", "7"), "--batch 7 does not divide"),
        (("gpt", "--memory", "x"), "--memory"),
        (("llama-7b", "--memory", "1MB", "--batch", "0"), "--batch is from 1"),
        (("gptt", "--memory", "1MB"), "did you mean 'gpt'"),
    ],
)
def test_wrong_options_are_one_line(words: tuple[str, ...], reason: str) -> None:
    done = dualml("largest", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
