"""Ranks over ssh, with a real OpenSSH server on the loopback interface and its own keys."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from conformance.backends import require
from running import LaunchedRun, dualml, losses, trials
from test_machines import FRAMEWORKS, LONG, SAVING, TOML, address, checkpoints

from dualml.launch.hosts.file import read_hosts

pytestmark = pytest.mark.system
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/id.pub
PidFile {folder}/pid
StrictModes no
UsePAM no
PasswordAuthentication no
SetEnv PYTHONPATH="{pythonpath}"
"""
#: The hosts file.
TABLE = """
[here]
address = "127.0.0.1"
ranks = {here}
[[hosts]]
ssh = "{user}@127.0.0.1"
port = {port}
python = "{python}"
options = ["-i", "{folder}/id", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR",
           "-o", "UserKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes"]
environ.DUALML_CACHE = "{folder}/cache"
environ.DUALML_DATA = "{data}"
environ.ONEDNN_MAX_CPU_ISA = "{isa}"
"""
#: The instruction set of MindSpore's convolutions on both machines. By default each machine times
#: them itself, and where load disturbs one of them, losses differ by 6e-6.
ISA = "AVX2"
Table = Callable[..., Path]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """Return a function that writes a hosts file with this machine, and with another name for it
    that is reached over a private ssh server."""
    if not Path(SSHD).exists() or shutil.which("ssh") is None:
        pytest.skip("OpenSSH's server is not installed (Debian: openssh-server)")
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "id"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
        subprocess.run(words, check=True, timeout=60)
    port = int(address().rpartition(":")[2])
    pythonpath = os.environ["PYTHONPATH"]
    config = CONFIG.format(port=port, folder=folder, pythonpath=pythonpath)
    (folder / "config").write_text(config)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where its unit would have made it
    log = folder / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", folder / "config"], stdout=output, stderr=output
        )
    deadline = time.monotonic() + 20
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            pytest.skip(f"OpenSSH's server does not start: {log.read_text()}")
        time.sleep(0.05)
    # The other machine's code is what is tested here.
    python = folder / "python"
    lines = [
        "#!/bin/sh",
        f'PYTHONPATH="{os.environ["PYTHONPATH"]}"',
        "export PYTHONPATH",
        f'exec "{sys.executable}" "$@"',
    ]
    python.write_text("\n".join(lines) + "\n")
    python.chmod(0o700)

    def write_table(path: Path, **changed: object) -> Path:
        settings = {
            "here": 1,
            "user": getpass.getuser(),
            "port": port,
            "python": python,
            "folder": folder,
            "data": os.environ.get("DUALML_DATA", ""),
            "isa": ISA,
        }
        path.write_text(TABLE.format(**{**settings, **changed}))
        return path

    yield write_table
    server.terminate()
    server.wait(20)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "lab.toml"
    path.write_text(TOML)
    return path


def remote(run: LaunchedRun) -> list[psutil.Process]:
    """Return the ranks that ssh has started (sshd does not pass variables on)."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            above = {p.name() for p in process.parents()}
            if "dualml.launch.hosts.remote" in process.cmdline() and "sshd" in above:
                found.append(process)
    return found


def wait_for_remote_end(run: LaunchedRun) -> None:
    deadline = time.monotonic() + 20
    while remote(run):
        assert time.monotonic() < deadline, run.text()
        time.sleep(0.1)


def test_a_run_on_two_machines(
    table: Table, lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for framework in FRAMEWORKS:
        require(framework)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", ISA)
    out, hosts = tmp_path / "out", table(tmp_path / "hosts.toml")
    words = ["run", lab, "--backend", "both", "--no-report"]
    with LaunchedRun(dualml(*words, "--hosts", hosts, "--out", out), tmp_path) as run:
        assert run.end(180) == 0, run.text()
    wait_for_remote_end(run)
    assert "part of the run at tcp://127.0.0.1:" in (out / "hosts/rank1.log").read_text()
    with LaunchedRun(
        dualml(*words, "--arm", "ring", "--out", tmp_path / "alone"), tmp_path
    ) as alone:
        assert alone.end() == 0, alone.text()
    for backend in FRAMEWORKS:
        mine, whole = losses(out, "ring", backend), losses(tmp_path / "alone", "ring", backend)
        assert mine == pytest.approx(whole, rel=1e-6)


def test_a_hostfile(
    table: Table, lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that a hostfile leaves to OpenSSH come from its configuration, here the test's
    own."""
    require("torch")
    toml = read_hosts(table(tmp_path / "hosts.toml")).hosts[0]
    lines = [f"Port {toml.port}"]
    lines += [f"IdentityFile {word}" for word in toml.options if word.endswith("/id")]
    lines += [word.replace("=", " ") for word in toml.options if "=" in word]
    (tmp_path / "ssh_config").write_text("\n".join(lines) + "\n")
    client = tmp_path / "bin/ssh"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/ssh_config "$@"\n')
    client.chmod(0o700)
    monkeypatch.setenv("PATH", f"{client.parent}{os.pathsep}{os.environ['PATH']}")
    hosts, out = tmp_path / "hostfile", tmp_path / "out"
    hosts.write_text(f"127.0.0.1 slots=1  # here\n{getpass.getuser()}@localhost slots=2\n")
    words = ["run", lab, "--backend", "torch", "--no-report", "--arm", "ring", "--out", out]
    with LaunchedRun(dualml(*words, "--hosts", hosts), tmp_path) as run:
        assert run.end() == 0, run.text()
    wait_for_remote_end(run)
    (trial,) = trials(out).values()
    assert (trial["status"], trial["world_size"]) == ("ok", 3)


