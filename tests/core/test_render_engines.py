"""The engines' own programs accept the rendered files, where they are installed and need no
server."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from render_cases import documents, make_request, request_, wrong

from dualml.launch.connection import TOKEN
from dualml.runner.render import files
from dualml.runner.render.request import RenderRequest

__all__ = ["request_"]


def test_kustomize_ties_it_together(tmp_path: Path, request_: RenderRequest) -> None:
    """``kubectl kustomize`` accepts the files without a cluster; ``--dry-run=client`` would ask one
    for its kinds."""
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl")
    files.write_files(tmp_path / "out", files.kubernetes_files(request_, "volcano"))
    words = ["kubectl", "kustomize", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    objects = documents(done.stdout)
    kinds = ["Job"] + ["PersistentVolumeClaim"] * 2
    kinds += ["Secret"] * (request_.nodes > 1) + ["ConfigMap"] * (request_.lab is not None)
    assert sorted(item["kind"] for item in objects) == sorted(kinds)
    for item in objects:
        assert wrong(item) == []
        assert item["metadata"]["labels"]["app.kubernetes.io/instance"] == request_.name
        if item["kind"] == "Secret":
            assert base64.b64decode(item["data"][TOKEN]).decode() == request_.token
        if item["kind"] == "ConfigMap":
            assert item["data"]["lab.toml"].encode() == request_.lab


def compose_here() -> list[str]:
    """Return the command of Docker Compose 2 or newer, empty if there is none."""
    for words in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(words[0]):
            version = [*words, "version", "--short"]
            done = subprocess.run(version, capture_output=True, timeout=60, check=False)
            if done.returncode == 0 and not done.stdout.startswith(b"1."):
                return words
    return []


def test_compose_itself_takes_it(tmp_path: Path, request_: RenderRequest) -> None:
    """``docker compose config`` accepts the files without a daemon."""
    if not (compose := compose_here()):
        pytest.skip("there is no docker compose")
    files.write_files(tmp_path / "out", files.compose_files(request_))
    words = [*compose, "--project-directory", str(tmp_path / "out"), "config", "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    # What it prints is a file for it again: each $ is two.
    words = [word.replace("$", "$$") for word in request_.words]
    assert services["node0"]["command"][-len(words) :] == words


@pytest.mark.parametrize("rate", [10**3, 10**8, 10**12])
def test_tc_takes_the_rate(rate: int) -> None:
    """tc accepts the rate, in a separate network namespace with one end of a veth pair as
    ``eth0``."""
    pair = "ip link add eth0 type veth peer name other"
    unshared = ["unshare", "--net", "sh", "-c"]
    if (
        not shutil.which("tc")
        or subprocess.run(
            [*unshared, pair], capture_output=True, timeout=60, check=False
        ).returncode
    ):
        pytest.skip("there is no tc, or no network namespace may be made")
    (document,) = documents(files.compose_files(make_request(rate=rate))["compose.yaml"])
    link = document["services"]["link0"]
    shape = link["command"][-1].removesuffix(" && exec sleep infinity")
    script = f"{pair} && ! {{ {link['healthcheck']['test'][-1]}; }} && {shape} && "
    script += link["healthcheck"]["test"][-1]
    done = subprocess.run(
        [*unshared, script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
