"""`dualml doctor` with backends that work, break, crash, hang or are missing, without a
framework."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from dualml.backend import BackendInfo, backends
from dualml.interface.doctor import Diagnosis
from dualml.interface.doctor.backends import examine_backend
from dualml.interface.doctor.finding import (
    DoctorFinding,
    declared_versions,
    format_specifier,
    version_finding,
)
from dualml.interface.doctor.system import examine_system

pytestmark = pytest.mark.whole

#: Behaviours of the fake framework when it is imported.
BEHAVIOURS = {
    "works": "",
    "raises": "raise ImportError('libfake.so: undefined symbol')",
    "crashes": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "hangs": "import time; time.sleep(600)",
    "exits": "import sys; sys.exit('no licence')",
    "aborts": "import os, sys; print('fatal: bad cpu', file=sys.stderr); sys.stderr.flush();"
    " os._exit(7)",
}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BackendInfo:
    """Register a backend ``fake`` of an installed distribution, whose framework is ``fakework``."""
    (tmp_path / "fake_backend").mkdir()
    (tmp_path / "fake_backend" / "__init__.py").write_text(
        textwrap.dedent("""
        from dualml.backend import BackendInfo

        def info():
            return BackendInfo(name="fake", framework="fakework", install="pip install fakework",
                               factory="fake_backend.backend:Backend",
                               environ=lambda threads: {"FAKE_READY": "yes"})
        """)
    )
    (tmp_path / "fake_backend" / "doctor.py").write_text(
        textwrap.dedent("""
        import os
        from dualml.interface.doctor.finding import DoctorFinding

        def examine():
            yield DoctorFinding("before", "ok", os.environ["FAKE_READY"], "好")
            import fakework
            yield DoctorFinding("after", "ok", "imported", "已导入")
        """)
    )
    (tmp_path / "fakework.py").write_text("")
    meta = tmp_path / "fake_backend-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-backend\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text("[dualml.backends]\nfake = fake_backend:info\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    old = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep + old if old else ''}")
    return backends()["fake"]


def behave(tmp_path: Path, how: str) -> None:
    (tmp_path / "fakework.py").write_text(BEHAVIOURS[how])


def test_a_backend_that_works(fake: BackendInfo) -> None:
    findings, works = examine_backend(fake)
    assert works
    assert [(f.item, f.en) for f in findings] == [("before", "yes"), ("after", "imported")]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", "ImportError: libfake.so: undefined symbol"),
        ("crashes", "crashes with SIGSEGV"),
        ("hangs", "no answer within 4 s"),
        ("exits", "SystemExit: no licence"),
        ("aborts", "ends with code 7: fatal: bad cpu"),
    ],
)
def test_a_broken_backend_is_a_finding_and_loses_no_other(
    fake: BackendInfo, tmp_path: Path, how: str, said: str
) -> None:
    behave(tmp_path, how)
    findings, works = examine_backend(fake, seconds=4)
    assert not works
    assert [f.item for f in findings] == ["before", "fakework"]
    broken = findings[-1]
    assert broken.mark == "problem"
    assert said in broken.en
    assert "pip install --force-reinstall fakework" in broken.remedy_en
    assert broken.remedy_zh
    assert "\n" not in broken.en


def test_a_backend_without_a_doctor_is_imported_and_made(fake: BackendInfo, tmp_path: Path) -> None:
    (tmp_path / "fake_backend" / "doctor.py").unlink()
    (tmp_path / "fakework.py").write_text("__version__ = '4.2'\n")
    (tmp_path / "fake_backend" / "backend.py").write_text("class Backend:\n    pass\n")
    findings, works = examine_backend(fake)
    assert not works  # Backend() takes no device
    (tmp_path / "fake_backend" / "backend.py").write_text(
        "class Backend:\n    def __init__(self, device, threads):\n        pass\n"
    )
    findings, works = examine_backend(fake)
    assert works
    assert findings == [DoctorFinding("fakework", "ok", "4.2", "4.2")]


def test_a_backend_that_is_not_installed(fake: BackendInfo) -> None:
    findings, works = examine_backend(replace(fake, framework="no_such_framework"))
    assert not works
    assert [(f.mark, f.remedy_en) for f in findings] == [("warn", "pip install fakework")]


@pytest.mark.parametrize(("works", "ok"), [({}, False), ({"a": False, "b": True}, True)])
def test_one_working_backend_is_enough(works: dict[str, bool], ok: bool) -> None:
    assert Diagnosis({}, works).ok is ok


def test_the_range_is_the_one_of_the_metadata() -> None:
    wanted = declared_versions("torch", "torch")
    assert {one.operator for one in wanted} == {">=", "<"}
    assert declared_versions("mindspore", "mindspore")
    assert str(declared_versions("torch", "mindspore")) == ""
    old = version_finding("torch", "1.0", "torch")
    assert old.mark == "warn"
    assert format_specifier(wanted) in old.en
    assert "pip install" in old.remedy_en
    lowest = next(one.version for one in wanted if one.operator == ">=")
    assert version_finding("torch", f"{lowest}+cpu", "torch").mark == "ok"
    assert version_finding("torch", "99.0.0a1", "torch").mark == "warn"
    assert version_finding("unknown", "9", "torch").mark == "ok"


def by_item() -> dict[str, DoctorFinding]:
    return {finding.item: finding for finding in examine_system()}


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("DUALML_CACHE", str(blocked / "cache"))
    assert by_item()["cache"].mark == "problem"
    assert "DUALML_CACHE" in by_item()["cache"].remedy_en
    monkeypatch.setenv("DUALML_CACHE", str(tmp_path / "cache"))
    assert by_item()["cache"].mark == "ok"


def test_data_that_is_absent_or_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUALML_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DUALML_DATA", str(tmp_path))
    assert by_item()["data mnist"].mark == "warn"
    assert "dualml data get mnist" in by_item()["data mnist"].remedy_en
    assert by_item()["data digits"].mark == "ok"
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(b"")
    assert by_item()["data mnist"].mark == "problem"
    assert by_item()["data mnist"].remedy_en


def test_every_finding_that_is_not_ok_has_a_remedy_in_both_languages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALML_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DUALML_DATA", str(tmp_path))
    monkeypatch.setattr("dualml.interface.doctor.system.LITTLE_MEMORY_MB", 10**9)
    monkeypatch.setattr("dualml.interface.doctor.system.OLDEST_PYTHON", (99, 0))
    found = list(examine_system())
    assert {f.item for f in found if f.mark == "warn"} >= {"python", "memory", "data mnist"}
    for finding in found:
        assert finding.en
        assert finding.zh
        assert bool(finding.remedy_en) == bool(finding.remedy_zh) == (finding.mark != "ok")


def doctor(*words: str, path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command with only the fake backend and NumPy registered."""
    code = textwrap.dedent("""
        import sys
        import dualml.backend.info
        everything = dualml.backend.info.entry_points
        def chosen(group):
            return [e for e in everything(group=group) if e.name in ("numpy", "fake")]
        dualml.backend.info.entry_points = chosen
        sys.argv = ["dualml", *sys.argv[1:]]
        from dualml.interface.cli import main
        main()
        """)
    return subprocess.run(
        [sys.executable, "-c", code, "doctor", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "200", "DUALML_CACHE": str(path / "cache"), **env},
    )


