"""Files for repository hosts are valid by their published schemas and consistent with each
other."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from archives import PYPROJECT, ROOT, bound, loaded, run
from ruamel.yaml import YAML

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
REPOSITORY = PYPROJECT["project"]["urls"]["Source"]


def yaml(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text("utf-8"))


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("github-workflows", ".github/workflows/*.yml"),
        ("github-actions", ".github/actions/*/action.yml"),
        ("dependabot", ".github/dependabot.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("citation-file-format", "CITATION.cff"),
    ],
)
def test_files_are_valid_by_their_published_schema(schema: str, pattern: str) -> None:
    if not (files := sorted(ROOT.glob(pattern))):
        pytest.skip("there is none")
    checked = check(schema, *files)
    assert checked.returncode == 0, checked.stdout


def check(schema: str, *files: Path) -> Any:
    words = ("--builtin-schema", f"vendor.{schema}", *files)
    return run(sys.executable, "-m", "check_jsonschema", *words)


def test_the_schemas_notice(tmp_path: Path) -> None:
    wrong = tmp_path / "ci.yml"
    text = (GITHUB / "workflows/ci.yml").read_text("utf-8")
    wrong.write_text(text.replace("runs-on:", "runs_on:"), "utf-8")
    assert check("github-workflows", wrong).returncode == 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_little_and_ends(path: Path) -> None:
    workflow = yaml(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"]
    for job in workflow["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 90
        for step in job["steps"]:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[\w./-]+", step.get("uses", "a/b@v1"))
            # What somebody outside decides, a title or a branch, never becomes a shell's text.
            assert "${{ github.event" not in step.get("run", "")
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_the_workflow_runs_every_environment_of_tox() -> None:
    listed = re.search(r"^env_list = (.+)$", (ROOT / "tox.ini").read_text("utf-8"), re.M)
    assert listed is not None
    matrix = yaml(GITHUB / "workflows/ci.yml")["jobs"]["tox"]["strategy"]["matrix"]
    named = {*matrix["env"], *(one["env"] for one in matrix["include"])}
    assert named == {name.strip() for name in listed[1].split(",")}
    supported = {c.rpartition(" ")[2] for c in PYPROJECT["project"]["classifiers"]}
    assert set(matrix["python"]) < supported


def test_the_repository_has_one_address() -> None:
    citation = yaml(ROOT / "CITATION.cff")
    assert citation["repository-code"] == REPOSITORY
    config = yaml(GITHUB / "ISSUE_TEMPLATE/config.yml")
    assert all(link["url"].startswith(f"{REPOSITORY}/") for link in config["contact_links"])
    for label in ("Issues", "Changelog"):
        assert PYPROJECT["project"]["urls"][label].startswith(f"{REPOSITORY}/")
    containers = [*(ROOT / ".devcontainer").rglob("devcontainer.json")]
    for path in containers:
        assert ".ci/install.py" in json.loads(path.read_text("utf-8"))["postCreateCommand"]
    assert len({json.loads(path.read_text("utf-8"))["name"] for path in containers}) == 2
    package = (ROOT / "dualml/common/version.py").read_text("utf-8")
    assert f'__version__ = "{citation["version"]}"' in package


def test_actions_of_others_have_one_version_and_are_kept_new() -> None:
    own = {path.parent: path for path in (GITHUB / "actions").glob("*/action.yml")}
    used = [
        re.findall(r"uses: (actions/[\w-]+)[\w/-]*@(v\d+)", path.read_text("utf-8"))
        for path in (*WORKFLOWS, *own.values())
    ]
    versions = {pair for pairs in used for pair in pairs}
    assert len(versions) == len(dict(versions)), sorted(versions)
    for update in yaml(GITHUB / "dependabot.yml")["updates"]:
        if update["package-ecosystem"] == "github-actions":
            inside = {f"/{folder.relative_to(ROOT).as_posix()}" for folder in own}
            assert set(update["directories"]) == {"/", *inside}


def test_the_checkers_have_one_version_everywhere() -> None:
    """The checkers' versions agree in pyproject's extra `dev`, tox and pre-commit."""
    dev = {
        name: version
        for name, _, version in (
            line.partition("==") for line in PYPROJECT["project"]["optional-dependencies"]["dev"]
        )
        if version
    }
    assert set(dev) == {"ruff", "mypy", "import-linter"}
    for file, names in (("tox.ini", set(dev)), (".pre-commit-config.yaml", {"ruff", "mypy"})):
        text = (ROOT / file).read_text("utf-8")
        pinned = re.findall(r"\b(ruff|mypy|import-linter)==([\d.]+)", text)
        assert set(pinned) == {(name, dev[name]) for name in names}, file


def test_the_image_and_the_metadata_allow_the_same_pytorch() -> None:
    for line in PYPROJECT["project"]["optional-dependencies"]["torch"]:
        assert f"'{line}'" in (ROOT / "Dockerfile").read_text("utf-8")


# --- releases -------------------------------------------------------------------------------------

CHANGELOG = """# Changelog