def test_two_ranks_here_and_one_there(table: Table, lab: Path, tmp_path: Path) -> None:
    require("torch")
    out, hosts = tmp_path / "out", table(tmp_path / "hosts.toml", here=2)
    words = ["run", lab, "--backend", "torch", "--no-report", "--arm", "ring", "--out", out]
    with LaunchedRun(dualml(*words, "--hosts", hosts), tmp_path) as run:
        assert run.end() == 0, run.text()
    wait_for_remote_end(run)
    (trial,) = trials(out).values()
    assert (trial["status"], trial["world_size"]) == ("ok", 3)


def test_a_connection_that_breaks_and_a_run_that_goes_on(
    table: Table, lab: Path, tmp_path: Path
) -> None:
    require("torch")
    out, hosts = tmp_path / "out", table(tmp_path / "hosts.toml")
    words = ["run", lab, "--backend", "torch", "--no-report", *LONG, "--out", out]
    with LaunchedRun(dualml(*words, "--hosts", hosts), tmp_path, SAVING) as run:
        run.wait_for(lambda: checkpoints(out, "torch"))
        (client,) = (p for p in run.marked_processes() if p.name() == "ssh")
        client.kill()
        assert run.end(40) == 1, run.text()
        assert f"continue with: dualml run --resume {out}" in run.text()
    wait_for_remote_end(run)
    (trial,) = trials(out).values()
    assert trial["status"] == "failed"
    assert trial["reason"].startswith("rank 1 "), trial["reason"]
    again = dualml("run", "--resume", out, "--no-report", "--hosts", hosts)
    with LaunchedRun(again, tmp_path) as run:
        assert run.end() == 0, run.text()
    wait_for_remote_end(run)


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_nothing_is_left_there(
    sign: int, code: int, table: Table, lab: Path, tmp_path: Path
) -> None:
    require("torch")
    out, hosts = tmp_path / "out", table(tmp_path / "hosts.toml")
    words = ["run", lab, "--backend", "torch", "--no-report", *LONG, "--out", out]
    with LaunchedRun(dualml(*words, "--hosts", hosts), tmp_path) as run:
        records = out / "trials/ring/torch/seed0/rank0.jsonl"
        run.wait_for(lambda: records.exists() and remote(run))
        run.process.send_signal(sign)
        assert run.process.wait(30) == code, run.text()
        wait_for_remote_end(run)
        run.assert_nothing_left(20)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"user": "nobody-here"}, "Permission denied"),
        ({"port": 1}, "Connection refused"),
        ({"python": "/no/such/python"}, "/no/such/python"),
        ({"python": "/usr/bin/python3 "}, "/usr/bin/python3 "),
    ],
)
def test_a_machine_that_cannot_take_part_is_named(
    changed: dict[str, object], message: str, table: Table, lab: Path, tmp_path: Path
) -> None:
    out, hosts = tmp_path / "out", table(tmp_path / "hosts.toml", **changed)
    words = ["run", lab, "--backend", "torch", "--arm", "ring", "--out", out]
    require("torch")
    with LaunchedRun(dualml(*words, "--hosts", hosts), tmp_path) as run:
        assert run.end(90) == 2
        (line,) = run.text().splitlines()
    assert "@127.0.0.1: " in line
    assert message in line
    assert not out.exists()
