"""The environment and device of a MindSpore worker, and what is recorded of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dualml.common.errors import Unsupported, UserError
from dualml.common.machine import WAITING, default_threads
from dualml_ms.common import environ as rooms
from dualml_ms.common.environ import environ
from dualml_ms.common.isa import REASON_VARIABLE, VARIABLE, IsaChoice

if "mindspore" in os.environ.get("DUALML_REQUIRE", "").split(","):
    import mindspore
else:
    mindspore = pytest.importorskip("mindspore")
from dualml_ms.common.environment import environment, onednn_info, resolve_device


@pytest.fixture
def choose(clean_environ: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Fix the choice of instruction set without a measurement."""
    made = IsaChoice("AVX2", "measured_cap", "because", 9.0)
    clean_environ.setattr(rooms, "choose_isa", lambda: made)
    return clean_environ


def test_a_numpy_that_mindspore_cannot_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An incompatible NumPy is refused before a worker computes anything, because its numbers would
    be wrong."""
    monkeypatch.setattr(rooms, "version", lambda package: "2.4.6")
    with pytest.raises(UserError, match=r"NumPy 2\.4\.6: pip install 'numpy<2'"):
        environ(1)


def test_environ_sets_threads_log_level_and_instruction_set(choose: pytest.MonkeyPatch) -> None:
    made = environ(3)
    assert {made[f"{k}_NUM_THREADS"] for k in ("OMP", "MKL", "OPENBLAS")} == {"3"}
    assert made["GLOG_v"] == "3"
    assert (made[VARIABLE], made[REASON_VARIABLE]) == ("AVX2", "because")
    assert environ(0)["OMP_NUM_THREADS"] == str(default_threads())


def test_environ_leaves_the_users_settings_alone(choose: pytest.MonkeyPatch) -> None:
    choose.setenv("GLOG_v", "1")
    assert environ(2)["GLOG_v"] == "1"
    choose.setattr(rooms, "choose_isa", lambda: IsaChoice("", "not_needed", "no AVX-512"))
    assert VARIABLE not in environ(2)


def test_environ_reaches_a_worker(choose: pytest.MonkeyPatch) -> None:
    """The environment reaches a worker before the import; tested in a fresh process."""
    code = (
        "import json; from dualml_ms.common.environment import environment, resolve_device\n"
        "print(json.dumps(environment(resolve_device('auto'), 1)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, **environ(1)},
    )
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert told["isa_reason"] == "because"
    assert told[VARIABLE] == "AVX2"
    assert told["threads"] == told["OMP_NUM_THREADS"] == "1"
    flags = Path("/proc/cpuinfo")
    if told.get("onednn") and flags.is_file() and "avx512f" in flags.read_text():
        assert told["cpu_capability"] == "AVX2"  # what oneDNN really uses, not what was asked


def test_environment_names_versions_device_and_threads() -> None:
    told = environment(resolve_device("cpu"), 5)
    assert told["mindspore"] == mindspore.__version__
    assert told["device"] == "cpu"
    assert told["threads"] == "5"
    assert told["deterministic"] == "yes"
    assert all(isinstance(v, str) and v for v in told.values())


def test_environment_tells_how_threads_wait_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WAITING:
        monkeypatch.setenv(name, f"as {name} says")
    told = environment(resolve_device("cpu"), 1)
    assert {name: told[name] for name in WAITING} == {n: f"as {n} says" for n in WAITING}


def test_the_bundled_onednn_tells_its_version() -> None:
    version, isa = onednn_info()
    assert int(version.partition(".")[0]) >= 2
    assert isa


def test_cpu_is_selected_again_without_complaint() -> None:
    assert resolve_device("cpu") == "CPU"
    assert (mindspore.Tensor([1.0]) + 1).asnumpy() == [2.0]
    assert resolve_device("cpu") == "CPU"


def test_other_words_are_refused() -> None:
    with pytest.raises(UserError, match="unknown device 'gpux'; did you mean 'gpu'"):
        resolve_device("gpux")


@pytest.mark.parametrize("name", ["gpu", "cuda", "cuda:1", "ascend"])
def test_a_device_this_build_cannot_drive_is_unsupported_with_its_reason(name: str) -> None:
    """A device that this build cannot drive is reported as unsupported with its reason; tested in a
    fresh process, because a process keeps its first device."""
    code = (
        "import sys; from dualml.common.errors import Unsupported\n"
        "from dualml_ms.common.environment import resolve_device\n"
        "try: print(resolve_device(sys.argv[1]))\n"
        "except Unsupported as error: print('unsupported:', error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, name], capture_output=True, text=True, check=True, timeout=120
    )
    said = done.stdout.strip().splitlines()[-1]
    target = "Ascend" if name == "ascend" else "GPU"
    if said != target:
        assert said.startswith(f"unsupported: MindSpore {mindspore.__version__} cannot use device")
        assert said.endswith("; use --device cpu")
        assert len(said) > 80  # MindSpore's own reason is in it


def test_a_second_device_in_one_process_is_unsupported() -> None:
    resolve_device("cpu")
    with pytest.raises(Unsupported, match="cannot use device gpu"):
        resolve_device("gpu")


def test_the_doctor_finds_mindspore_working() -> None:
    from dualml.backend import backends
    from dualml.interface.doctor.backends import examine_backend

    findings, works = examine_backend(backends()["mindspore"])
    assert works, findings
    items = {f.item for f in findings}
    assert {"mindspore", "numpy", "convolutions"} <= items


def test_the_doctor_refuses_numpy_2_for_mindspore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With NumPy 2.x installed, MindSpore is reported as broken, with the remedy."""
    meta = tmp_path / "numpy-2.1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 2.1.0\n")
    old = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep + old if old else ''}")
    from dualml.backend import backends
    from dualml.interface.doctor.backends import examine_backend

    findings, works = examine_backend(backends()["mindspore"])
    assert not works
    [numpy] = [f for f in findings if f.item == "numpy"]
    assert numpy.mark == "problem"
    assert numpy.remedy_en == "pip install 'numpy<2'"