## [Unreleased]

## [1.2.0] - 2027-01-01

- New.

## [1.1.0] - 2026-12-01

- Old.
"""


def test_a_release_says_its_section_of_the_changelog() -> None:
    notes = loaded(".ci/release.py").notes
    assert notes("v1.2.0", CHANGELOG, '__version__ = "1.2.0"\n') == "- New.\n"
    assert notes("v1.1.0", CHANGELOG, '__version__ = "1.1.0"\n') == "- Old.\n"
    with pytest.raises(ValueError, match=r"the tag is v1.3.0, but .* says 1.2.0"):
        notes("v1.3.0", CHANGELOG, '__version__ = "1.2.0"\n')
    with pytest.raises(ValueError, match=r"no section \[1.3.0\]"):
        notes("v1.3.0", CHANGELOG, '__version__ = "1.3.0"\n')


def test_a_wrong_tag_is_one_line_and_exit_code_2() -> None:
    refused = run(sys.executable, ROOT / ".ci/release.py", "v0")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1


# --- make -----------------------------------------------------------------------------------------


def run_make(*words: str) -> Any:
    return run("make", "--no-print-directory", *words)


def test_make_lists_its_targets() -> None:
    told = run_make().stdout
    for target in ("lab1", "test", "test-all", "test-fast", "lint", "types", "bench", "clean"):
        assert re.search(rf"make {target}\s+\w", told), told


def test_make_refuses_a_python_that_is_too_old(tmp_path: Path) -> None:
    """make refuses an old Python, here a fake one that answers only ``--version``."""
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.8.10"\nexit 1\n')
    old.chmod(0o755)
    for settings in ([f"PYTHON={old}"], ["PYTHON="]):
        refused = run_make("lab1", f"VENV={tmp_path / 'venv'}", *settings)
        assert refused.returncode == 2
        assert "needs Python 3.11 or 3.12" in refused.stderr
        assert not (tmp_path / "venv").exists()
    assert "3.8.10" in run_make("lab1", f"VENV={tmp_path / 'venv'}", f"PYTHON={old}").stderr


# --- versions that are tried ----------------------------------------------------------------------

ENDS = (("torch", "torch"), ("torch", "torchvision"), ("mindspore", "mindspore"))


def test_the_tried_versions_are_the_ends_of_the_ranges() -> None:
    versions = loaded("benchmarks/versions.py")
    named = {pin for one in versions.COMBINATIONS.values() for pin in one.get("pins", ())}
    for extra, package in ENDS:
        lowest = re.search(r">=([\d.]+)", bound(extra, package))
        assert lowest is not None
        assert any(re.match(rf"{package}=={re.escape(lowest[1])}\b", pin) for pin in named)
    assert set(versions.results()) <= set(versions.COMBINATIONS)
    for name, row in versions.results().items():
        assert versions.expected(name, row), name


@pytest.mark.parametrize(("lang", "page"), [("en", "versions.md"), ("zh", "versions.zh.md")])
def test_the_pages_have_the_versions_that_were_tried(lang: str, page: str) -> None:
    versions = loaded("benchmarks/versions.py")
    table = versions.table(versions.results(), versions.words(lang))
    assert table in (ROOT / "docs" / page).read_text("utf-8"), "python benchmarks/versions.py page"
