"""``dualml runs``, ``open`` and ``clean``, on folders that real runs wrote."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from command import TOML, dualml

from dualml.experiment.store.folder import lock_run_folder
from dualml.interface.housekeeping import listing
from dualml.interface.housekeeping.removal import parse_age

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one arm on the reference, with its lab file."""
    home = tmp_path_factory.mktemp("runs")
    (home / "tiny.toml").write_text(TOML)
    done = dualml(
        "run",
        "tiny.toml",
        "--backend",
        "numpy",
        "--arm",
        "gd",
        "--no-report",
        "--out",
        "one",
        cwd=home,
    )
    assert done.returncode == 0, done.stderr
    return home / "one"


@pytest.fixture
def runs_home(finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose ``runs/`` has three runs: a new one, a failed one, and one of last year."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALML_JOBS", str(tmp_path / "jobs"))
    for name, created in (("new", "2026-03"), ("bad", "2026-02"), ("old", "2025-01")):
        shutil.copytree(finished_run, tmp_path / "runs" / name)
        change(tmp_path / "runs" / name, created=f"{created}-01T00:00:00+00:00")
    manifest = json.loads((tmp_path / "runs/bad/run.json").read_text())
    change(tmp_path / "runs/bad", trials=[{**manifest["trials"][0], "status": "failed"}])
    year = time.time() - 400 * 86400
    os.utime(tmp_path / "runs/old/run.json", (year, year))
    return tmp_path


def change(run: Path, **values: Any) -> None:
    path = run / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def answer(*words: object, **env: str) -> Any:
    done = dualml(*words, "--json", cwd=Path.cwd(), env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def names() -> set[str]:
    return {path.name for path in Path("runs").iterdir()}


def test_runs_are_listed_the_newest_first(runs_home: Path) -> None:
    rows = answer("runs")["runs"]
    assert [Path(row["path"]).name for row in rows] == ["new", "bad", "old"]
    assert [row["state"] for row in rows] == ["ok", "failed", "ok"]
    assert rows[0]["backends"] == ["numpy"]
    assert rows[0]["experiment"] == "tiny"
    files = [path for path in (runs_home / "runs/new").rglob("*") if path.is_file()]
    assert rows[0]["bytes"] == sum(path.stat().st_size for path in files)
    assert answer("runs", "runs/old")["runs"][0]["created"].startswith("2025-01-01")
    table = dualml("runs", cwd=runs_home, env={"COLUMNS": "80", "DUALML_LANG": "zh"}).stdout
    assert "tiny" in table
    assert "失败" in table
    assert max(map(len, table.splitlines())) <= 80


def test_what_is_no_folder_and_where_there_is_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALML_JOBS", str(tmp_path / "jobs"))
    assert "dualml run LAB" in dualml("runs", cwd=tmp_path).stdout
    assert dualml("runs", "nothing", cwd=tmp_path).returncode == 2
    done = dualml("open", cwd=tmp_path)
    assert (done.returncode, "holds no run" in done.stderr) == (2, True)


def test_open_makes_the_report_and_says_where_it_is(runs_home: Path) -> None:
    page = runs_home / "runs/new/report.html"
    opened = answer("open", SSH_CONNECTION="1", BROWSER="", DISPLAY=":0")
    assert opened == {
        "schema": "dualml.open/1",
        "report": "runs/new/report.html",
        "url": page.as_uri(),
        "opened": False,
    }
    assert 'lang="en' in page.read_text()[:300]
    assert dualml("open", "runs/new", "--lang", "zh", cwd=runs_home).stdout.strip() == page.as_uri()
    assert 'lang="zh' in page.read_text()[:300]
    # Of a folder of runs, the newest one's.
    assert dualml("open", "runs", cwd=runs_home).stdout.strip() == page.as_uri()
    done = dualml("open", "runs/nwe", cwd=runs_home)
    assert "did you mean 'new'?" in done.stderr


def test_open_hands_the_page_to_a_browser(runs_home: Path, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/shown\n')
    browser.chmod(0o755)
    assert answer("open", "runs/new", BROWSER=str(browser))["opened"] is True
    assert (tmp_path / "shown").read_text() == (runs_home / "runs/new/report.html").as_uri()


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        (["--older", "30d"], {"old"}),
        (["--failed"], {"bad"}),
        (["--keep", "1"], {"bad", "old"}),
        (["--failed", "--older", "30d"], set()),
        (["--older", "8w", "--keep", "3"], set()),
        (["runs/new", "runs/new", "runs/bad"], {"new", "bad"}),
    ],
)
def test_clean_removes_what_is_asked_and_nothing_else(
    runs_home: Path, words: list[str], gone: set[str]
) -> None:
    would = answer("clean", *words, "--dry-run")
    assert {Path(one["path"]).name for one in would["removed"]} == gone
    assert names() == {"new", "bad", "old"}
    assert answer("clean", *words, "--yes")["bytes"] == would["bytes"]
    assert names() == {"new", "bad", "old"} - gone


