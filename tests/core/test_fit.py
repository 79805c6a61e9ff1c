"""The published releases that fit a machine, for made-up machines; and the data itself."""

from __future__ import annotations

import datetime
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from dualml.interface.doctor import fit
from dualml.interface.doctor.finding import declared_versions
from dualml.interface.doctor.fit import MachineFacts

PLAIN = MachineFacts("3.11.7")


@pytest.fixture(autouse=True)
def tested_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix a range of tested versions that stays when dualml's own range grows."""
    ranges = {"torch": ">=2.4,<2.14", "mindspore": ">=2.7,<2.11"}
    monkeypatch.setattr(
        fit, "declared_versions", lambda package, extra: SpecifierSet(ranges[package])
    )


@pytest.mark.parametrize(
    ("driver", "capability", "release", "cuda", "whole"),
    [
        ("595.71.05", "9.0", "2.13", "13.2", True),
        ("580.95.05", "9.0", "2.13", "13.0", True),  # 13.2 as well, but not all of it
        ("580.95.05", "12.1", "2.13", "13.0", True),  # what is built for 12.0 runs on 12.1
        ("580.95.05", "7.0", "2.13", "12.6", True),  # CUDA 13 has no Volta
        ("535.129.03", "8.0", "2.13", "12.6", False),
        ("570.124.06", "12.0", "2.11", "12.8", True),  # Blackwell under a driver for CUDA 12
        ("470.256.02", "7.0", "2.7", "11.8", False),
    ],
)
def test_the_build_is_the_newest_that_driver_and_gpus_run(
    driver: str, capability: str, release: str, cuda: str, whole: bool
) -> None:
    chosen = fit.newest_torch(replace(PLAIN, driver=driver, capabilities=(capability,)))
    assert chosen is not None
    assert chosen.cuda is not None
    assert (chosen.version, chosen.cuda["version"], chosen.full_support) == (release, cuda, whole)
    assert chosen.command.endswith(f"/cu{cuda.replace('.', '')}")
    assert f"torch=={release}.*" in chosen.command


def test_all_gpus_of_a_machine_count() -> None:
    both = replace(PLAIN, driver="580.95.05", capabilities=("12.0", "7.0"))
    chosen = fit.newest_torch(both)
    assert chosen is not None
    assert chosen.cuda is not None
    assert "capability" not in chosen.cuda  # no build is known not to run on both
    assert fit.newest_torch(replace(PLAIN, driver="390.157", capabilities=("6.1",))) is None


@pytest.mark.parametrize(("python", "release"), [("3.11.7", "2.13"), ("3.14.0", "2.13")])
def test_without_a_gpu_it_is_the_build_for_cpus(python: str, release: str) -> None:
    chosen = fit.newest_torch(MachineFacts(python))
    assert chosen == fit.TorchRelease(release, "0.28")
    assert chosen.command.endswith("/cpu")
    assert "--index-url" not in replace(chosen, system="Darwin").command


def test_a_python_without_wheels_fits_nothing() -> None:
    new = MachineFacts("3.99.0")
    assert fit.newest_torch(new) is None
    marks = {one.item: one for one in fit.examine_fit(new)}
    for one in marks.values():
        assert one.mark == "warn"
        assert "3.99.0" in one.en
        assert one.remedy_en
        assert one.remedy_zh
    assert set(marks) == {"torch", "mindspore"}
    # Where PyTorch has wheels and MindSpore has none, the one does not wait for the other.
    assert [one.mark for one in fit.examine_fit(MachineFacts("3.13.1"))] == ["ok", "warn"]


@pytest.mark.parametrize(
    ("cann", "release"), [("8.5.0", "2.7.2"), ("9.1.0", "2.10.0"), ("", "2.10.0"), ("7.0", None)]
)
def test_on_an_npu_the_installed_cann_decides(cann: str, release: str | None) -> None:
    row = fit.newest_mindspore(replace(PLAIN, npu=True, cann=cann))
    assert (row and row["version"]) == release
    *_, found = fit.examine_fit(replace(PLAIN, npu=True, cann=cann))
    assert (found.mark == "ok") is (release is not None)
    assert (cann or "9.1.0") in found.en


def test_the_version_of_cann_is_the_one_its_toolkit_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "CANN_FOLDERS", ())
    monkeypatch.setenv("ASCEND_TOOLKIT_HOME", str(tmp_path))
    assert fit.cann_version() == ""
    (tmp_path / "aarch64-linux").mkdir()
    info = tmp_path / "aarch64-linux" / "ascend_toolkit_install.info"
    info.write_text("package_name=Ascend-cann-toolkit\nversion=8.2.RC1\ninnerversion=V100\n")
    assert fit.cann_version() == "8.2.RC1"


def test_a_machine_as_it_is_says_something_in_both_languages() -> None:
    for there in (fit.read_machine_facts(), replace(PLAIN, driver="535.1", capabilities=("8.0",))):
        for one in fit.examine_fit(there):
            assert one.en != one.zh
            assert "pip install" in one.en or one.remedy_en


# --- what is published ----------------------------------------------------------------------------


def test_every_row_has_sources_that_can_be_looked_up() -> None:
    sources = fit.published_releases()["sources"]
    for source in sources.values():
        assert source["url"].startswith("https://")
        assert datetime.date(2026, 1, 1) <= source["read"] <= datetime.date.today()
    named = {
        s
        for t in ("torch", "cuda", "mindspore")
        for row in fit.published_releases()[t]
        for s in row["sources"]
    }
    assert named == set(sources)


@pytest.mark.parametrize("table", ["torch", "cuda", "mindspore"])
def test_rows_are_complete_distinct_and_the_newest_first(table: str) -> None:
    rows = fit.published_releases()[table]
    versions = [Version(row["version"]) for row in rows]
    assert all(newer > older for newer, older in pairwise(versions))
    for row in rows:
        python = SpecifierSet(row.get("python", ""))
        assert {one.operator for one in python} in ({">=", "<"}, set())
        assert all(row.values())


def test_cudas_need_what_their_toolkits_need() -> None:
    rows = fit.published_releases()["cuda"]
    assert {v for row in fit.published_releases()["torch"] for v in row["cuda"]} == {
        row["version"] for row in rows
    }
    for row in rows:
        assert fit.is_at_least(row["toolkit_driver"], row["driver"])
        assert row["driver"] == fit.oldest_driver(row["version"])
        least, most = row.get("capability", ("0", "1"))
        assert fit.is_at_least(most, least)
    for newer, older in pairwise(rows):
        assert fit.is_at_least(newer["toolkit_driver"], older["toolkit_driver"])
    assert fit.oldest_driver("10.2") == ""


def test_minor_versions_of_torch_and_torchvision_go_up_together() -> None:
    rows = fit.published_releases()["torch"]
    steps = {Version(row["version"]).minor - Version(row["torchvision"]).minor for row in rows}
    assert len(steps) == 1


def test_what_dualml_is_tested_with_is_published() -> None:
    for package in ("torch", "mindspore"):
        wanted = declared_versions(package, package)
        lowest = min(Version(one.version) for one in wanted if one.operator == ">=")
        assert (
            Version(fit.published_releases()[package][-1]["version"]).release[:2]
            == lowest.release[:2]
        )
