"""The sections of the PyTorch device benchmark, run on the CPU with tiny sizes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dualml.backend import backends
from dualml.common.words import LANGUAGES, Messages
from dualml.interface.bench.page import render_page
from dualml.interface.bench.run import all_checks_passed, run_sections
from dualml.interface.bench.section import BenchJob, list_sections
from dualml_torch.bench import tf32
from dualml_torch.bench.collectives import error_line
from dualml_torch.bench.plain_loop import PlainLoop, TrialLoop, make_work
from dualml_torch.bench.race import race

INFO = backends()["torch"]


#: Long tests start first (tests/conftest.py).
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("bench")
    return run_sections(
        INFO, list_sections(INFO), BenchJob("torch", "cpu", str(folder), 1, True, 250.0)
    )


@pytest.mark.whole
def test_every_section_runs_to_its_end(results: dict[str, Any]) -> None:
    assert [s["state"] for s in results["sections"]] == ["done"] * 8
    assert [row for s in results["sections"] for row in s["rows"] if row.get("ok") is False] == []
    assert all_checks_passed(results)
    rows = {s["name"]: s["rows"] for s in results["sections"]}
    assert rows["lab"][0]["verdict"] == "equal"
    assert {row["reason"]["key"] for row in rows["tf32"] if row["tf32"]} == {"no_tf32"}
    assert rows["memory"] == [{"reason": {"key": "no_counter"}}]
    assert rows["conformance"][0]["passed"] > 0
    refused = [row for row in rows["collectives"] if row["engine"] == "nccl"]
    assert all("nccl needs a GPU" in row["reason"] for row in refused)
    summed = [row for row in rows["collectives"] if row["engine"] == "gloo"]
    assert [row["right"] for row in summed] == [True] * 4
    for name in ("amp", "loop", "optimizer"):
        timed = [row for row in rows[name] if "milliseconds" in row]
        assert len(timed) >= 3, rows[name]
        assert all(low <= mid <= high for low, mid, high in (r["milliseconds"] for r in timed))
    graphs = [r for name in ("loop", "optimizer") for r in rows[name] if r["variant"] == "graph"]
    assert all("CUDA graphs need a GPU" in row["reason"] for row in graphs)


@pytest.mark.whole
@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_section_has_its_table(results: dict[str, Any], lang: str) -> None:
    text = render_page(list_sections(INFO), lang, results)
    assert Messages(lang)("bench.not_run") not in text
    assert text.count("| --") >= len(results["sections"])


def test_loops_by_hand_compute_what_a_trial_computes(tmp_path: Path) -> None:
    own = make_work(BenchJob("torch", "cpu", str(tmp_path), 1, True, 60.0), "mlp")
    ours = TrialLoop(own)
    ours.run_round()
    assert torch.get_deterministic_debug_mode() == 2  # as the backend set it
    for how in ("loop", "foreach", "fused"):
        loop = PlainLoop(own, how)
        loop.run_round()
        np.testing.assert_allclose(loop.losses, ours.losses, rtol=1e-5)
    half = PlainLoop(own, "fused", torch.bfloat16)
    half.run_round()
    assert np.abs(np.array(half.losses) / ours.losses - 1).max() > 1e-6  # another precision


def test_a_variant_that_fails_is_a_row(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []

    def broken() -> Any:
        raise ValueError("no compiler")

    variants = {"ours": lambda: lambda: 1.0, "broken": broken, "theirs": lambda: lambda: 3.0}
    race(variants, 3, "ours", lambda **row: rows.append(row), model="m")
    assert rows == [
        {"model": "m", "variant": "ours", "milliseconds": [1.0] * 3},
        {"model": "m", "variant": "broken", "reason": "ValueError: no compiler"},
        {"model": "m", "variant": "theirs", "milliseconds": [3.0] * 3, "per_ours": [3.0] * 3},
    ]


@pytest.mark.parametrize(
    ("on", "there", "verdict", "noticed"),
    [
        (False, True, "equal", True),
        (True, True, "different", True),
        (True, True, "equal", False),
        (False, True, "different", False),
        (True, False, "equal", True),
    ],
)
def test_a_planted_difference_must_be_noticed(
    on: bool, there: bool, verdict: str, noticed: bool
) -> None:
    rows: list[dict[str, Any]] = []
    tf32.add_row(lambda **row: rows.append(row), {"verdict": verdict}, there, tf32=on, arm="sgd")
    assert rows[0]["noticed"] is rows[0]["ok"] is noticed
    assert ("reason" in rows[0]) == (on and not there)


def test_the_products_are_as_exact_as_float32() -> None:
    found = tf32.relative_errors(torch.device("cpu"), 64)
    assert found.keys() == {"product", "convolution"}
    assert all(1e-9 < error < 1e-6 for error in found.values())


def test_an_error_of_nccl_is_told_by_its_cause() -> None:
    text = (
        "NCCL error in: /x/NCCLUtils.cpp:94, invalid usage (run with NCCL_DEBUG=WARN), NCCL version"
        " 2.28\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
        "Last error:\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000\n"
    )
    cause = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000"
    assert error_line(RuntimeError(text)) == f"nccl: {cause}"
    assert error_line(RuntimeError("plain")) == "RuntimeError: plain"
    spawned = "-- Process 0 terminated\nTraceback …\n  File x\nRuntimeError: gone\n"
    assert error_line(Exception(spawned)) == "RuntimeError: gone"


def test_partial_makers_are_made_once_each() -> None:
    made: list[str] = []

    def make_variant(name: str) -> Any:
        made.append(name)
        return lambda: 1.0

    race({n: partial(make_variant, n) for n in "ab"}, 2, "a", lambda **row: None)
    assert made == ["a", "b"]
