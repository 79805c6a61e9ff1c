"""The table of methods: what it says of each is there, without any engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualml.errors import Unsupported, UserError
from dualml.methods import METHODS, MethodInfo, method
from dualml.methods.known import check_name

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"torch": ROOT / "dualml_torch/methods", "mindspore": ROOT / "dualml_ms/methods"}
#: Of the folders, what is no method.
AROUND = {"__init__", "base", "training"}
ENTRIES = [(backend, info) for backend, infos in METHODS.items() for info in infos.values()]


def stem(info: MethodInfo) -> str:
    return info.file or info.name


def test_every_backend_has_a_folder_and_the_plain_loop() -> None:
    assert set(METHODS) == set(FOLDERS)
    assert all(stem(infos["single"]) == "single" for infos in METHODS.values())


@pytest.mark.parametrize(("backend", "info"), ENTRIES, ids=lambda v: getattr(v, "name", v))
def test_a_method_has_a_file_or_a_reason_with_a_page(backend: str, info: MethodInfo) -> None:
    there = (FOLDERS[backend] / f"{stem(info)}.py").exists()
    assert there != bool(info.unsupported)
    assert bool(info.unsupported) == bool(info.page)
    assert not info.page or info.page.startswith("https://")
    assert info.ranks in ("one", "several", "any")
    assert info.precision in ("fp32", "bf16", "fp16")
    assert set(info.what) == {"en", "zh"}
    assert bool(info.package) == bool(info.series) == bool(info.install)


@pytest.mark.parametrize("backend", FOLDERS)
def test_every_file_is_some_method_s(backend: str) -> None:
    files = {path.stem for path in FOLDERS[backend].glob("*.py")} - AROUND
    assert files == {stem(info) for info in METHODS[backend].values() if not info.unsupported}


def test_what_cannot_run_says_why_and_where_that_is_written() -> None:
    [(_, info)] = [(b, i) for b, i in ENTRIES if (b, i.name) == ("mindspore", "data_sink")]
    with pytest.raises(Unsupported, match=r"ignores dataset_sink_mode.*see https://www\.mindspore"):
        info.check()


def test_an_engine_that_is_missing_or_new_is_named_with_what_installs_it() -> None:
    facts = {"name": "x", "title": "X", "what": {}, "install": "pip install x"}
    with pytest.raises(Unsupported, match="X is not installed; install it with: pip install x"):
        MethodInfo(**facts, package="dualml-no-such-engine", series="1").check()
    with pytest.raises(Unsupported, match="this was tried with 99 only"):
        MethodInfo(**facts, package="numpy", series="99").check()
    MethodInfo(**facts, package="numpy", series="1").check()


def test_a_method_of_the_other_backend_says_whose_it_is() -> None:
    with pytest.raises(Unsupported, match="backend mindspore has no method 'fsdp'; torch has"):
        method("mindspore", "fsdp")
    with pytest.raises(UserError, match=r"unknown method 'reduce'.*reducer"):
        check_name("reduce")
