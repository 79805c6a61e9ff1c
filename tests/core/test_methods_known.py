"""The table of methods is complete without any engine installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualml.common.errors import Unsupported
from dualml.common.words import LANGUAGES
from dualml.experiment.methods import METHODS, MethodInfo
from dualml.report.closed_memory import CLOSED_FORM_PARTS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "torch": ROOT / "dualml_torch/experiment/methods",
    "mindspore": ROOT / "dualml_ms/experiment/methods",
}
#: Modules of the folders that are no methods.
AROUND = {"__init__", "base", "memory", "training"}
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


@pytest.mark.parametrize(("backend", "info"), ENTRIES, ids=lambda v: getattr(v, "name", v))
def test_what_is_shared_and_what_is_besides(backend: str, info: MethodInfo) -> None:
    assert set(info.shards) <= set(CLOSED_FORM_PARTS)
    assert set(info.beside) in (set(), set(LANGUAGES))
    assert not info.masters or "state" in info.shards


@pytest.mark.parametrize("backend", FOLDERS)
def test_every_file_is_some_method_s(backend: str) -> None:
    files = {path.stem for path in FOLDERS[backend].glob("*.py")} - AROUND
    assert files == {stem(info) for info in METHODS[backend].values() if not info.unsupported}


def test_what_cannot_run_says_why_and_where_that_is_written() -> None:
    [(_, info)] = [(b, i) for b, i in ENTRIES if (b, i.name) == ("mindspore", "data_sink")]
    with pytest.raises(Unsupported, match=r"ignores dataset_sink_mode.*see https://www\.mindspore"):
        info.check()
