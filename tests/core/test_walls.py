"""What students' code can reach inside the sandbox, and that it leaves nothing behind; uses real
namespaces."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from dualml.course.check import CheckResult, check
from dualml.course.exercise import MachineFault
from dualml.course.isolation import client, detect
from dualml.course.isolation.filters import ARCHITECTURES, REFUSED_SYSCALLS, compile_filter
from dualml.course.labs import find_exercise
from dualml.course.workspace import read_solution

EXERCISE = find_exercise("partition")[1]
LINE = "def random_sampling("
SECRET = "what nobody may see"
#: Code that disables the hints, which are no part of the sandbox.
OFF = "sys.meta_path[0].busy = True; "


pytestmark = pytest.mark.system


@pytest.fixture(autouse=True, scope="module")
def needs_walls() -> None:
    if not (found := client.find_isolation("")).walls:
        pytest.skip(f"no walls here: {found.why}")


def error_of(code: Sequence[str], folder: Path, **options: Any) -> str:
    """Return the error of the code when the student's function is first called."""
    text = read_solution(EXERCISE)
    assert text.count(LINE) == 1
    body = "\n    ".join(["import os, sys", *code])
    path = folder / EXERCISE.name
    path.write_text(
        text.replace(LINE, f"def tried():\n    {body}\n\n\n{LINE}").replace(
            "    # solution: begin\n", "    tried()\n    # solution: begin\n", 1
        ),
        "utf-8",
    )
    checked = judged(path, **options)
    trouble = next((j.trouble for j in checked.judgements if j.trouble), None)
    return f"{trouble.kind}: {trouble.message}" if trouble else "nothing"


def judged(path: Path, **options: Any) -> CheckResult:
    return check(EXERCISE, path, 3, **{"isolation": detect.WALLS, **options})


def raise_with(expression: str) -> list[str]:
    return [f"raise RuntimeError({expression})"]


def test_a_right_solution_is_right_behind_them(tmp_path: Path) -> None:
    path = tmp_path / EXERCISE.name
    path.write_text(read_solution(EXERCISE), "utf-8")
    assert judged(path).is_passed


@pytest.mark.parametrize(
    "code",
    [
        "open('{secret}').read()",
        "os.listdir('{folder}')",
        "os.listdir(os.path.expanduser('~root'))",
        "open('/proc/1/cmdline').read()",
        "open('/proc/self/environ').read()",
        "os.listdir('/sys/fs')",
        "open('/etc/shadow').read()",
        "open('/dev/mem').read()",
        "__import__('importlib.util', "
        "fromlist=['x']).find_spec('dualml.algorithms.optim').loader.get_data('x')",
    ],
)
def test_nothing_of_the_machine_is_there(code: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    (tmp_path / "work").mkdir()
    told = error_of(raise_with(code.format(secret=secret, folder=tmp_path)), tmp_path / "work")
    assert SECRET not in told
    kinds = "FileNotFoundError PermissionError forbidden AttributeError ModuleNotFoundError OSError"
    assert told.split(":")[0] in kinds.split(), told


def test_its_process_is_nobody_alone_with_listed_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_KEY", SECRET)
    told = error_of(
        raise_with("str([os.getuid(), os.getpid(), os.getppid(), dict(os.environ)])"), tmp_path
    )
    uid, pid, parent = told.partition("[")[2].split(", ")[:3]
    assert int(uid) != 0
    assert int(pid) < 10
    assert int(parent) in (0, 1)
    assert SECRET not in told
    assert str(Path.home()) not in told


def test_the_modules_of_its_process_are_no_solutions(tmp_path: Path) -> None:
    code = [
        "names = [m for m in vars(sys)['modules'] if m.startswith('dualml')]",
        "parts = ('optim', 'precision', 'model', 'backend', 'reference', 'solutions', 'lab1',",
        "         'lab2', 'judge', 'aggregation', '.partition', '.split', 'catalogue')",
        "found = [m for m in names if any(p in m for p in parts)]",
        "raise RuntimeError(f'{len(names)} {found}')",
    ]
    number, _, found = error_of(code, tmp_path).partition(": ")[2].partition(" ")
    assert int(number) > 20
    assert found == "[]"


def test_nothing_of_other_calls_is_in_its_memory(tmp_path: Path) -> None:
    code = [
        "frame, names = sys._getframe(), []",
        "while frame:",
        "    names += frame.f_locals",
        "    frame = frame.f_back",
        "known = ('calls', 'inputs')",
        "raise RuntimeError(str([n for n in names if n in known]))",
    ]
    assert error_of(code, tmp_path) == "RuntimeError: []"


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        ("os.fork()", "forbidden"),
        (OFF + "os.fork()", "PermissionError"),
        (OFF + "os.posix_spawn('/bin/true', ['true'], {})", "PermissionError"),
        (
            OFF
            + "import ctypes; c = ctypes.CDLL(None, use_errno=True); r = c.unshare(0x10000000); "
            "raise OSError(ctypes.get_errno(), 'unshare') if r < 0 else SystemExit(r)",
            "PermissionError",
        ),
        (
            OFF
            + "import ctypes; c = ctypes.CDLL(None, use_errno=True); r = c.ptrace(16, 1, 0, 0); "
            "raise OSError(ctypes.get_errno(), 'ptrace') if r < 0 else SystemExit(r)",
            "PermissionError",
        ),
        (OFF + "os.system('true') and os._exit(9)", "died"),
        ("import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))", "ValueError"),
        ("import resource; resource.setrlimit(resource.RLIMIT_CPU, (9999, 9999))", "ValueError"),
        ("import _socket; _socket.socket(2, 1)", "forbidden PermissionError"),
        ("import _socket; _socket.socket(1, 1)", "forbidden PermissionError"),
        ("x = bytearray(8 << 30)", "MemoryError"),
        ("open('/usr/x', 'w')", "forbidden"),
        ("os.open('/usr/x', 65)", "forbidden"),
        (
            "import threading; e = []; t = threading.Thread(target=lambda: "
            "e.append(os.system('true'))); "
            "t.start(); t.join(); raise RuntimeError(str(e))",
            "forbidden RuntimeError",
        ),
    ],
)
def test_what_is_refused_by_the_kernel(code: str, kinds: str, tmp_path: Path) -> None:
    told = error_of([code], tmp_path)
    assert told.split(":")[0] in kinds.split(), told
    assert "e.append" not in told
    assert not told.endswith("[0]"), told


