"""Files made by others, and output paths named by a user: pipes, devices, links, odd text."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import dualml
from safetensors.numpy import save_file

from dualml.common import arrays, outputs
from dualml.common.errors import NotAFile, UserError, escape_unprintable
from dualml.common.files import (
    is_special,
    open_to_append,
    open_to_read,
    read_bytes,
    read_json,
    read_text,
    read_toml,
    write_bytes,
    write_json,
    write_text,
)
from dualml.experiment.data.text import read_text_file as read_words
from dualml.experiment.store.best import read_best
from dualml.experiment.store.checkpoint import load_checkpoint
from dualml.experiment.store.metrics_tail import MetricsTail
from dualml.experiment.store.records import RecordWriter, read_records
from dualml.experiment.store.usage import last_samples, read_usage
from dualml.interface.cli.output import check_streams
from dualml.launch.process import Launch
from dualml.launch.supervise import last_lines
from dualml.runner.checkpoint import open_checkpoint

#: Things that may be in a folder in place of a file.
ODD = ("pipe", "socket", "loop", "folder", "nowhere", "device")


def make_special(kind: str, path: Path) -> None:
    """Create something that is not a regular file."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as door:
            here = os.getcwd()
            os.chdir(path.parent)  # an address has at most 108 bytes
            try:
                door.bind(path.name)
            finally:
                os.chdir(here)
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "folder":
        path.mkdir()
    elif kind == "nowhere":
        path.symlink_to("missing/file")
    else:
        path.symlink_to("/dev/zero")


READERS: dict[str, Callable[[Path], object]] = {
    "x.json": read_json,
    "x.toml": read_toml,
    "x.txt": read_words,
    "x.npz": arrays.read_npz,
    "x.npy": arrays.read_npy,
    "x.safetensors": arrays.read_tensors,
    "model.safetensors": open_checkpoint,
    "model.npz": open_checkpoint,
    "rank0.jsonl": lambda path: read_records(path.parent),
    "best.safetensors": lambda path: read_best(path.parent),
    "checkpoint.safetensors": lambda path: load_checkpoint(path.parent, 0),
}


