"""Machines reached by ssh: the hosts file, what they are asked, and reasons to refuse one."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command import dualml

from dualml.common.errors import UserError
from dualml.launch.credentials import versions
from dualml.launch.greeting import CLOCK_S
from dualml.launch.hosts import ssh
from dualml.launch.hosts.file import Hosts, RemoteHost, read_hosts
from dualml.launch.hosts.ssh import (
    MIN_FREE_BYTES,
    misfit_reason,
    ssh_command,
    start_remote,
    survey_host,
    survey_hosts,
)

HERE = ("127.0.0.1", 29500)
SAME = versions([])
FIT: dict[str, Any] = {"same": SAME, "free": 2 * MIN_FREE_BYTES, "gpus": 0, "refused": None}


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "hosts.toml"
    path.write_text(text)
    return path


def test_the_file(tmp_path: Path) -> None:
    hosts = read_hosts(
        file(
            tmp_path,
            """
        [here]
        address = "10.0.0.1"
        ranks = 2
        [[hosts]]
        ssh = "me@b"
        ranks = 3
        [[hosts]]
        ssh = "c"
        port = 2222
        python = "/opt/python"
        options = ["-i", "key"]
        environ = { DUALML_DATA = "/data" }
    """,
        )
    )
    assert hosts.size == 6
    assert hosts.hosts[1] == RemoteHost(
        ssh="c",
        port=2222,
        python="/opt/python",
        options=["-i", "key"],
        environ={"DUALML_DATA": "/data"},
    )


ONE = '[here]\naddress = "a"\n[[hosts]]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "here is missing"),
        ('[here]\naddress = "a"\n', "hosts is missing"),
        ('hosts = []\n[here]\naddress = "a"\n', "hosts: List should have at least 1 item"),
        (ONE, "hosts.0.ssh is missing"),
        (ONE + 'ssh = "b"\nrank = 2', "unknown key hosts.0.rank; did you mean 'ranks'"),
        (ONE + 'ssh = "b"\nranks = 0', "hosts.0.ranks"),
        (ONE + 'ssh = "b"\nranks = 256', "257 ranks; at most 256"),
        (ONE + 'ssh = "b; touch /tmp/x"', "hosts.0.ssh: String should match"),
        (ONE + 'ssh = "$(touch x)"', "hosts.0.ssh"),
        (ONE + 'ssh = "-oProxyCommand=touch x"', "hosts.0.ssh"),
        (ONE + 'ssh = "b"\nenviron = { "A B" = "x" }', "hosts.0.environ"),
        (ONE + 'ssh = "b"\nport = 70000', "hosts.0.port"),
        ('[here]\naddress = "a b"\n[[hosts]]\nssh = "b"', "here.address"),
        ("[here", "not valid TOML"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        read_hosts(file(tmp_path, text))
    assert message in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_the_other_machines_shell_takes_words_for_words(tmp_path: Path) -> None:
    odd = ["a b", "$(touch bad)", "; touch bad", "'", '"', "*", "\n", "ü"]
    line = ssh_command(RemoteHost(ssh="b", options=["-v"], port=22), odd)
    assert line[: line.index("--")] == [
        "ssh",
        "-T",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=10",
        "-o",
        "ServerAliveInterval=5",
        "-o",
        "ServerAliveCountMax=3",
        "-p",
        "22",
        "-v",
    ]
    assert line[line.index("--") + 1] == "b"
    show = f"{shlex.quote(sys.executable)} -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "
    done = subprocess.run(
        ["sh", "-c", show + line[-1]],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == odd
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changed", "device", "message"),
    [
        ({}, "", None),
        ({"same": {**SAME, "dualml": "0.0.1"}}, "", "has dualml 0.0.1, rank 0 has"),
        ({"same": {}}, "", "has no dualml, rank 0 has"),
        ({"clock": 3600.0}, "", "has a clock 3600 s ahead of rank 0's: set the clocks (NTP)"),
        ({"clock": -CLOCK_S - 30}, "", "has a clock 90 s behind rank 0's"),
        ({"clock": CLOCK_S - 10}, "", None),
        (
            {"refused": "Connection refused"},
            "",
            "does not reach 127.0.0.1:29500, where rank 0 listens",
        ),
        ({"free": 5 * 2**20}, "", "5 MB are free for temporary files; 200 MB are needed"),
        ({}, "cuda", "no GPU there"),
        ({}, "cuda:1", "no GPU there"),
        ({"gpus": 2}, "cuda:1", None),
    ],
)
def test_what_keeps_a_machine_out(
    changed: dict[str, Any], device: str, message: str | None
) -> None:
    told = {**FIT, **changed, "clock": time.time() + changed.get("clock", 0.0)}
    found = misfit_reason(told, 0.1, HERE, SAME, device)
    assert found == message if message is None else message in str(found)


def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a fake OpenSSH client on the path; the host is its last word but one."""
    path = tmp_path / "bin/ssh"
    path.parent.mkdir()
    path.write_text(f"#!{sys.executable}\nimport sys\nhost, words = sys.argv[-2:]\n{script}")
    path.chmod(0o700)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("sys.exit('ssh: Could not resolve hostname b')", "Could not resolve hostname b"),
        (
            "print('Permission denied (publickey).', file=sys.stderr); sys.exit(255)",
            "Permission denied (publickey). (try: ssh b true)",
        ),
        (
            "print('sh: 1: python3: not found', file=sys.stderr); sys.exit(127)",
            "python3 there: sh: 1: python3: not found",
        ),
        (
            "sys.exit(\"Error while finding module specification for 'dualml.launch.hosts.survey' "
            "(ModuleNotFoundError: No module named 'dualml')\")",
            "has no dualml; install it",
        ),
        ("sys.exit(3)", "no answer (exit code 3)"),
        ("print('nonsense')", "no answer (exit code 0)"),
        ("print('{}')", "no answer (exit code 0)"),
    ],
)
def test_a_machine_that_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    fake_ssh(tmp_path, monkeypatch, script)
    found = survey_host(RemoteHost(ssh="b"), HERE, SAME, "")
    assert message in str(found)
    hosts = Hosts.model_validate({"here": {"address": "a"}, "hosts": [{"ssh": "b"}, {"ssh": "c"}]})
    with pytest.raises(UserError, match=r"^b: .*; c: "):
        survey_hosts(hosts, HERE, SAME, "")


