"""The published rows of benchmarks/planner, their halves, and the statistics of a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(FOLDER))
from planner import others, rows, sizes, summary, tables  # noqa: E402

sys.path.remove(str(FOLDER))

#: Half of each source: constants may be fitted to the first ones only. A name decides by its hash,
#: so that a source changes its half only with its name.
FITTED = {
    "bigscience",
    "colossal-ai",
    "dgxc-benchmarking",
    "nanotron",
    "nemo-summary",
    "tinyllama",
    "torchao",
    "torchtitan",
}
HELD_OUT = {
    "efficient-layouts",
    "fms-fsdp",
    "internevo",
    "llm-foundry",
    "maxtext",
    "megatron-bridge",
    "megatron-lm-llama",
    "mindformers",
    "nemo-long-sequence",
    "trainy-h200",
}


def make_judged(name: str, **given: Any) -> summary.Judged:
    """Make a row that took 10 s, was predicted to take 10.8 s, and held 40 of 80 bytes."""
    values: dict[str, Any] = {
        "source": "paper",
        "family": "dense 3D",
        "device": "a100",
        "model": "gpt",
        "layout": "dp 1",
        "measured": 10.0,
        "predicted": 10.8,
        "memory": 40.0,
        "predicted_memory": 30.0,
        "needed": 35.0,
        "limit": 80.0,
        "oom": False,
        "work": 1.0,
        "sweep": "",
        "fitted": False,
    }
    return summary.Judged(name, **(values | given))


def test_every_source_has_an_address_and_a_number_for_each_row() -> None:
    found = rows.all_rows()
    assert all(row.address.startswith("https://") and row.where for row in found)
    assert all(row.seconds or row.memory or row.oom for row in found)
    assert len({row.name for row in found}) == len(found)


def test_there_is_enough_to_judge() -> None:
    found = rows.all_rows()
    assert len({row.source for row in found}) >= 15
    assert sum(bool(row.seconds) for row in found) >= 150
    assert sum(bool(row.memory) for row in found) >= 40
    assert sum(row.oom for row in found) >= 6
    sweeps: dict[str, int] = {}
    for row in found:
        if row.sweep and row.seconds:
            sweeps[row.sweep] = sweeps.get(row.sweep, 0) + 1
    assert sum(count >= 6 for count in sweeps.values()) >= 3


def test_the_halves_are_decided_by_the_names_of_the_sources() -> None:
    assert {row.source for row in rows.fitted_rows()} == FITTED
    assert {row.source for row in rows.held_out_rows()} == HELD_OUT


def test_bloom_is_read_as_it_stands_in_its_table() -> None:
    (row,) = (row for row in rows.all_rows() if row.source == "bigscience" and row.chosen)
    assert (row.dp, row.pp, row.tp, row.micro, row.seconds) == (8, 12, 4, 2, 104.5)
    assert row.memory == 59 * 2**30
    assert row.between == pytest.approx(6.25e9)
    assert row.sizes["heads"] == 112


def test_tokens_of_a_device_become_seconds_of_an_update() -> None:
    (row,) = (row for row in rows.all_rows() if row.source == "tinyllama")
    assert row.seconds == pytest.approx(1024 * 2048 / (16 * 24000))


def test_operations_are_counted_as_nemo_counts_them() -> None:
    # 16,847 tokens a second are 776 teraFLOP/s of LLAMA2-7B on its page.
    found = sizes.count_operations(sizes.find_sizes("llama2-7b", {}), "matrices")
    assert found * 16847 / 1e12 == pytest.approx(776, rel=0.001)
    # 1,638 tokens a second are 710 teraFLOP/s of LLAMA3_70B where Megatron Bridge finetunes it.
    found = sizes.count_operations(sizes.find_sizes("llama3-70b", {"sequence": 4096}), "causal")
    assert found * 1638 / 1e12 == pytest.approx(710, rel=0.005)
    with pytest.raises(ValueError, match="not known"):
        sizes.count_operations(sizes.find_sizes("grok-1", {}), "matrices")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"read = true": "read = false"}, "read there"),
        ({'name = "made"': 'name = "other"'}, "named after"),
        ({"tp = 2": "tp = 3"}, "no layout of 8 devices"),
        ({"zero = 1": "zeroes = 1"}, "unknown columns zeroes"),
        ({"[4, 1.5]": "[4]"}, "row 1 has 1 values"),
    ],
)
def test_a_source_with_a_slip_is_refused(
    tmp_path: Path, change: dict[str, str], message: str
) -> None:
    text = """