def test_its_disk_has_a_quota(tmp_path: Path) -> None:
    code = [
        "for n in range(40):",
        "    with open(f'f{n}', 'wb') as s:",
        "        s.write(bytes(30 << 20))",
    ]
    assert "No space left" in error_of(code, tmp_path)
    many = ["for n in range(10_000):", "    open(f'f{n}', 'w').close()"]
    assert "No space left" in error_of(many, tmp_path)


def test_nothing_survives(tmp_path: Path) -> None:
    error_of(
        [
            "import threading, time",
            "threading.Thread(target=lambda: time.sleep(600), daemon=False).start()",
            "os._exit(0)",
        ],
        tmp_path,
    )
    error_of(["import time", "time.sleep(600)"], tmp_path, seconds=0.5)
    deadline = time.monotonic() + 10.0
    while left := [p for s in client.servers.values() for p in children(s.process.pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def children(pid: int) -> list[psutil.Process]:
    """Return the processes below a server that have not ended."""
    found = psutil.Process(pid).children(recursive=True)
    return [p for p in found if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_a_killed_server_is_no_fault_of_the_student_s(tmp_path: Path) -> None:
    path = tmp_path / EXERCISE.name
    path.write_text(read_solution(EXERCISE), "utf-8")
    assert judged(path).is_passed
    server = client.server_for("", network=False)
    server.process.kill()
    server.process.wait(10)
    assert judged(path).is_passed  # another one is started
    server = client.server_for("", network=False)
    started = server.start

    def killed(*arguments: object) -> int:
        pid = started(*arguments)  # type: ignore[arg-type]
        os.kill(pid, 9)
        return pid

    server.start = killed  # type: ignore[method-assign,assignment]
    with pytest.raises(MachineFault):
        judged(path)
    del server.start  # type: ignore[misc]
    assert judged(path).is_passed


def test_a_class_that_cannot_be_made_does_not_keep_the_others(tmp_path: Path) -> None:
    path = tmp_path / EXERCISE.name
    target = EXERCISE.requirements[0].target
    path.write_text(
        read_solution(EXERCISE).replace(f"def {target}(", f"@not_there\ndef {target}(", 1), "utf-8"
    )
    judgements = judged(path).judgements
    of_it = [j for j in judgements if j.requirement.target == target]
    assert {j.trouble.kind for j in of_it if j.trouble} == {"NameError"}
    others = [j for j in judgements if j.requirement.target != target]
    assert others
    assert all(j.status == "met" for j in others)


# --- other kinds of machines ------------------------------------------------------------------


def other_user(*words: str) -> list[str]:
    """Return the words that run a command as an unprivileged user, in a user namespace."""
    return [
        "bwrap",
        "--dev-bind",
        "/",
        "/",
        "--unshare-user",
        "--uid",
        "1000",
        "--gid",
        "1000",
        *words,
        "--",
    ]


@cache
def bubblewrap() -> str:
    """Return why bubblewrap cannot be used here, or ""."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    words = other_user("--disable-userns")  # since 0.8
    done = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip()


needs_bubblewrap = pytest.mark.skipif(bool(bubblewrap()), reason=bubblewrap())
KIND = (
    "from dualml.course.isolation.client import find_isolation as a; print(a('').kind, a('').why)"
)


@needs_bubblewrap
@pytest.mark.parametrize(
    ("words", "variables", "kind"),
    [
        ((), {}, "namespaces"),
        (("--disable-userns",), {}, "none user namespaces are not allowed"),
        ((), {"DUALML_ISOLATION": "bubblewrap"}, "bubblewrap"),
        ((), {"DUALML_ISOLATION": "none"}, "none DUALML_ISOLATION=none"),
    ],
)
def test_what_a_user_without_rights_gets(
    words: tuple[str, ...], variables: dict[str, str], kind: str
) -> None:
    done = subprocess.run(
        [*other_user(*words), sys.executable, "-P", "-c", KIND],
        text=True,
        env=os.environ | variables,
        capture_output=True,
        check=True,
    )
    assert done.stdout.startswith(kind), done.stdout


@needs_bubblewrap
def test_a_right_solution_is_right_in_bubblewrap_and_sees_nothing(tmp_path: Path) -> None:
    around = detect.Isolation("bubblewrap")
    path = tmp_path / EXERCISE.name
    path.write_text(read_solution(EXERCISE), "utf-8")
    assert check(EXERCISE, path, 3, isolation=around).is_passed
    for code in (
        "os.listdir('/root')",
        "os.listdir('/proc')",
        f"os.listdir({str(tmp_path)!r})",
        "open('/home/student/1/x')",
    ):
        told = error_of(raise_with(code), tmp_path, isolation=around)
        assert told.split(":")[0] in ("FileNotFoundError", "PermissionError"), told
    told = error_of([OFF + "os.fork()"], tmp_path, isolation=around)
    assert told.startswith("PermissionError"), told


def test_the_filter_is_one_for_each_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    from dualml.course.isolation import filters

    for machine in ARCHITECTURES:
        monkeypatch.setattr(filters, "MACHINE", machine)
        program = compile_filter(network=False, own=7)
        assert all(len(instruction) == 8 for instruction in program)
        assert len(program) > len(REFUSED_SYSCALLS)
        assert len(compile_filter(network=True, own=7)) > len(program)
    monkeypatch.setattr(filters, "MACHINE", "riscv64")
    assert not filters.filter_system_calls(network=False)


# --- ends ------------------------------------------------------------------------------------


def test_a_warden_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "END_S", 0.5)
    started = client.IsolationServer.start
    wardens: list[int] = []
    monkeypatch.setattr(
        client.IsolationServer,
        "start",
        lambda self, *how: wardens.append(started(self, *how)) or wardens[-1],
    )
    with client.open_cell("", 1, detect.WALLS):
        os.kill(wardens[0], signal.SIGSTOP)
    deadline = time.monotonic() + 5.0
    while psutil.pid_exists(wardens[0]):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_without_walls_what_a_rank_leaves_behind_ends_too(tmp_path: Path) -> None:
    code = [
        OFF + "pid = os.fork()",
        "if not pid:",
        "    import time; time.sleep(600)",
        "raise RuntimeError(str(pid))",
    ]
    told = error_of(code, tmp_path, isolation=detect.Isolation("none"))
    pid = int(told.rpartition(" ")[2])
    deadline = time.monotonic() + 5.0
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["namespaces", "none"])
def test_a_channel_of_datagrams_serves_as_well(
    kind: detect.Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A datagram channel works too, for systems without sequenced-packet sockets."""
    monkeypatch.setattr(client, "MESSAGES", socket.SOCK_DGRAM)
    monkeypatch.setattr(client, "servers", servers := {})
    path = tmp_path / EXERCISE.name
    path.write_text(read_solution(EXERCISE), "utf-8")
    try:
        assert check(EXERCISE, path, 3, isolation=detect.Isolation(kind)).is_passed
    finally:
        for server in servers.values():
            server.close()