def test_no_ssh_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    hosts = Hosts.model_validate({"here": {"address": "a"}, "hosts": [{"ssh": "b"}]})
    with pytest.raises(UserError, match="there is no ssh on this machine"):
        survey_hosts(hosts, HERE, SAME, "")


def test_ranks_get_their_words_and_variables_and_end_with_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token appears in no list of processes."""
    monkeypatch.setattr(ssh, "LEAVE_S", 0.3)
    fake_ssh(
        tmp_path,
        monkeypatch,
        "print(sys.stdin.readline(), flush=True); sys.stdin.read(); print('over', flush=True)",
    )
    hosts = Hosts.model_validate(
        {
            "here": {"address": "a"},
            "hosts": [{"ssh": "b", "environ": {"OWN": "1"}}, {"ssh": "c"}],
        }
    )
    logs = tmp_path / "logs"
    with start_remote(hosts, logs, ["run"], {"DUALML_TOKEN": "secret secret"}) as group:
        assert group.names == {1: "b", 2: "c"}
        processes = list(group.processes.values())
        assert not any("secret" in word for p in processes for word in p.args)  # type: ignore[union-attr]
        deadline = time.monotonic() + 20
        while not all((logs / f"rank{r}.log").read_text() for r in (1, 2)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert group.exit_reason() is None
    told = json.loads((logs / "rank1.log").read_text().splitlines()[0])
    assert told == {
        "words": ["run", "--rank", "1"],
        "environ": {"DUALML_TOKEN": "secret secret", "OWN": "1"},
    }
    assert all((logs / f"rank{r}.log").read_text().endswith("over\n") for r in (1, 2))
    assert all(p.returncode == 0 for p in processes)


def test_a_rank_that_does_not_start_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ssh(tmp_path, monkeypatch, "sys.exit('dualml: no such thing')")
    hosts = Hosts.model_validate({"here": {"address": "a"}, "hosts": [{"ssh": "b"}]})
    with start_remote(hosts, tmp_path / "logs", ["run"], {}) as group:
        group.processes[1].wait(20)
        assert group.exit_reason() == "rank 1 on b: no such thing"


def test_what_does_not_go_with_it(tmp_path: Path) -> None:
    path = file(tmp_path, ONE + 'ssh = "b"')
    for words in (
        ["--rank", 1],
        ["--world-size", 2],
        ["--insecure"],
        ["--rendezvous", "tcp://127.0.0.1:9"],
    ):
        done = dualml("run", "lab2", "--hosts", path, *words, cwd=tmp_path)
        assert done.returncode == 2
        assert f"says who takes part; leave out {words[0]}" in done.stderr
    done = dualml("run", "lab2", "--hosts", tmp_path / "none.toml", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "none.toml" in done.stderr
