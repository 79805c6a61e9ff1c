"""The part of a run that a container does, as real processes where one with NumPy suffices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import lab
from render_cases import make_request

from dualml.common.errors import UserError
from dualml.launch import node_names
from dualml.launch.connection import TOKEN
from dualml.runner.render import node

__all__ = ["lab"]


def becomes(request_: object, number: str, host: str = "localhost") -> list[str]:
    """Return the command of a node, without Python's part."""
    words = request_.node_command(number, host)  # type: ignore[attr-defined]
    assert words[: words.index("--node")] == ["python3", "-P", "-m", "dualml.runner.render.node"]
    command = node.container_argv(node.parse_options(words[4:]))
    return command[3:] if command[0] == sys.executable else command


def test_one_rank_on_each_node() -> None:
    asked = make_request(words=["lab2", "--quick"])
    where = ["--world-size", "2", "--rendezvous", "tcp://localhost:29600"]
    first = ["run", "lab2", "--quick", "--out", "/runs/dualml-lab2", "--rank", "0", *where]
    assert becomes(asked, "0") == ["dualml", *first]
    assert becomes(asked, "1") == ["dualml", "run", "--rank", "1", *where]
    assert becomes(asked, "1+0") == becomes(asked, "1")
    assert node.parse_node_number("1+2") == 3


def test_several_ranks_on_each_node() -> None:
    asked = make_request(words=["lab2"], ranks=2, nodes=3)
    command = becomes(asked, "2")
    assert command[0] == "torch.distributed.run"
    assert {"--nnodes=3", "--node-rank=2", "--nproc-per-node=2"} <= {*command}
    run = ["run", "lab2", "--out", "/runs/dualml-lab2", "--rendezvous", "tcp://localhost:29600"]
    assert command[-len(run) :] == run
    command = becomes(make_request(words=["lab2"], ranks=2, nodes=3, backend="mindspore"), "1")
    assert command[0] == str(Path(sys.executable).with_name("msrun"))
    assert {"--worker_num=6", "--local_worker_num=2", "--node_rank=1"} <= {*command}
    assert next(word for word in command if word.startswith("--master_addr="))[-1].isdigit()
    assert command[-len(run) :] == run


def test_one_node_starts_its_own_ranks() -> None:
    assert becomes(make_request(words=["lab2"], nodes=1), "0") == [
        "dualml",
        "run",
        "lab2",
        "--out",
        "/runs/dualml-lab2",
    ]


def test_a_number_that_the_engine_did_not_fill_in() -> None:
    with pytest.raises(UserError, match="the engine did not say which node this is"):
        becomes(make_request(), "$(JOB_COMPLETION_INDEX)")


def test_a_name_is_awaited_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    known, real = list[str](), node_names.socket.getaddrinfo

    def resolve_late(host: str, *rest: object, **more: object) -> object:
        known.append(host)
        if len(known) < 3:
            raise OSError(-2, "Name or service not known")
        return real("localhost", *rest, **more)  # type: ignore[arg-type]

    def resolve_never(host: str, *rest: object, **more: object) -> object:
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr(node_names.socket, "getaddrinfo", resolve_late)
    monkeypatch.setattr(node_names, "POLL_S", 0.01)
    assert node_names.wait_for_host("node0") in ("127.0.0.1", "::1")
    assert known == ["node0"] * 3
    monkeypatch.setattr(node_names.socket, "getaddrinfo", resolve_never)
    with pytest.raises(UserError, match=r"node0 was not known for 0\.05 s: Name or service"):
        node_names.wait_for_host("node0", limit=0.05)


def run_node(words: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "dualml.runner.render.node", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environ},
    )


@pytest.mark.whole
def test_a_run_begins_and_the_next_start_goes_on_with_it(lab: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "tiny"
    words = ["--node", "0", "--out", str(out), "--", str(lab), "--arm", "gd"]
    words += ["--backend", "numpy", "--no-report"]
    (out / "plan").mkdir(parents=True)  # of a start that was killed before there was a run
    begun = run_node(words)
    assert begun.returncode == 0, begun.stderr
    manifest = json.loads((out / "run.json").read_text())
    manifest["trials"][0]["status"] = "interrupted"
    (out / "run.json").write_text(json.dumps(manifest))
    again = run_node(words)
    assert again.returncode == 0, again.stderr
    statuses = [trial["status"] for trial in json.loads((out / "run.json").read_text())["trials"]]
    assert statuses == ["ok"]


def test_the_token_comes_from_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("a-secret\n")
    monkeypatch.setenv(TOKEN, "another")
    node.load_token(str(tmp_path / "token"))
    assert os.environ[TOKEN] == "a-secret"
    words = ["--node", "0", "--out", str(tmp_path / "out"), "--", "lab1"]
    done = run_node(words, **{node.TOKEN_FILE: str(tmp_path / "none")})
    assert done.returncode == 2
    assert done.stderr.startswith(f"dualml: {node.TOKEN_FILE}={tmp_path / 'none'}: No such file")
    assert len(done.stderr.splitlines()) == 1
