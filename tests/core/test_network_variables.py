"""Network variables: passed to local and remote ranks, recorded, and checked by doctor."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command import dualml

from dualml.common import machine, network
from dualml.interface.doctor.system import _network
from dualml.launch.hosts.file import Hosts
from dualml.launch.hosts.ssh import start_remote

GIVEN = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "^docker", "NCCL_DEBUG": "info"}


@pytest.fixture(autouse=True)
def network_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in network.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("dualml.interface.doctor.system.interfaces", lambda: ["eth0", "lo"])


def test_nothing_is_said_of_what_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in GIVEN:
        monkeypatch.setenv(name, "")
    assert network.network_variables() == {}
    assert list(_network()) == []


def test_doctor_shows_them() -> None:
    assert [(f.item, f.mark, f.en) for f in _network()] == [(n, "ok", v) for n, v in GIVEN.items()]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (
            "GLOO_SOCKET_IFNAME",
            "eth",
            "eth: no interface of this machine fits eth; it has eth0, lo",
        ),
        ("GLOO_SOCKET_IFNAME", "lo,ib0", "no interface of this machine fits ib0;"),
        ("NCCL_SOCKET_IFNAME", "=eth", "fits eth;"),
        ("NCCL_SOCKET_IFNAME", "ib,wlan", "fits ib, wlan;"),
        ("NCCL_DEBUG", "LOUD", "LOUD is not one of VERSION, WARN, INFO"),
    ],
)
def test_doctor_warns_of_what_fits_nothing(
    name: str, value: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    (found,) = [f for f in _network() if f.item == name]
    assert found.mark == "warn"
    assert told in found.en
    assert value in found.zh
    assert found.remedy_en
    assert "{{" not in found.remedy_en


@pytest.mark.parametrize("value", ["eth", "=lo", "^nothing", "lo,eth0"])
def test_nccl_takes_beginnings_names_and_exceptions(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", value)
    assert {f.mark for f in _network()} == {"ok"}


def test_a_rank_on_another_machine_has_them_and_its_own_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables reach the other machine; a fake ``ssh`` writes down its command."""
    tool = tmp_path / "ssh"
    tool.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"open({str(tmp_path / 'told')!r}, 'w').write(sys.stdin.readline())\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    table = {
        "here": {"address": "127.0.0.1"},
        "hosts": [{"ssh": "b", "environ": {"GLOO_SOCKET_IFNAME": "eth7"}}],
    }
    with start_remote(Hosts.model_validate(table), tmp_path / "logs", ["run"], {"A": "b"}) as group:
        group.processes[1].wait(20)
    told = json.loads((tmp_path / "told").read_text())
    assert told["environ"] == {**GIVEN, "A": "b", "GLOO_SOCKET_IFNAME": "eth7"}


def test_a_run_records_them(monkeypatch: pytest.MonkeyPatch) -> None:
    machine.environment.cache_clear()
    try:
        assert GIVEN.items() <= machine.environment().items()
    finally:
        machine.environment.cache_clear()


@pytest.mark.whole
def test_the_ranks_of_a_run_have_them(tmp_path: Path) -> None:
    words = ("--backend", "numpy", "--quick", "--data", "digits", "--arm", "sgd", "--seed", "0")
    done = dualml("run", "lab1", *words, "--out", str(tmp_path / "out"), "--json", env=GIVEN)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["environment"]["numpy"]
    assert told["NCCL_DEBUG"] == "info"
