"""Commands as files for engines: checked against the published schemas, and run as containers start
them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from render_cases import documents, wrong

from dualml.common.errors import UserError
from dualml.common.machine import python_argv
from dualml.launch.connection import TOKEN
from dualml.launch.route import free_port
from dualml.runner.jobs.workers.environment import WorkerEnv
from dualml.runner.jobs.workers.group import run_workers
from dualml.runner.render import files, node
from dualml.runner.render.command import MAX_CONFIGMAP_BYTES, command_request
from dualml.runner.render.request import RenderRequest

OPTIONS: dict[str, Any] = {
    "memory": "4GB",
    "disk": None,
    "time": "30",
    "rate": None,
    "name": None,
    "cores": 2,
    "lang": "en",
    "image": None,
    "mindspore": False,
}
RUN = ["python3", "code/run.py", "--note", "$HOME $(RANK)"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("code").mkdir()
    Path("code/run.py").write_text("print('here')\n")
    return tmp_path


def make_request(size: int = 3, gpus: int = 0, lend: bool = True, **changes: Any) -> RenderRequest:
    return command_request(RUN, size, gpus, OPTIONS | changes, lend=lend)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"size": 1},
        {"gpus": 2},
        {"rate": "100Mbit"},
        {"mindspore": True, "gpus": 8},
    ],
)
def test_compose_takes_it(changes: dict[str, Any], folder: Path) -> None:
    asked = make_request(lend=False, **changes)
    written = files.compose_files(asked)
    (document,) = documents(written["compose.yaml"])
    assert wrong(document, "compose") == []
    assert [*written] == ["compose.yaml", "README.md"]  # no token: nobody would ask for it
    assert TOKEN not in written["compose.yaml"]
    nodes = [s for name, s in document["services"].items() if name.startswith("node")]
    assert len(nodes) == asked.nodes
    for number, service in enumerate(nodes):
        bound = next(
            v for v in service["volumes"] if v["type"] == "bind" and v["target"] == "/work"
        )
        assert (bound["source"], bound["read_only"]) == (str(folder), True)
        assert service["working_dir"] == "/work"
        assert service["command"][-4:] == [*RUN[:3], "$$HOME $$(RANK)"]
        assert service["command"][service["command"].index("--node") + 1] == str(number)
        assert service["healthcheck"] == {"disable": True}
    assert "--abort-on-container-failure" in written["README.md"]


@pytest.mark.parametrize("kind", ["trainjob", "pytorchjob", "volcano"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_kubernetes_takes_it(kind: str, lang: str) -> None:
    written = files.kubernetes_files(make_request(gpus=1, image="a/b:cuda", lang=lang), kind)
    objects = [
        o
        for name, text in written.items()
        if name.endswith(".yaml") and name != "kustomization.yaml"
        for o in documents(text)
    ]
    for item in objects:
        assert wrong(item) == []
    (together,) = documents(written["kustomization.yaml"])
    assert together["configMapGenerator"] == [{"name": "dualml-run-work", "files": ["work-run.py"]}]
    assert written["work-run.py"] == "print('here')\n"
    assert "secretGenerator" not in together
    assert "token.env" not in written
    text = json.dumps(objects)
    assert '"mountPath": "/work"' in text
    assert '"path": "code/run.py"' in text
    assert '"workingDir": "/work"' in text
    begins_again = ('"maxRestarts": 3', '"OnFailure"', '"RestartJob"', '"maxRetry": 3')
    assert not [words for words in begins_again if words in text]


def test_what_is_not_a_script_of_this_folder_is_in_the_image(folder: Path) -> None:
    for command in (
        ["python3", "-m", "there"],
        ["/opt/train"],
        ["python3", str(folder / "x.py")],
        ["python3", "../x.py"],
        ["python3", "missing.py"],
    ):
        assert command_request(command, 1, 0, OPTIONS, lend=True).scripts == {}
    Path("large.py").write_bytes(b"#" * (MAX_CONFIGMAP_BYTES + 1))
    with pytest.raises(UserError, match=r"large\.py has 900,001 bytes; at most 900,000 are read"):
        command_request(["python3", "large.py"], 1, 0, OPTIONS, lend=True)
    Path("binary.py").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"binary\.py is no text in UTF-8; put it into the image"):
        command_request(["python3", "binary.py"], 1, 0, OPTIONS, lend=True)


MEET = """
import os, socket, time
rank, place = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(place) as door:
        print("heard of", door.accept()[0].recv(8).decode(), flush=True)
else:
    for _ in range(600):
        try:
            with socket.create_connection(place) as way:
                way.sendall(b"1")
                break
        except OSError:
            time.sleep(0.1)
assert os.path.isdir(os.environ["DUALML_JOB_OUT"])
"""


def test_containers_become_workers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes with the commands of two containers become workers of one run."""
    Path("meet.py").write_text(MEET)
    monkeypatch.setattr("dualml.runner.render.request.PORT", free_port())
    asked = command_request([sys.executable, "meet.py"], 2, 0, OPTIONS, lend=False)
    words = [asked.node_command(str(number), "localhost") for number in range(2)]
    started = []
    for line in words:
        at = line.index("--node")
        line[line.index("--out") + 1] = str(folder / "out")
        started.append(
            subprocess.Popen(
                [*python_argv("-m", node.__name__), *line[at:]],
                env={**os.environ},
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
    said = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    assert said[0].strip() == "heard of 1"


def test_a_container_whose_worker_met_nobody_says_so(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seat = WorkerEnv(
        rank=0, local_rank=0, size=2, local_size=1, address="127.0.0.1", port=free_port()
    )
    assert run_workers([sys.executable, "-c", "import time; time.sleep(0.3)"], [seat], None) == 0
    assert "the 2 workers formed no process group there" in capfd.readouterr().out
