"""The environment and device of a PyTorch worker, and what is recorded of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from dualml.common.errors import Unsupported, UserError
from dualml.common.machine import WAITING, Gpu, default_threads
from dualml_torch.common.environ import environ

if "torch" in os.environ.get("DUALML_REQUIRE", "").split(","):
    import torch
else:
    torch = pytest.importorskip("torch")
from dualml_torch.common import environment as environment_module
from dualml_torch.common.environment import environment, resolve_device


def test_environ_sets_threads_and_determinism(clean_environ: pytest.MonkeyPatch) -> None:
    made = environ(3)
    assert {made[f"{k}_NUM_THREADS"] for k in ("OMP", "MKL", "OPENBLAS")} == {"3"}
    assert made["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert environ(0)["OMP_NUM_THREADS"] == str(default_threads())


def test_environ_leaves_the_users_settings_alone(clean_environ: pytest.MonkeyPatch) -> None:
    clean_environ.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    clean_environ.setenv("OMP_NUM_THREADS", "7")
    assert environ(2)["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    assert environ(2)["OMP_NUM_THREADS"] == "2"  # the number asked for by name wins
    assert environ(0)["OMP_NUM_THREADS"] == "7"


def test_environ_reaches_a_worker() -> None:
    """The environment reaches a worker before the import; tested in a fresh process."""
    code = (
        "import json, torch; from dualml_torch.common.environment import environment, "
        "resolve_device\n"
        "torch.use_deterministic_algorithms(True)\n"
        "print(json.dumps(environment(resolve_device('cpu'), 0)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, **environ(1)},
    )
    told = json.loads(done.stdout)
    assert told["threads"] == "1"
    assert told["deterministic"] == "yes"
    assert told["OMP_NUM_THREADS"] == "1"
    assert told["GOMP_SPINCOUNT"] == environ(1)["GOMP_SPINCOUNT"]


def test_environment_tells_how_threads_wait_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WAITING:
        monkeypatch.setenv(name, f"as {name} says")
    told = environment("cpu", 1)
    assert {name: told[name] for name in WAITING} == {n: f"as {n} says" for n in WAITING}
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert "OMP_WAIT_POLICY" not in environment("cpu", 1)


def test_environment_names_versions_device_and_threads() -> None:
    told = environment("cpu", 5)
    assert told["torch"] == torch.__version__
    assert told["device"] == "cpu"
    assert told["threads"] == "5"
    assert environment("cpu", 0)["threads"] == str(torch.get_num_threads())
    assert all(isinstance(v, str) and v for v in told.values())


def test_words_for_devices() -> None:
    assert resolve_device("cpu") == torch.device("cpu")
    auto = resolve_device("auto")
    assert auto.type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(Unsupported, match="torch_npu"):
        resolve_device("ascend")
    with pytest.raises(UserError, match="unknown device 'gpux'; did you mean 'gpu'"):
        resolve_device("gpux")


A100 = Gpu("A100", "550.54", "81920", "8.0")
OLD = Gpu("Tesla C2050", "340.108", "2687", "2.0")


@pytest.mark.parametrize("name", ["cuda", "gpu", "cuda:0"])
@pytest.mark.parametrize(
    ("cuda", "gpus", "said"),
    [
        (None, (), "is a CPU build, and NVIDIA's driver finds no GPU; use --device cpu"),
        (None, (A100,), "is a CPU build; pip install 'torch=="),
        ("12.8", (), "has CUDA, but NVIDIA's driver finds no GPU; use --device cpu"),
        (
            "12.8",
            (A100,),
            "is built with CUDA 12.8, the driver 550.54 supports CUDA 12.4; pip in",
        ),
        ("13.0", (A100,), "which needs driver 580 or newer, and this is 550.54; update the driver"),
        ("13.0", (OLD,), "and this is 340.108; update the driver, or use --device cpu"),
    ],
)
def test_a_gpu_that_is_not_there_is_one_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, name: str, cuda: str | None, gpus: tuple[Gpu, ...], said: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(
        environment_module.machine, "query_gpus", lambda: (gpus, "12.4" if gpus else "")
    )
    with pytest.raises(UserError, match=r"^no CUDA device: ") as caught:
        resolve_device(name)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_gpu_index_beyond_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("auto") == torch.device("cuda", 0)
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(UserError, match=r"no CUDA device 2: of 2, use cuda:0 to cuda:1"):
        resolve_device("gpu:2")


def test_the_doctor_finds_torch_working() -> None:
    from dualml.backend import backends
    from dualml.interface.doctor.backends import examine_backend

    findings, works = examine_backend(backends()["torch"])
    assert works, findings
    marks = {f.item: f.mark for f in findings}
    assert marks["torch"] == marks["device cpu"] == "ok"
    assert "torchvision" in marks
