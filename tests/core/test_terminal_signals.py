"""Commands end when they are told to, and go on where they should, whatever their terminal does."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from command import lab as lab
from terminals import OnTerminal

from dualml.interface.cli import streams
from dualml.launch.route import free_port

#: Seconds to end: two to end the ranks politely, two more by force, one for the terminal, and what
#: a busy machine adds.
END_S = 15
LONG = ("--set", "arms.sgd.updates=100000", "--arm", "sgd")


def run_command(lab: Path, out: Path, *words: str) -> list[str]:
    return ["run", str(lab), "--backend", "numpy", "--out", str(out), *words]


def trial_status(out: Path) -> str:
    (trial,) = json.loads((out / "run.json").read_text())["trials"]
    return str(trial["status"])


@pytest.mark.system
def test_a_hangup_interrupts(lab: Path, tmp_path: Path) -> None:
    """SIGHUP interrupts like Ctrl-C: exit code 130, a readable message, and a folder that can be
    resumed."""
    with OnTerminal(*run_command(lab, tmp_path / "out", *LONG)) as run:
        run.read_until(b"training")
        run.process.send_signal(signal.SIGHUP)
        run.read_until(b"--resume")
        assert run.wait(END_S) == 130
    assert trial_status(tmp_path / "out") == "interrupted"


@pytest.mark.system
def test_a_terminal_that_is_closed_interrupts(lab: Path, tmp_path: Path) -> None:
    with OnTerminal(*run_command(lab, tmp_path / "out", *LONG)) as run:
        run.read_until(b"training")
        run.close()
        assert run.wait(END_S) == 130
    assert trial_status(tmp_path / "out") == "interrupted"


@pytest.mark.system
def test_a_run_under_nohup_survives_its_terminal(lab: Path, tmp_path: Path) -> None:
    words = run_command(lab, tmp_path / "out", "--set", "arms.sgd.updates=3000", "--arm", "sgd")
    with OnTerminal(*words, hangup=signal.SIG_IGN) as run:
        run.read_until(b"training")
        run.close()
        assert run.wait(90) == 0
    assert trial_status(tmp_path / "out") == "ok"
    assert (tmp_path / "out/report.html").exists()


@pytest.mark.system
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_on_a_stalled_terminal_ends(lab: Path, tmp_path: Path, sign: signal.Signals) -> None:
    with OnTerminal(*run_command(lab, tmp_path / "out", *LONG)) as run:
        run.read_until(b"training")
        run.stall()
        time.sleep(0.5)  # until the display waits
        run.process.send_signal(sign)
        assert run.wait(END_S) == 130
    assert trial_status(tmp_path / "out") == "interrupted"


@pytest.mark.system
@pytest.mark.parametrize("role", ["follower", "serve", "top"])
def test_other_commands_on_a_stalled_terminal_end(tmp_path: Path, role: str) -> None:
    (tmp_path / "run.json").write_text("{}")  # top takes a run folder
    group = ["--world-size", "2", "--rendezvous", f"tcp://127.0.0.1:{free_port('127.0.0.1')}"]
    words, shown = {
        "follower": (["run", *group, "--rank", "1"], b"waiting for"),
        "serve": (["serve", str(tmp_path), "--port", "0"], b"token="),
        "top": (["top", str(tmp_path), "--every", "0.2"], b"\x1b[?1049h"),
    }[role]
    with OnTerminal(*words) as command:
        command.read_until(shown)
        command.stall()
        command.process.send_signal(signal.SIGTERM)
        assert command.wait(END_S) in (0, 130)


# --- the streams themselves ----------------------------------------------------------------------


class Pipe:
    """A pipe, with a text stream on its write end."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self.interrupted = False
        plain = open(self.writer, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        self.stream = streams.make_interruptible(plain, lambda: self.interrupted)

    def close(self) -> None:
        for end in (self.reader, self.writer, self.stream.buffer.target):  # type: ignore[attr-defined]
            if end is not None:
                os.close(end)


@pytest.fixture
def pipe() -> Any:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_a_slow_reader_gets_everything(pipe: Pipe) -> None:
    text = "0123456789" * 50_000
    writer = threading.Thread(target=lambda: print(text, file=pipe.stream, flush=True), daemon=True)
    writer.start()
    time.sleep(streams.PATIENCE_S + 0.5)
    got = b""
    while not got.endswith(b"\n"):
        got += os.read(pipe.reader, 2**16)
    writer.join(10)
    assert got.decode() == text + "\n"
    assert os.get_blocking(pipe.writer), "other processes share the mode of the descriptor"


def test_an_interrupt_frees_a_thread_that_writes(pipe: Pipe) -> None:
    writer = threading.Thread(target=lambda: print("x" * 2**20, file=pipe.stream), daemon=True)
    writer.start()
    time.sleep(0.2)
    assert writer.is_alive()
    pipe.interrupted = True
    writer.join(streams.PATIENCE_S + 5)
    assert not writer.is_alive()
    begin = time.monotonic()
    print("x" * 2**20, file=pipe.stream, flush=True)
    assert time.monotonic() - begin < streams.PATIENCE_S, "it has given up already"


def test_a_pipe_without_a_reader_is_an_error(pipe: Pipe) -> None:
    os.close(pipe.reader)
    pipe.reader = os.open(os.devnull, os.O_RDONLY)
    with pytest.raises(BrokenPipeError):
        print("x", file=pipe.stream, flush=True)


def test_a_closed_terminal_takes_everything() -> None:
    master, slave = os.openpty()
    plain = open(slave, "w", encoding="utf-8", errors="replace")  # noqa: SIM115
    stream = streams.make_interruptible(plain, lambda: False)
    assert (stream.isatty(), stream.fileno(), stream.errors) == (True, slave, "replace")
    print("seen", file=stream, flush=True)
    assert os.read(master, 100) == b"seen\r\n"
    os.close(master)
    print("lost", file=stream, flush=True)
    plain.close()


def test_other_files_stay_as_they_are(tmp_path: Path) -> None:
    memory = io.TextIOWrapper(io.BytesIO())
    with (tmp_path / "log").open("w") as file:
        for stream in (file, memory, io.StringIO()):
            assert streams.make_interruptible(stream, lambda: False) is stream
