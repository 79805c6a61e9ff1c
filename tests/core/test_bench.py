"""The device benchmark: sections that fail independently, tables, pages, and the kit in the source
tree."""

from __future__ import annotations

import importlib.util
import tomllib
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from dualml.backend import backends
from dualml.common.errors import UserError
from dualml.common.files import read_json, write_json
from dualml.common.words import LANGUAGES, Messages
from dualml.interface.bench.page import PAGES, cell_text, render_page, tables
from dualml.interface.bench.run import RESULTS, all_checks_passed, run_sections
from dualml.interface.bench.section import LAB, SUITE, BenchJob, BenchSection, list_sections
from dualml.interface.bench.suite import junit_counts
from dualml.interface.cli.app import app
from dualml.interface.cli.bench import check_page, pick_sections

ROOT = Path(__file__).resolve().parents[2]
#: Sections with every kind of outcome.
ODD = """
import os, time
from dualml.common.errors import Unsupported

def good(job, add):
    add(suite=job.device, passed=3)

def wrong(job, add):
    add(suite="first", passed=1, ok=False)

def raises(job, add):
    add(suite="before", passed=1)
    raise Unsupported("not on this device")

def foreign(job, add):
    raise KeyError("x")

def crashes(job, add):
    add(suite="before", passed=1)
    os._exit(7)

def hangs(job, add):
    add(suite="before", passed=1)
    time.sleep(600)
"""


def job(folder: Path, seconds: float = 60.0) -> BenchJob:
    return BenchJob("numpy", "auto", str(folder), 1, True, seconds)


def odd(name: str, limit: float = 30.0) -> BenchSection:
    return BenchSection(name, f"odd_sections:{name}", limit, SUITE.columns)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "odd_sections.py").write_text(ODD)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")
    return tmp_path


def test_a_section_that_fails_costs_its_own_rows_alone(folder: Path) -> None:
    names = ["good", "wrong", "raises", "foreign", "crashes", "hangs", "good"]
    chosen = [odd(name, 4.0 if name == "hangs" else 30.0) for name in names]
    told: list[str] = []
    found = run_sections(
        backends()["numpy"], chosen, job(folder), lambda s, limit: told.append(s.name)
    )
    assert told == names
    assert found["device"] == "cpu"
    by_name = {s["name"]: s for s in found["sections"]}
    assert [s["state"] for s in found["sections"]] == ["done", "done", *["failed"] * 4, "done"]
    assert by_name["good"]["rows"] == [{"suite": "cpu", "passed": 3}]
    assert by_name["raises"]["rows"][1]["reason"] == "not on this device"
    assert by_name["foreign"]["rows"][0]["reason"] == "KeyError: 'x'"
    assert by_name["crashes"]["rows"][1]["reason"] == "ended with code 7"
    assert by_name["hangs"]["rows"][1]["reason"] == {"key": "stopped", "seconds": 4}
    assert read_json(folder / RESULTS) == found
    assert not all_checks_passed(found)
    assert all_checks_passed({"sections": [by_name["good"]]})
    assert not all_checks_passed({"sections": [by_name["wrong"]]})


def test_what_no_time_is_left_for_says_so(folder: Path) -> None:
    found = run_sections(backends()["numpy"], [odd("good")], job(folder, 1.0))
    assert found["sections"][0]["state"] == "not_run"
    assert found["sections"][0]["rows"] == [{"reason": {"key": "no_time"}}]


def test_a_device_that_is_not_there_is_one_line(folder: Path) -> None:
    with pytest.raises(UserError, match="numpy on cuda: backend numpy runs on the CPU only"):
        run_sections(backends()["numpy"], [odd("good")], replace(job(folder), device="cuda"))


def test_a_backend_without_sections_of_its_own_has_those_of_every_backend() -> None:
    assert list_sections(backends()["numpy"]) == [LAB, SUITE]


def results() -> dict[str, Any]:
    first = {
        "step": 2,
        "phase": "gradient",
        "tensor": "conv1.weight",
        "distance": 1e-3,
        "envelope": 1e-6,
        "after": 1,
    }
    rows = [
        {
            "arm": "sgd",
            "pair": ["torch (cuda:0)", "numpy"],
            "verdict": "equal",
            "envelopes": 1.234,
            "accuracies": [0.5, 0.25],
        },
        {
            "arm": "adam",
            "pair": ["a", "b"],
            "verdict": "different",
            "envelopes": None,
            "ok": False,
            "reason": {"key": "divergence", **first},
        },
        {"arm": "gd", "reason": "<b>a | b</b>"},
    ]
    lab = {"name": "lab", "state": "done", "seconds": 1.0, "columns": LAB.columns, "rows": rows}
    machine = {"device": "cuda:0", "device_name": "A GPU", "torch": "2.13.0"}
    return {"sections": [lab], "machine": machine, "seconds": 61.5, "device": "cuda:0"}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_shows_what_was_measured_and_says_what_was_not(lang: str) -> None:
    text, words = render_page([LAB, SUITE], lang, results()), Messages(lang)
    assert "50.00 / 25.00" in text
    assert "torch (cuda:0) – numpy" in text
    assert words("verdict.different") in text
    assert "conv1.weight" in text
    assert "&lt;b&gt;a \\| b&lt;/b&gt;" in text
    assert words("bench.fact_line", name=words("bench.fact.device_name"), value="A GPU") in text
    assert text.count(words("bench.not_run")) == 1
    (shown,) = tables(results(), lang)
    assert [cell.tone for row in shown.cells for cell in row if cell.tone] == ["bad", "bad"]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_of_nothing_says_that_nothing_was_run(lang: str) -> None:
    text, words = render_page([LAB, SUITE], lang), Messages(lang)
    assert words("bench.page.nothing") in text
    assert text.count(words("bench.not_run")) == 2