@pytest.mark.parametrize(("how", "code"), [("works", 0), ("crashes", 1)])
def test_the_command_says_what_works(
    fake: BackendInfo, tmp_path: Path, how: str, code: int
) -> None:
    behave(tmp_path, how)
    told = doctor("--json", path=tmp_path)
    assert told.returncode == code, told.stderr
    said = json.loads(told.stdout)
    assert said["ok"] is (code == 0)
    assert said["backends"] == {"fake": code == 0}
    assert {"section", "item", "mark", "text", "remedy"} == set(said["findings"][0])
    assert {row["section"] for row in said["findings"]} == {"machine", "fake", "fit"}


def test_the_command_speaks_two_languages(fake: BackendInfo, tmp_path: Path) -> None:
    behave(tmp_path, "crashes")
    english, chinese = (doctor("--lang", lang, path=tmp_path) for lang in ("en", "zh"))
    assert english.returncode == chinese.returncode == 1
    assert "crashes with SIGSEGV" in english.stdout
    assert "remedy: pip install" in english.stdout
    assert "崩溃（SIGSEGV）" in chinese.stdout
    assert "解决办法：pip install" in chinese.stdout
    refused = doctor("--lang", "fr", path=tmp_path)
    assert refused.returncode == 2
    assert "--lang must be en or zh" in refused.stderr
