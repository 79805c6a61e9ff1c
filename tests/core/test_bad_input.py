"""Input of excessive size or depth, or of a wrong type: a one-line error at the entry, and nothing
written."""

from __future__ import annotations

import gzip
import json
import os
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import TOML, dualml

from dualml.common.arrays import SMALL, read_npz
from dualml.common.errors import UserError
from dualml.common.files import MAX_TEXT_BYTES, read_json, read_toml
from dualml.common.parse import INTEGER_BOUND, MAX_DEPTH, MAX_TOML_CHARS, from_json, from_toml
from dualml.common.strict_model import MAX_NAME_CHARS
from dualml.experiment.data import idx
from dualml.experiment.data.locations import read_verified
from dualml.experiment.data.registry import IdxFile
from dualml.experiment.load import load

DIGITS, DEEP = "9" * 5000, "[" * 5000 + "]" * 5000


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TOML)
    return path


def refusal(words: tuple[object, ...], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one-line error of a command that is refused; the command runs in this process."""
    from dualml.interface.cli import main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["dualml", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
    shown = capsys.readouterr()
    assert ended.value.code == 2, shown
    assert shown.err.count("\n") == 1
    assert len(shown.err) < 2100
    return shown.err


def error_text(call: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(UserError) as caught:
        call(*arguments)
    text = str(caught.value)
    assert len(text) < 1000
    return text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DIGITS, "beyond 64 bits"),
        (str(2**63), "beyond 64 bits"),
        (f'{{"a": [0, {-(2**63)}]}}', "a.1: a whole number beyond 64 bits"),
        (DEEP, f"nested more than {MAX_DEPTH} deep"),
        ("[" * 40 + "]" * 40, f"nested more than {MAX_DEPTH} deep"),
        ('"\\ud800"', "not Unicode text"),
        ("NaN", "not a finite number"),
        ("1e999", "not a finite number"),
        ("[" + "0," * 5_000_001 + "0]", "more than 5,000,000 values"),
        ("{", "not JSON"),
    ],
)
def test_json_within_limits(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_json(text.encode())
    assert from_json(str(INTEGER_BOUND - 1).encode()) == INTEGER_BOUND - 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"a = {DIGITS}", "beyond 64 bits"),
        (f"a = {2**63}", "beyond 64 bits"),
        (f"a = {DEEP}", f"nested more than {MAX_DEPTH} deep"),
        (f"a = {'{b = ' * 5000}", f"nested more than {MAX_DEPTH} deep"),
        ("a." * 100_000 + "b = 1", f"nested more than {MAX_DEPTH} deep"),
        ('"a" . ' * 10_000 + "b = 1", f"nested more than {MAX_DEPTH} deep"),
        ("#" * (MAX_TOML_CHARS + 1), f"at most {MAX_TOML_CHARS:,}"),
        ("a = ", "Invalid value"),
    ],
)
def test_toml_within_limits(text: str, reason: str, tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(ValueError, match=reason):
        from_toml(text)
    path = tmp_path / "x.toml"
    path.write_text(text)
    assert reason in error_text(read_toml, path)
    assert time.monotonic() - begin < 5


def test_what_is_no_file_and_what_is_too_large_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is a pipe, not a file" in error_text(read_json, tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**13)
    assert f"at most {MAX_TEXT_BYTES:,} are read" in error_text(read_json, tmp_path / "sparse")


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        (f"arms.sgd.epochs={DIGITS}", "beyond 64 bits"),
        (f"arms.sgd.epochs={DEEP}", f"nested more than {MAX_DEPTH} deep"),
        (f"seeds=[{2**63}]", "beyond 64 bits"),
        ("a." * 5000 + "b=1", f"a key of 5,001 parts; at most {MAX_DEPTH}"),
        ("title.en=\udcff", "not Unicode text"),
        ("x" * 10_000, "KEY=VALUE"),
        ("arms.sgd.split.micro_batches=1000000000", "less than or equal to 4096"),
    ],
)
def test_overrides_within_limits(lab: Path, override: str, reason: str) -> None:
    def set_it() -> None:
        load(str(lab), overrides=[override, "arms.sgd.world_size=2"])

    assert reason in error_text(set_it)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("quick = 3", "[quick] must be a table; received 3"),
        ("[quick]\nsmall = 1", "[small] must be a table; received 1"),
        ("[quick]\nselect = [[]]", "quick.select must be a list of names"),
        ("[quick]\nselect = 1", "quick.select must be a list of names"),
    ],
)
def test_tables_that_are_none(tmp_path: Path, table: str, reason: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(f"{table}\n{TOML}" if "=" in table.splitlines()[0] else f"{TOML}\n{table}\n")
    assert reason in error_text(lambda: load(str(path), quick=True, small=True))


def test_seeds_and_names_that_no_folder_can_have(lab: Path, tmp_path: Path) -> None:
    assert "seeds.0" in error_text(lambda: load(str(lab), seeds=[10**30]))
    long = tmp_path / "long.toml"
    long.write_text(TOML.replace("arms.sgd", f"arms.{'x' * 300}"))
    assert f"300 characters; at most {MAX_NAME_CHARS}" in error_text(load, str(long))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("capabilities", "--backend", "numpy", "--ranks", "9" * 21), "beyond 64 bits"),
        (
            ("capabilities", "--backend", "numpy", "--ranks", "1000000"),
            "--ranks must be from 1 to 256",
        ),
        (("capabilities", "--backend", "numpy", "--ranks", "0"), "--ranks must be from 1 to 256"),
        (("compare", "a.py:A", "b.py:B", "--shape", "1000000,1000000"), "4,000,000,000,000 bytes"),
        (("compare", "a.py:A", "b.py:B", "--shape", "9" * 5000), "--shape takes lengths"),
        (("compare", "a.py:A", "b.py:B", "--shape", ",".join("1" * 40)), "--shape takes lengths"),
        (("compare", "a.py:A", "b.py:B", "--shape", "4", "--margin", "nan"), "finite number"),
        (("compare", "a.py:A", "b.py:B", "--shape", "4", "--margin", "-1"), "above 0"),
        (("compare", "a.py:A", "b.py:B", "--shape", "4", "--steps", "0"), "received steps=0"),
        (("compare", "a.py:A", "b.py:B", "--shape", "4", "--timeout", "inf"), "finite number"),
        (("compare", ".", ".", "--steps", "0"), "--steps: of models"),
        (("compare", ".", ".", "--margin", "nan"), "finite number"),
        (("simulate", "--size", "1e400"), "--size"),
        (("simulate", "--alpha", "1e999s"), "--alpha"),
        (("simulate", "--slow-compute", "nan"), "finite number"),
        (("run", "lab1", "--seed", "9" * 30), "seeds.0"),
        (("run", "lab1", "--seed", DIGITS), "--seed takes whole numbers"),
        (("run", "lab1", "--device", ""), "unknown device ''"),
        (("run", "lab1", "--device", f"cuda:{DIGITS}"), "take an index"),
        (("run", "lab1", "--threads", "99999"), "--threads must be from 0 to 9999"),
        (("run", "lab1\n\x1b[31m"), "unknown experiment 'lab1\\n\\x1b[31m'"),
    ],
)
def test_options_within_limits(
    words: tuple[str, ...],
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("--backend", "numpy", "--out", "out") if words[0] == "run" else ()
    assert reason in refusal((*words, *asked), capsys)
    assert not list(tmp_path.iterdir())


def test_a_wrong_environment_variable_is_one_line(
    lab: Path, clean_environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in ("abc", "nan", "-1"):
        clean_environ.setenv("DUALML_CHECKPOINT_S", value)
        words = ("run", lab, "--backend", "numpy", "--out", lab.parent / "out")
        assert "DUALML_CHECKPOINT_S must be seconds" in refusal(words, capsys)
    from dualml.common.machine import default_threads

    for value in ("²", "9" * 5000, "0"):
        clean_environ.setenv("OMP_NUM_THREADS", value)
        assert 1 <= default_threads() < 9999


def packed_idx(shape: tuple[int, ...], zeros: int) -> bytes:
    head = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
    return gzip.compress(head + bytes(zeros), 9)


def test_a_gzip_bomb_is_unpacked_as_far_as_its_header_goes(tmp_path: Path) -> None:
    path, known = tmp_path / "images.gz", IdxFile("images", (10, 28, 28), "sha256:0")
    path.write_bytes(packed_idx((10, 28, 28), 100_000_000))
    begin = time.monotonic()
    assert len(idx.read_unpacked(path)) == 16 + 7840 + 1
    assert "has bytes after its end: 10 × 28 × 28 needs 7,856" in error_text(idx.read, path)
    assert "has bytes after its end" in error_text(read_verified, path, known, "")
    path.write_bytes(packed_idx((2**32 - 1,) * 3, 100_000_000))
    assert "its header needs more than it can hold" in error_text(idx.read, path)
    assert "has shape (4294967295, 4294967295, 4294967295)" in error_text(
        read_verified, path, known, ""
    )
    assert time.monotonic() - begin < 10
    with path.open("wb") as file:
        file.truncate(10**12)
    assert "1,000,000,000,000 bytes" in error_text(read_verified, path, known, "")
    path.write_bytes(idx.encode(np.zeros((1,) * 32, np.uint8)))
    assert idx.read(path.rename(tmp_path / "plain")).ndim == 32
    path.write_bytes(struct.pack(">HBB33I", 0, 8, 33, *[1] * 33) + b"\0")
    assert "33 dimensions" in error_text(idx.read, path.rename(tmp_path / "plain"))


def npz(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(f"{name}.npy", content)
    return path


def npy(shape: str, content: bytes, kind: str = "<f8") -> bytes:
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + content


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            npy("(1000000000000,)", b"\0" * 8),
            "x.npy of 8,000,000,000,000 bytes by its header has 8",
        ),
        (npy("(-1,)", b""), "by its header"),
        (npy("(-1, -1)", b"\0" * 8), "by its header"),
        (npy("(1,)", b"\0" * 16), "by its header has 16"),
        (npy("(1,)", b"\0" * 8, "|O"), "allow_pickle"),
        (npy(DIGITS, b""), ""),
        (npy(DEEP, b""), ""),
        (b"", ""),
        (b"x" * 100, ""),
    ],
)
def test_an_archive_whose_header_lies(tmp_path: Path, content: bytes, reason: str) -> None:
    path = npz(tmp_path / "x.npz", x=content)
    assert f"{path}: not readable: " in error_text(read_npz, path)
    assert reason in error_text(read_npz, path)


def test_an_archive_that_unpacks_to_too_much(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros(SMALL // 8 + 1))
    begin = time.monotonic()
    assert "bytes unpack to 268,4" in error_text(read_npz, path)
    assert time.monotonic() - begin < 1
    np.savez_compressed(path, x=np.arange(6.0).reshape(2, 3), y=np.array("text"))
    arrays = read_npz(path)
    assert arrays["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert str(arrays["y"]) == "text"


@pytest.mark.whole
def test_a_path_that_is_not_unicode_is_written_and_printed(lab: Path, tmp_path: Path) -> None:
    out = os.fsdecode(bytes(tmp_path) + b"/o\xff")
    for _ in range(2):
        done = dualml("run", lab, "--backend", "numpy", "--arm", "gd", "--out", out)
        assert done.returncode == 0, done.stderr
        assert "o\\udcff" in (Path(out) / "report.md").read_text("utf-8")
        out += "2"
    assert dualml("report", out[:-1], out[:-2]).returncode == 0
    words = os.fsdecode(bytes(tmp_path) + b"/t\xff.txt")
    Path(words).write_text("a b c d e f\n" * 200)
    text = ("--set", "model=rnn_lm", "--set", "data.length=4")
    done = dualml("run", lab, "--backend", "numpy", "--data", words, "--out", out + "x", *text)
    assert done.returncode == 2
    assert "its path is not Unicode text" in done.stderr


@pytest.mark.whole
def test_signs_of_mathematics_in_names_are_signs(lab: Path, tmp_path: Path) -> None:
    lab.write_text(
        TOML.replace("Tiny", "$x_1^{$ \\\\frac").replace(
            "[arms.sgd]", ('[arms.sgd]\ngroup = "$a_{"')
        )
    )
    done = dualml("run", lab, "--backend", "numpy", "--arm", "all", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "$x_1^{$" in (tmp_path / "out/report.html").read_text("utf-8")


def test_a_rank_that_waits_for_another_folder_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dualml.launch import external

    monkeypatch.setattr(external, "WORD_S", 0.01)
    assert error_text(external.wait_for_announcement, tmp_path, 0, 0.5).endswith(
        external.SAME_FOLDER_HINT
    )
    shown = capsys.readouterr().err
    assert f"rank 0 announced nothing in {tmp_path / '.sessions'} for 0.01 s" in shown
    assert shown.count("\n") == 1
    error_text(
        external.wait_for_announcement, tmp_path, 1, 0.2
    )  # after the first one the folder is right
    assert not capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_rank_whose_log_is_full_still_says_why_it_failed(tmp_path: Path) -> None:
    code = (
        "from dualml.launch.child import report_to_owner\n"
        "def fail(emit):\n"
        "    with open('/dev/full', 'w') as file:\n"
        "        file.write('x')\n"
        "with report_to_owner() as emit: fail(emit)\n"
    )
    pipe = subprocess.PIPE  # its input stays open: it ends with its owner
    with (
        open("/dev/full", "w") as full,
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=full
        ) as rank,
    ):
        assert rank.stdout is not None
        result = json.loads(rank.stdout.readlines()[-1])
    assert result["status"] == "failed"
    assert "no space left on the device" in result["reason"]


def test_ranks_without_room_name_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    from dualml.launch import ranks
    from dualml.launch.supervise import GroupResult

    ended = GroupResult(1, None, 0, {})
    assert (
        str(ranks.failure_error(ended, tmp_path))
        == "rank 0: ended with exit code 1 without a result"
    )
    monkeypatch.setattr(ranks.shutil, "disk_usage", lambda folder: SimpleNamespace(free=512))
    assert (
        f"{tmp_path} has 512 bytes left: free some space, or name another folder with TMPDIR"
        in (str(ranks.failure_error(ended, tmp_path)))
    )


def test_a_grid_that_names_more_micro_batches_than_there_is_memory(tmp_path: Path) -> None:
    from dualml.planning.cost.pipeline_request import read_grid

    path = tmp_path / "grid.json"
    path.write_text(json.dumps({"rows": [["0F0", "0B0"]], "micro_batches": 2**62}))
    assert "0F1 is missing on the row of rank 0 and 9223372036854775805 more" in error_text(
        read_grid, path
    )
    path.write_text(json.dumps({"rows": [[f"0F{DIGITS}"]]}))
    assert "is no action" in error_text(read_grid, path)
    path.write_text(DEEP)
    assert f"nested more than {MAX_DEPTH} deep" in error_text(read_grid, path)