def test_without_anybody_to_ask_nothing_goes(runs_home: Path) -> None:
    done = dualml("clean", "--keep", "0", cwd=runs_home)
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert "3 runs go" in done.stdout
    assert names() == {"new", "bad", "old"}


def test_what_was_exported_goes_with_its_run(runs_home: Path) -> None:
    assert dualml("export", "runs/old", "--to", "csv", cwd=runs_home).returncode == 0
    assert (runs_home / "runs/old/export/csv").is_dir()
    answer("clean", "runs/old", "--yes")
    assert names() == {"new", "bad"}


def test_a_file_that_goes_while_it_is_listed_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kept", "gone"):
        (tmp_path / name).write_text("abc")
    found = list(listing.walk_files(tmp_path))
    (tmp_path / "gone").unlink()
    monkeypatch.setattr(listing, "walk_files", lambda folder: iter(found))
    assert listing.folder_size(tmp_path) == 3


def test_runs_at_work_foreign_things_and_links_stay(runs_home: Path) -> None:
    outside = runs_home / "outside"
    shutil.copytree(runs_home / "runs/old", outside)
    (runs_home / "runs/link").symlink_to(outside)
    (runs_home / "runs/group").symlink_to(runs_home / "elsewhere")
    shutil.copytree(runs_home / "runs/old", runs_home / "elsewhere/inner")
    (runs_home / "runs/old/thesis.tex").write_text("mine")
    (runs_home / "runs/bad/trials/link").symlink_to(outside)
    shutil.rmtree(runs_home / "runs/new/plan")
    (runs_home / "runs/odd").mkdir()
    (runs_home / "runs/odd/run.json").write_text("{}")
    with lock_run_folder(runs_home / "runs/bad"):
        kept = answer("clean", "--keep", "0", "--yes")["kept"]
    why = {Path(one["path"]).name: one["why"] for one in kept}
    assert why.keys() == {"link", "inner", "old", "bad", "new", "odd"}
    assert why["bad"] == "it is at work"
    assert "thesis.tex" in why["old"]
    assert "link" in why["link"]
    assert "outside" in why["inner"]
    answer("clean", "runs/bad", "--yes")
    assert names() == {"new", "old", "link", "group", "odd"}
    assert (outside / "run.json").is_file()
    for word in ("runs/link", "runs/old", "outside/plan", "runs/none"):
        done = dualml("clean", word, "--yes", cwd=runs_home)
        assert done.returncode == 2, word
    assert (runs_home / "elsewhere/inner/run.json").is_file()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["runs/new", "--failed"],
        ["--older", "soon"],
        ["--keep", "-1"],
        ["--failed", "--json"],
    ],
)
def test_what_is_not_meant_is_refused(runs_home: Path, words: list[str]) -> None:
    done = dualml("clean", *words, cwd=runs_home)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert names() == {"new", "bad", "old"}


def test_ages() -> None:
    assert [parse_age(text) for text in ("2h", "1d", "1w")] == [7200, 86400, 604800]
