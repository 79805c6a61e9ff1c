"""Hostfiles: accepted and refused lines, and how ``--hosts`` uses them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command import dualml

from dualml.common.errors import UserError
from dualml.launch.hosts.file import is_local, read_hosts
from dualml.launch.hosts.hostfile import MAX_HOSTFILE_BYTES, is_hostfile, read_hostfile


def hostfile(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "hostfile"
    path.write_text(text)
    return path


def test_lines_of_all_forms(tmp_path: Path) -> None:
    text = (
        "# the cluster\n\n127.0.0.1 slots=2   # here\n\tme@worker-1\tslots = 4\r\nworker-2 slots=1"
    )
    path = hostfile(tmp_path, text)
    assert read_hostfile(path) == [("127.0.0.1", 2), ("me@worker-1", 4), ("worker-2", 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no host"),
        ("# only this\n", "names no host"),
        ("a slots=2\nb\n", "line 2: a line is HOST slots=N, as in worker-1 slots=4; received 'b'"),
        ("a slots=two", "line 1: a line is HOST slots=N"),
        ("a slots=-1", "line 1: a line is"),
        ("a slots=2 slots=3", "line 1: a line is"),
        ("a slots=0", "line 1: a has slots=0; leave the line out"),
        ("a slots=1\n\n# b\nA slots=2", "line 4: A is in line 1 already"),
        ("a slots=1\nme@a slots=2", "line 2: me@a is in line 1 already"),
        ("-oProxyCommand=x slots=1", "line 1: '-oProxyCommand=x' is no name of a host"),
        ("a;b slots=1", "line 1: 'a;b' is no name of a host"),
        (f"{'a' * 201} slots=1", "is no name of a host"),
        ("a slots=200\nb slots=57", "257 slots; at most 256"),
        ("a slots=999999999", "line 1: a line is"),
        ("# " + "x" * MAX_HOSTFILE_BYTES, "bytes; at most 1,048,576 are read"),
    ],
)
def test_lines_that_are_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        read_hostfile(hostfile(tmp_path, text))
    assert message in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_no_text_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("binary", "missing"):
        with pytest.raises(UserError, match=f"{name}: cannot be read"):
            read_hostfile(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a slots=1", True),
        ("# x\n\na", True),
        ("a b", True),
        ("[here]", False),
        ('here = { address = "a" }', False),
        ('"hosts"=[]', False),
        ("", False),
    ],
)
def test_hostfiles_and_toml_are_told_apart(tmp_path: Path, text: str, expected: bool) -> None:
    assert is_hostfile(hostfile(tmp_path, text)) is expected


def test_hosts_of_a_run(tmp_path: Path) -> None:
    hosts = read_hosts(hostfile(tmp_path, "127.0.0.1 slots=2\nme@192.0.2.1 slots=3\n"))
    assert (hosts.here.address, hosts.here.ranks, hosts.size) == ("127.0.0.1", 2, 5)
    (host,) = hosts.hosts
    assert (host.ssh, host.ranks, host.python) == ("me@192.0.2.1", 3, sys.executable)


def test_only_this_machine_is_local() -> None:
    assert is_local("localhost")
    assert not is_local("192.0.2.1")  # of documentation, RFC 5737
    assert not is_local("no-such-host.invalid")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("127.0.0.1 slots=1\nb slots=1\nb slots=2", "line 3: b is in line 2 already"),
        ("192.0.2.1 slots=1\n127.0.0.1 slots=1", "192.0.2.1 is not this machine: run it there, or"),
        ("127.0.0.1 slots=4", "the only host; for ranks on one machine: --world-size 4"),
    ],
)
def test_what_the_command_refuses(tmp_path: Path, text: str, message: str) -> None:
    done = dualml("run", "lab2", "--hosts", hostfile(tmp_path, text), cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert message in done.stderr
    assert not (tmp_path / "runs").exists()