def test_values_are_written_with_their_quartiles() -> None:
    words = Messages("en")
    assert cell_text("milliseconds", [1.0, 1.2345, 2.0], words) == "1.23 (1 – 2)"
    assert cell_text("first_gap", -0.00123, words) == "-0.12"
    assert cell_text("noticed", False, words) == "no"
    assert cell_text("variant", "graph", words) == "CUDA graph"
    assert cell_text("variant", "bfloat16", words) == "bfloat16"
    assert cell_text("reason", {"key": "stopped", "seconds": 9}, words) == "stopped after 9 s"


def test_the_suite_is_counted_with_its_reasons(tmp_path: Path) -> None:
    cases = "".join(
        f'<testcase name="t{n}"><failure message="no {n}&#10;more"/></testcase>' for n in range(4)
    )
    skip = '<testcase name="s"><skipped message="one GPU"/></testcase>'
    path = tmp_path / "report.xml"
    path.write_text(
        f'<testsuites><testsuite tests="9" failures="4" errors="0" skipped="1">{cases}'
        f"{skip}</testsuite></testsuites>"
    )
    assert junit_counts(path) == {
        "passed": 4,
        "failed": 4,
        "skipped": 1,
        "reason": "t0: no 0; t1: no 1; t2: no 2; + 1",
    }
    path.write_text(
        f'<testsuites><testsuite tests="3" failures="0" errors="0" skipped="1">{skip}'
        "</testsuite></testsuites>"
    )
    assert junit_counts(path) == {"passed": 2, "failed": 0, "skipped": 1, "reason": "one GPU"}


def test_sections_are_chosen_by_name() -> None:
    assert pick_sections([LAB, SUITE], ["conformance"]) == [SUITE]
    assert pick_sections([LAB, SUITE], None) == [LAB, SUITE]
    with pytest.raises(UserError, match="unknown section 'lap'; did you mean 'lab'"):
        pick_sections([LAB, SUITE], ["lap"])


def test_a_page_shows_a_gpu_in_full_or_nothing(tmp_path: Path) -> None:
    check_page(tmp_path, "gpu", None, quick=False, no_run=False)
    check_page(tmp_path, "cpu", None, quick=False, no_run=True)
    for kind, only, quick in (("cpu", None, False), ("gpu", ["lab"], False), ("gpu", None, True)):
        with pytest.raises(UserError, match="leave out --"):
            check_page(tmp_path, kind, only, quick, no_run=False)
    with pytest.raises(UserError, match="no such folder"):
        check_page(tmp_path / "none", "gpu", None, quick=False, no_run=False)


def test_results_are_shown_again_and_become_pages(tmp_path: Path) -> None:
    words = ["bench", "--backend", "numpy", "--no-run", "--out", str(tmp_path)]
    words += ["--page", str(tmp_path)]
    told = results() | {"quick": False}
    for change in ({"device": "cpu"}, {"quick": True}):
        write_json(tmp_path / RESULTS, told | change)
        with pytest.raises(UserError, match="no page was written"):
            get_command(app).main(words, standalone_mode=False)
    assert not (tmp_path / "gpu.md").exists()
    write_json(tmp_path / RESULTS, told)
    assert get_command(app).main(words, standalone_mode=False) == 1  # one row is not as it should
    for lang, name in PAGES.items():
        assert (tmp_path / name).read_text("utf-8") == render_page([LAB, SUITE], lang, told)


def test_the_source_tree_is_described_as_an_installation_would_be(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("gpu", ROOT / "benchmarks" / "gpu.py")
    assert spec is not None
    assert spec.loader is not None
    gpu = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gpu)
    gpu.described(tmp_path)
    (found,) = distributions(path=[str(tmp_path)])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    listed = {(p.group, p.name): p.value for p in found.entry_points}
    assert listed == {
        (group, name): target
        for group, points in project["entry-points"].items()
        for name, target in points.items()
    }
    light = [need for need in project["dependencies"] if not need.startswith(gpu.LARGE)]
    assert len(light) == len(project["dependencies"]) - len(gpu.LARGE)