def call_within(call: Callable[[], object], seconds: float = 10.0) -> Any:
    """Return what a call returns or raises within so many seconds."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(call())
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert result, "it waits"
    return result[0]


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", READERS)
def test_a_reader_opens_nothing_but_files(tmp_path: Path, name: str, kind: str) -> None:
    make_special(kind, tmp_path / name)
    answer = call_within(lambda: READERS[name](tmp_path / name))
    missing = kind in ("nowhere", "loop")  # as where there is no file
    assert isinstance(answer, UserError | OSError) or (missing and not answer), answer


@pytest.mark.parametrize("kind", ODD)
def test_records_that_grow_are_read_from_files_alone(tmp_path: Path, kind: str) -> None:
    make_special(kind, tmp_path / "rank0.jsonl")
    make_special(kind, tmp_path / "rank0.usage.jsonl")
    assert call_within(MetricsTail(tmp_path).poll) is False
    assert call_within(lambda: read_usage(tmp_path, 0)) == []
    assert call_within(lambda: last_samples(tmp_path / "rank0.usage.jsonl")) == []


@pytest.mark.parametrize("kind", ODD)
def test_records_are_appended_to_files_alone(tmp_path: Path, kind: str) -> None:
    make_special(kind, tmp_path / "rank0.jsonl")
    assert isinstance(call_within(lambda: RecordWriter(tmp_path)), OSError)
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "rank1.jsonl").symlink_to("mine")
    with pytest.raises(NotAFile, match="is a link"):
        open_to_append(tmp_path / "rank1.jsonl")
    assert (tmp_path / "mine").read_text() == "kept"


def test_links_are_followed_unless_they_are_not_wanted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    (tmp_path / "link").symlink_to("file")
    with open_to_read(tmp_path / "link") as file:
        assert file.read() == b"here"
    with pytest.raises(NotAFile, match="is a link"):
        open_to_read(tmp_path / "link", follow_links=False)
    with open_to_read(tmp_path / "file") as file:
        assert not os.get_inheritable(file.fileno())


def test_what_is_exchanged_while_it_is_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_text("here")
    before = os.stat(path)
    path.unlink()
    os.mkfifo(path)
    with monkeypatch.context() as patch:
        patch.setattr("dualml.common.files.os.stat", lambda *_, **__: before)
        answer = call_within(lambda: open_to_read(path))
    assert isinstance(answer, NotAFile)


def test_sizes_are_bounded_also_of_files_that_do_not_tell(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_bytes(tmp_path / "x", 5) == b"12345"
    for path, most in ((tmp_path / "x", 4), (Path("/proc/self/status"), 10)):
        with pytest.raises(UserError, match=f"at most {most} are read"):
            read_bytes(path, most)
    assert "Threads" in read_text(Path("/proc/self/status"))


# --- writing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_nothing_but_a_file_is_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "report.html"
    make_special(kind, path)
    with pytest.raises(NotAFile, match=f"is a {kind}, not a file"):
        write_bytes(path, b"x")
    assert is_special(path)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_link_to_a_file_is_replaced_and_its_target_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "report.html").symlink_to("mine")
    write_bytes(tmp_path / "report.html", b"new")
    assert (tmp_path / "mine").read_text() == "kept"
    assert not (tmp_path / "report.html").is_symlink()


def test_a_link_in_place_of_the_half_written_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    (tmp_path / f".x.{os.getpid()}").symlink_to("mine")
    write_bytes(tmp_path / "x", b"new")
    assert (tmp_path / "mine").read_text() == "kept"
    assert (tmp_path / "x").read_bytes() == b"new"


def test_a_mode_is_that_of_the_file_from_its_first_byte(tmp_path: Path) -> None:
    write_json(tmp_path / "x", {}, mode=0o600)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


def test_an_unpaired_surrogate_is_written_as_its_escape(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"why \udcff": "a \ud800 b"})
    assert read_json(tmp_path / "x.json") == {"why \\udcff": "a \\ud800 b"}
    write_text(tmp_path / "x.txt", "a \ud800 你")
    assert read_text(tmp_path / "x.txt") == "a \\ud800 你"


def test_a_device_that_a_user_names_is_written_into_and_stays(tmp_path: Path) -> None:
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    outputs.write_output(link, b"gone")
    assert link.is_symlink()
    assert link.is_char_device()


def test_a_pipe_that_a_user_names_is_written_into(tmp_path: Path) -> None:
    path, content = tmp_path / "pipe", b"much" * 100_000
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    read: list[bytes] = []
    reader.start()
    outputs.write_output(path, content)
    reader.join(10)
    assert read == [content]
    assert path.is_fifo()


def test_a_pipe_without_a_reader_is_given_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    answer = call_within(lambda: outputs.write_output(tmp_path / "pipe", b"x", seconds=0.2))
    assert "nobody reads this pipe" in str(answer)


def test_what_a_user_names_as_standard_output_comes_there_in_order(tmp_path: Path) -> None:
    link = tmp_path / "stdout"
    link.symlink_to("/proc/self/fd/1")
    code = (
        "import sys; from pathlib import Path; from dualml.common.outputs import write_output; "
        "print('first'); write_output(Path(sys.argv[1]), b'second\\n'); print('third')"
    )
    for name in ("-", str(link), "/dev/stdout"):
        with (tmp_path / "out").open("w") as out:
            subprocess.run([sys.executable, "-c", code, name], stdout=out, check=True, timeout=60)
        assert (tmp_path / "out").read_text() == "first\nsecond\nthird\n"
    assert link.is_symlink()
    assert not Path("-").exists()


def test_one_thing_goes_to_standard_output() -> None:
    assert check_streams(False, html=None, markdown=Path("-"))
    assert not check_streams(True, html=Path("x"), markdown=None)
    for json_, html in ((True, None), (False, Path("-"))):
        with pytest.raises(UserError, match="both go to standard output"):
            check_streams(json_, html=html, markdown=Path("-"))


# --- terminals ----------------------------------------------------------------------------------


def test_what_would_steer_a_terminal_becomes_an_escape() -> None:
    assert escape_unprintable("a\x1b[2J\x9b\u202eb\n") == "a\\x1b[2J\\x9b\\u202eb\\n"
    assert escape_unprintable("a\tb\nc\r", "\n\t") == "a\tb\nc\\r"
    assert escape_unprintable("学生\u3000é \\ '") == "学生\u3000é \\ '"
    assert escape_unprintable("\ud800") == "\\ud800"


def test_names_and_texts_of_a_checkpoint_steer_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"w\x1b]0;title\x07": np.zeros(2, np.float32)}, path, {"note\u202e": "\x1b[2J"})
    for more in ([], ["--json"]):
        done = dualml("checkpoint", "show", path, *more)
        assert done.returncode == 0, done.stderr
        assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout)


def test_json_on_a_terminal_steers_nothing_and_says_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from dualml.interface.cli.output import print_json

    value = {"name": "a\x9b\u202e\x7f\x1b你"}
    print_json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert not {"\x9b", "\u202e", "\x7f", "\x1b"} & set(printed)
    assert "你" in printed


@pytest.mark.parametrize(
    "progress",
    [
        {"step": "x"},
        3,
        [],
        {"step": -1},
        {"step": 2.5},
        {"step": 1, "confusion": 3},
        {"other": 1},
        None,
    ],
)
def test_a_trials_checkpoint_with_odd_progress_is_one_line(tmp_path: Path, progress: Any) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_file({"weights/w": np.zeros(2, np.float32)}, path, {"progress": json.dumps(progress)})
    with pytest.raises(UserError, match="not a readable checkpoint") as refused:
        open_checkpoint(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ODD)
def test_the_log_of_a_rank_is_a_file(tmp_path: Path, kind: str) -> None:
    """A rank's log must be a regular file, because a resumed run may come from another machine."""
    log = tmp_path / "rank0.log"
    make_special(kind, log)
    launch = Launch([sys.executable, "-c", ""], {}, log)
    assert isinstance(call_within(launch.start), OSError)
    assert call_within(lambda: last_lines(log)) == []


def test_of_a_large_log_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    with log.open("wb") as file:
        file.truncate(2**33)
        file.seek(0, os.SEEK_END)
        file.write(b"\none\ntwo\n")
    assert last_lines(log, 2) == ["one", "two"]