name = "made"
title = "made up"
address = "https://example.invalid"
software = "megatron"
read = true
[[table]]
where = "table 1"
model = "gpt2"
device = "a100"
devices = 8
batch = 8
tp = 2
pp = 1
zero = 1
attention = "flash2"
precision = "bf16"
recompute = "none"
columns = ["micro", "seconds"]
rows = [[4, 1.5]]
"""
    path = tmp_path / "made.toml"
    path.write_text(text)
    assert [row.dp for row in rows.read_source(path)] == [4]
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    with pytest.raises((ValueError, TypeError), match=message):
        rows.read_source(path)


def test_three_rows_are_summarised() -> None:
    judged = [
        make_judged("a/1"),
        make_judged("a/2", predicted=8.0, predicted_memory=50.0, source="other"),
        make_judged("a/3", oom=True, measured=0.0, memory=0.0, needed=79.0),
    ]
    found = summary.summarise(judged)
    whole = found["held_out"]["all"]
    assert found["fitted"]["all"]["rows"] == 0
    assert whole["time"] == {
        "rows": 2,
        "median": 0.14,
        "p90": 0.188,
        "worst": -0.2,
        "bias": -0.06,
        "within_5": 0.0,
        "within_10": 0.5,
    }
    assert (whole["memory"]["rows"], whole["memory"]["worst"]) == (2, -0.25)
    assert (whole["out_of_memory"], whole["called_fitting"]) == (1, 1)
    assert (whole["ran"], whole["called_out_of_memory"]) == (2, 0)
    assert list(found["held_out"]["by_source"]) == ["other", "paper"]


def test_fitted_and_held_out_rows_are_never_mixed() -> None:
    judged = [make_judged("a/1"), make_judged("b/1", predicted=20.0, fitted=True)]
    found = summary.summarise(judged)
    assert found["held_out"]["all"]["time"]["worst"] == 0.08
    assert found["fitted"]["all"]["time"]["worst"] == 1.0


@pytest.mark.parametrize(
    ("first", "second", "correlation"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 3], [1, 3, 2], 0.5),
        ([1, 1, 2], [1, 2, 3], 0.8660254),
    ],
)
def test_rank_correlation(
    first: Sequence[float], second: Sequence[float], correlation: float
) -> None:
    assert summary.rank_correlation(first, second) == pytest.approx(correlation)


def test_a_sweep_is_compared_by_seconds_of_a_token() -> None:
    judged = [
        make_judged("a/1", sweep="s", measured=10.0, predicted=9.0),
        make_judged("a/2", sweep="s", measured=18.0, predicted=16.0, work=2.0),
        make_judged("a/3", sweep="s", measured=12.0, predicted=7.0),
    ]
    (sweep,) = summary.summarise(judged)["held_out"]["sweeps"].values()
    assert sweep == {"layouts": 3, "spearman": -0.5, "loss_of_first": 0.3333}


def test_a_tool_is_compared_on_the_rows_that_both_price() -> None:
    judged = [make_judged("a/1"), make_judged("a/2", predicted=0.0, reason="refused")]
    prices = {0: {"seconds": 12.0, "memory": 44.0}, 1: {"seconds": 10.0}}
    found = others.compare_tool(prices, judged)
    assert found["held_out"]["all"] == {
        "rows": 1,
        "tool": 0.2,
        "planner": 0.08,
        "tool_memory": 0.1,
        "planner_memory": 0.25,
    }
    assert found["fitted"] == {}


def test_the_tables_name_what_has_no_price() -> None:
    judged = [make_judged("a/1"), make_judged("a/2", predicted=0.0, reason="no experts")]
    result = summary.summarise(judged)
    result["count"] = {"sources": 1, "timings": 2, "memories": 1, "out_of_memory": 0}
    result["tools"] = {"calculon": {"skipped": "calculon is left out: not installed."}}
    text = tables.markdown(result)
    assert text.index("Held out") < text.index("may be fitted")
    assert "- 1 × no experts" in text
    assert "calculon is left out" in text
    assert "| dense 3D | 1 | 8.0% | 8.0% | +8.0% | +8.0% |" in text
