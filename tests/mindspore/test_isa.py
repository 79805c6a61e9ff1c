"""The choice of oneDNN's instruction set: measured once, cached, and never an obstacle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from dualml.common import machine
from dualml_ms.common import isa
from dualml_ms.common.isa import CAP, VARIABLE, choose_isa, decide

SLOW = {"convolution_ms": 80.0, "matmul_ms": 0.5}
FAST = {"convolution_ms": 6.0, "matmul_ms": 0.6}


@pytest.fixture
def avx512(clean_environ: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A CPU with AVX-512, MindSpore installed, an empty cache and no choice made yet."""
    clean_environ.setenv("DUALML_CACHE", str(tmp_path / "cache"))
    clean_environ.setattr(machine, "cpu_flags", lambda: frozenset({"avx2", "avx512f"}))
    clean_environ.setattr(isa, "version", lambda name: "2.10.0")
    choose_isa.cache_clear()
    yield clean_environ
    choose_isa.cache_clear()


def stub(patch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    """Replace the timed program."""
    path = tmp_path / "probe.py"
    path.write_text(code)
    patch.setattr(isa, "PROBE", path)


#: A program that behaves like a machine with the slow convolution, and marks every start.
TRAP = f"""
import json, os, sys, tempfile
os.close(tempfile.mkstemp(dir="MARKS")[0])
print("noise")
print(json.dumps({FAST!r} if os.environ.get({VARIABLE!r}) == {CAP!r} else {SLOW!r}))
"""


def test_the_cap_is_used_where_it_clearly_wins() -> None:
    won = decide(SLOW, FAST)
    assert (won.isa, won.code) == (CAP, "measured_cap")
    assert won.ratio == pytest.approx(80.5 / 6.6)
    assert "80.0 ms" in won.reason
    assert "6.0 ms" in won.reason


def test_the_default_stays_where_the_cap_does_not_win() -> None:
    for default, capped in ((FAST, FAST), (FAST, SLOW), ({**FAST, "convolution_ms": 7.0}, FAST)):
        kept = decide(default, capped)
        assert (kept.isa, kept.code) == ("", "measured_default")


def test_the_matrix_product_counts_too() -> None:
    assert decide({"convolution_ms": 8.0, "matmul_ms": 1.0}, {**FAST, "matmul_ms": 9.0}).isa == ""


def test_the_users_own_setting_is_respected(avx512: pytest.MonkeyPatch) -> None:
    avx512.setenv(VARIABLE, "AVX512_CORE")
    avx512.setattr(isa, "measure", lambda: pytest.fail("measured for nothing"))
    assert (choose_isa().isa, choose_isa().code) == ("AVX512_CORE", "user")


@pytest.mark.parametrize("flags", [frozenset(), frozenset({"avx2"}), frozenset({"asimd"})])
def test_no_measurement_without_avx512(avx512: pytest.MonkeyPatch, flags: frozenset[str]) -> None:
    avx512.setattr(machine, "cpu_flags", lambda: flags)
    avx512.setattr(isa, "measure", lambda: pytest.fail("measured for nothing"))
    assert (choose_isa().isa, choose_isa().code) == ("", "not_needed")


def test_no_measurement_without_mindspore(avx512: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    avx512.setattr(isa, "version", absent)
    assert (choose_isa().isa, choose_isa().code) == ("", "not_installed")


def test_a_measurement_is_made_once_and_kept(avx512: pytest.MonkeyPatch, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    stub(avx512, tmp_path, TRAP.replace("MARKS", str(marks)))
    made = choose_isa()
    assert (made.isa, made.default, made.capped) == (CAP, SLOW, FAST)
    assert len(list(marks.iterdir())) == 2
    choose_isa.cache_clear()
    assert choose_isa() == made
    assert len(list(marks.iterdir())) == 2
    assert json.loads(Path(made.cache).read_text())["isa"] == CAP
    for change in (
        lambda: avx512.setattr(machine, "cpu_model", lambda: "another CPU"),
        lambda: avx512.setattr(isa, "version", lambda name: "2.9.0"),
        lambda: avx512.setattr(machine, "cpu_flags", lambda: frozenset({"avx512f", "avx512_bf16"})),
    ):
        before = len(list(marks.iterdir()))
        change()
        choose_isa.cache_clear()
        choose_isa()
        assert len(list(marks.iterdir())) == before + 2


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"default": {}, "capped": {}}', "null"])
def test_a_damaged_record_is_measured_again(
    avx512: pytest.MonkeyPatch, tmp_path: Path, damage: str
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    stub(avx512, tmp_path, TRAP.replace("MARKS", str(marks)))
    path = Path(choose_isa().cache)
    path.write_text(damage)
    choose_isa.cache_clear()
    assert choose_isa().isa == CAP
    assert len(list(marks.iterdir())) == 4
    assert json.loads(path.read_text())["isa"] == CAP


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('no kernel')", "RuntimeError: no kernel"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended with -11"),
        ("print('not json')", "no output"),
        ("print('{\"convolution_ms\": 1}')", "ended with 0"),
        ("import time; time.sleep(60)", "longer than 1 s"),
    ],
)
def test_a_failed_measurement_sets_nothing_and_says_why(
    avx512: pytest.MonkeyPatch, tmp_path: Path, code: str, said: str
) -> None:
    stub(avx512, tmp_path, code)
    avx512.setattr(isa, "LIMIT", 1.0 if "sleep" in code else 25.0)
    start = time.monotonic()
    made = choose_isa()
    assert (made.isa, made.code) == ("", "failed")
    assert said in made.reason
    assert time.monotonic() - start < 15
    assert not (tmp_path / "cache").exists()  # tried again next time


def test_both_processes_together_stay_below_a_minute() -> None:
    assert 2 * isa.LIMIT < 60


def test_a_cache_that_cannot_be_written_costs_only_time(
    avx512: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    stub(avx512, tmp_path, TRAP.replace("MARKS", str(marks)))
    (tmp_path / "file").write_text("")
    avx512.setenv("DUALML_CACHE", str(tmp_path / "file" / "cache"))
    assert (choose_isa().isa, choose_isa().cache) == (CAP, "")


def test_concurrent_processes_agree_and_leave_one_whole_file(
    avx512: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    stub(avx512, tmp_path, TRAP.replace("MARKS", str(marks)))
    code = (
        "import sys; from pathlib import Path\n"
        "from dualml.common import machine; from dualml_ms.common import isa\n"
        "machine.cpu_flags = lambda: frozenset({'avx512f'})\n"
        "isa.version = lambda name: '2.10.0'\n"
        "isa.PROBE = Path(sys.argv[1])\n"
        "print(isa.choose_isa().isa)\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(isa.PROBE)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    assert [p.communicate(timeout=60)[0].strip() for p in started] == [CAP] * 4
    [kept] = (tmp_path / "cache").iterdir()
    assert json.loads(kept.read_text())["isa"] == CAP


def test_the_real_measurement_on_this_machine(clean_environ: pytest.MonkeyPatch) -> None:
    """The real measurement on this machine chooses the faster of the two."""
    pytest.importorskip("mindspore")
    made = isa.measure()
    assert made.code in ("measured_cap", "measured_default"), made.reason
    assert min(*made.default.values(), *made.capped.values()) > 0
    assert made.ratio is not None
    assert (made.isa == CAP) == (made.ratio >= isa.WORTH_IT)


def test_choosing_does_not_import_mindspore() -> None:
    code = (
        "import sys; from dualml_ms.common import environ, isa; isa.decide({'convolution_ms': "
        "1.0}, "
        "{'convolution_ms': 1.0}); assert 'mindspore' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
