"""The image fits the files rendered for it, and dualml's package metadata."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from dualml.runner.render.request import DATA, RUNS, UID

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")


def test_pytorch_comes_in_the_versions_that_dualml_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = re.findall(r"'((?:torch|torchvision)[<>=][^']*)'", DOCKERFILE)
    assert named == project["optional-dependencies"]["torch"]


def test_a_user_without_rights_owns_the_volumes() -> None:
    assert f"ARG UID={UID}\n" in DOCKERFILE
    assert f"chown dualml: {RUNS} {DATA}" in DOCKERFILE
    users = re.findall(r"^USER (.+)$", DOCKERFILE, re.M)
    assert users[-1] == "${UID}"  # a number: Kubernetes cannot tell what a name may do


def test_all_that_the_wheel_is_made_of_is_sent_and_nothing_else() -> None:
    sent = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        word for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.M) for word in line.split()[:-1]
    }
    assert sent == copied
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    assert {*wheel["packages"], *wheel["force-include"]} <= sent
    assert all((ROOT / name).exists() for name in sent)
