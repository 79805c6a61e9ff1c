"""The arithmetic of the benchmarks; nothing here measures time."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dualml.interface.bench import timing

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(FOLDER))
import ratio_rows  # noqa: E402


@contextlib.contextmanager
def loaded(name: str) -> Iterator[Any]:
    """Load a module of `benchmarks`, which is no package."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Any]:
    with loaded("ranks") as module:
        yield module


@pytest.fixture(scope="module")
def pages() -> Iterator[Any]:
    with loaded("pages") as module:
        yield module


def test_a_ratio_is_the_median_of_the_rounds_not_the_ratio_of_medians() -> None:
    found = timing.ratio_quartiles(
        [2.0, 30.0, 8.0], [1.0, 10.0, 10.0]
    )  # 2, 3, 0.8; medians: 8 / 10
    assert found.median == 2.0
    assert (found.low, found.high) == pytest.approx((1.4, 2.5))


def test_a_disturbance_that_all_variants_share_changes_no_ratio() -> None:
    load = [1.0, 7.0, 2.0, 100.0]
    found = timing.ratio_quartiles([3 * x for x in load], [2 * x for x in load])
    assert (found.low, found.median, found.high) == (1.5, 1.5, 1.5)


@pytest.mark.parametrize(("ours", "other"), [([1.0], [1.0]), ([1.0, 2.0], [1.0, 2.0, 3.0])])
def test_rounds_that_do_not_pair_up_are_refused(ours: Any, other: Any) -> None:
    with pytest.raises(ValueError, match=f"received {len(ours)} and {len(other)}"):
        timing.ratio_quartiles(ours, other)


def test_variants_take_turns_and_each_one_follows_each_other_one() -> None:
    calls: list[str] = []

    def variant(name: str) -> Any:
        def run_once() -> float:
            calls.append(name)
            return float(len(calls))

        return run_once

    times = timing.time_interleaved({name: variant(name) for name in "abc"}, rounds=40, warm_up=2)
    rounds = [calls[i : i + 3] for i in range(0, len(calls), 3)]
    assert len(rounds) == 42
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    followed = {(a, b) for one in rounds for a, b in itertools.pairwise(one)}
    assert followed == {(a, b) for a in "abc" for b in "abc" if a != b}
    assert {name: len(spent) for name, spent in times.items()} == {"a": 40, "b": 40, "c": 40}
    assert min(times["a"] + times["b"] + times["c"]) == 7.0  # six calls warmed up


def test_the_best_competitor_has_the_smallest_median() -> None:
    times = {"ours": [0.0, 0.0], "spiky": [1.0, 1.0, 90.0], "steady": [2.0, 2.0, 2.0]}
    assert ratio_rows.fastest_variant(times, ["steady", "spiky"]) == "spiky"


def test_a_target_is_met_by_the_median_and_a_row_without_one_only_reports() -> None:
    times = {"ours": [1.0, 1.1, 1.2], "best": [1.0, 1.0, 1.0]}
    for target, met in ((1.1, True), (1.09, False), (None, None)):
        row = ratio_rows.make_row("s", "w", "a", times, "ours", "best", target=target)
        assert row.meets_target is met
        assert row.describe()["met"] is met
    limit = ratio_rows.RatioRow(
        section="s", what="w", against="a", ours=0.3, other=None, unit="s", ratio=None, target=0.25
    )
    assert limit.meets_target is False


def test_the_slowest_rank_of_each_round_counts(ranks: Any) -> None:
    told = [{"a": [1.0, 5.0], "b": [2.0, 2.0]}, {"a": [3.0, 4.0], "b": [1.0, 9.0]}]
    assert ranks.slowest(told) == {"a": [3.0, 5.0], "b": [2.0, 9.0]}
    for odd in ({"a": [1.0], "b": [2.0, 2.0]}, {"a": [1.0, 5.0]}):
        with pytest.raises(ValueError, match="the same rounds"):
            ranks.slowest([told[0], odd])


def test_a_round_starts_together_and_is_the_mean_of_its_calls(ranks: Any) -> None:
    seen: list[str] = []

    class Group:
        def barrier(self) -> None:
            seen.append("barrier")

    once = ranks.paced(Group(), lambda: seen.append("call"), repeats=3)
    assert once() > 0
    assert seen == ["barrier", "call", "call", "call"]


def test_a_missed_target_is_a_tie_only_where_rounds_fall_on_both_sides(ranks: Any) -> None:
    for ours, told in (([0.9, 0.9, 1.2, 1.2, 1.2], "why"), ([1.1, 1.2, 1.3, 1.2, 1.2], "")):
        times = {"a": ours, "b": [1.0] * 5}
        made = ratio_rows.make_row("s", "w", "a", times, "a", "b", target=1.05)
        assert made.meets_target is False
        assert ranks.tie(made, "why").note == told


def checks(nbytes: int, strategy: str = "ring", **times: float) -> dict[str, Any]:
    group = {"backend": "torch", "world_size": 4, "from_world_size": 2}
    return {**group, "strategy": strategy, "bytes": nbytes, **times}


def test_the_summary_counts_measurements_that_have_no_row(pages: Any) -> None:
    told = {
        "checks": [
            checks(2**20, measured_s=0.002, predicted_s=0.001),
            checks(2**18, measured_s=0.003, predicted_s=0.001),
            checks(2**20, "halving_doubling", measured_s=0.004, predicted_s=0.001),
        ]
    }
    text = pages.predictions(told, "en")
    assert "torch, n = 4, predicted from n = 2: measured / predicted 3.00 (median of 3" in text
    rows = [line for line in text.splitlines() if line.startswith("| torch")]
    assert rows == ["| torch | 4 | `ring` | 1 MB | 2 ms | 1 ms | 2.00 |"]
    assert "3.00" in pages.predictions(told, "zh")


def test_capabilities_name_the_types_that_differ_and_backends_that_are_not_there(
    pages: Any,
) -> None:
    reduce = {"kind": "native", "detail": "a|b", "differing": {"composed": ["float64"]}}
    columns = [
        {"backend": "x", "device": "cpu", "reason": None, "primitives": {"all_reduce": reduce}},
        {"backend": "y", "device": "cuda", "reason": "no GPU"},
    ]
    told = {"ranks": 2, "ok": True, "columns": columns}
    line = pages.capabilities(told, "en").splitlines()[2]
    assert line == r"| `all_reduce` | native: a\|b; composed: float64 | unsupported: no GPU |"
    assert "原生：" in pages.capabilities(told, "zh")


@pytest.mark.parametrize("name", ["capabilities", "predictions"])
def test_a_table_goes_between_its_marks_on_both_pages(pages: Any, name: str) -> None:
    for path in pages.PAGES:
        page = path.read_text("utf-8")
        made = pages.replace_between_marks(page, name, "one\n")
        assert f"<!-- {name}: begin -->\none\n<!-- {name}: end -->" in made
        assert pages.replace_between_marks(made, name, "one\n") == made
        assert made.count("<!--") == page.count("<!--")
        assert (
            made.partition(f"<!-- {name}: begin -->")[0]
            == page.partition(f"<!-- {name}: begin -->")[0]
        )
        assert (
            made.partition(f"<!-- {name}: end -->")[2] == page.partition(f"<!-- {name}: end -->")[2]
        )
    with pytest.raises(ValueError, match="no marks"):
        pages.replace_between_marks("a page", name, "one\n")


@pytest.mark.parametrize(
    "text",
    [
        "all_reduce, 2 ranks, 64 MB",
        "ring, 4 ranks, 16 MB",
        "one bucket, 2 ranks, 100 tensors, 4 MB",
        "all_reduce, 2 ranks, MLP, 235 thousand",
        "one compiled cell, ops.AllReduce, flat",
        "start-up of two ranks, mindspore",
        "until the first sum is there",
        "partitions of a million labelled samples to 100 ranks",
        "partitioning 0.25 s, the rest is verification",
        "batches of 256 by index",
        "DataLoader, 2 workers",
        "GeneratorDataset, 2 workers",
        "efficiency 0.86, at least 0.85 is good",
        "gloo's receiving thread as it is",
        "the same with gloo's threads as dualml leaves them",
        "beside busy processes, torch",
        "1 rank, 2 threads, as dualml does it, quiet",
        "4 ranks, 1 thread, as dualml does it, beside 2 busy",
        "2 ranks, settings that keep to both limits",
        "beside 1, 2 and 4 busy processes 1.05, 1.10, 0.98 of fair",
        "1 thread, nothing set; 2 threads, as dualml does it",
    ],
)
def test_rows_of_several_ranks_have_chinese_words(text: str) -> None:
    with loaded("tables") as tables:
        said = tables.translate_row(text, "zh")
    assert said != text
    assert not re.search(r"ranks|thousand|bucket|tensors|workers|proving|good|thread|, ", said)


@pytest.fixture
def busy() -> Iterator[Any]:
    with loaded("busy_work"), loaded("busy_groups"), loaded("busy") as module:
        yield module


def test_fair_share_counts_the_threads_that_compete_for_the_cores(busy: Any) -> None:
    for (n, t, b), told in {
        (1, 1, 1): 1.0,
        (1, 1, 4): 2.5,
        (1, 2, 1): 1.5,
        (2, 1, 4): 3.0,
        (4, 1, 4): 2.0,
        (4, 2, 4): 1.5,
        (2, 2, 0): 1.0,
    }.items():
        assert busy.fair(n, t, b, 2) == told


def test_a_setting_is_kept_if_it_is_good_quiet_and_beside_others(busy: Any) -> None:
    asked = [busy.ThreadSetting(busy.OURS, 2), busy.variable("GOMP_SPINCOUNT", 0, 2)]
    asked.append(busy.ThreadSetting(busy.BESIDE, 2, busy=(0.5, 0.5)))
    quiet, other, ours = map(str, asked)
    times = {0: {quiet: [10.0, 10.1], other: [10.0, 10.0], ours: [11.0, 11.0]}}
    times |= {b: {quiet: [90.0], ours: [15.0, 15.0], other: [90.0]} for b in busy.LOADS if b}
    rows = {row.what: row for row in busy.judge("s", 1, asked, times, 2)}
    assert rows[f"1 rank, {quiet}, quiet"].meets_target is True
    assert rows[f"1 rank, {ours}, beside 1 busy"].meets_target is True
    assert rows[f"1 rank, {ours}, quiet"].meets_target is None
    kept = rows["1 rank, settings that keep to both limits"]
    assert (kept.ours, kept.other, kept.note) == (0, 3, "")
    times[0][ours] = [10.0, 10.1]
    rows = {row.what: row for row in busy.judge("s", 1, asked, times, 2)}
    kept = rows["1 rank, settings that keep to both limits"]
    assert (kept.ours, kept.other, kept.note) == (1, 3, ours)
    assert "6.00, 4.50, 3.00 of fair" in rows[f"1 rank, {other}, quiet"].note
    times[1][ours] = [24.0, 22.0]
    rows = {row.what: row for row in busy.judge("s", 1, asked, times, 2)}
    assert rows[f"1 rank, {ours}, beside 1 busy"].meets_target is False


def test_busy_processes_end_with_the_block(busy: Any) -> None:
    import psutil

    def spinning() -> set[int]:
        return {one.pid for one in psutil.Process().children()}

    before = spinning()
    with contextlib.suppress(KeyboardInterrupt), busy.busy(2):
        assert len(spinning() - before) == 2
        raise KeyboardInterrupt
    assert spinning() == before


def test_large_gains_keep_their_digits() -> None:
    with loaded("tables") as tables:
        told = [
            tables.shares({"median": m, "low": low, "high": high})
            for m, low, high in (
                (0.98765, 0.9123, 1.2345),
                (0.98765, 0.98765, 0.98765),
                (0.00153, 0.00134, 0.0021),
            )
        ]
    assert told == ["0.988 (0.91 – 1.23)", "0.988", "0.00153 (0.0013 – 0.0021)"]


@pytest.fixture(scope="module")
def results() -> Iterator[Any]:
    with loaded("tables"), loaded("results") as module:
        yield module


def record(section: str, what: str) -> dict[str, Any]:
    return {
        "section": section,
        "what": what,
        "against": "",
        "ours": 1.0,
        "other": None,
        "unit": "",
        "ratio": None,
        "target": None,
        "met": None,
        "note": "",
    }


def test_tables_measured_by_themselves_leave_the_rest_of_a_page(
    results: Any, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{results.BEGIN}\n{results.END}\nafter\n")
    facts = ["cpu: this", "versions: these", "load: 1"]
    both = [record("one", "old"), record("two", "kept")]
    results.write(page, both, facts, whole=True)
    fresh = [record("one", "new"), record("three", "more")]
    results.write(page, fresh, [*facts[:2], "load: 2"], whole=False)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert re.findall(r"^### (\w+)", text, re.MULTILINE) == ["one", "two", "three"]
    assert re.findall(r"^\| (old|new|kept|more) ", text, re.MULTILINE) == ["new", "kept", "more"]
    assert "load: 1" in text
    assert not results.strange(text, ["cpu: this", "load: 3"])
    assert results.strange(text, ["cpu: another", "versions: these"]) == ["cpu: another"]
    results.write(page, fresh, facts, whole=True)
    assert re.findall(r"^### (\w+)", page.read_text(), re.MULTILINE) == ["one", "three"]


@pytest.mark.parametrize(
    ("lang", "page"), [("en", "benchmarks-robustness.md"), ("zh", "benchmarks-robustness.zh.md")]
)
def test_the_page_has_the_figures_of_the_walls_and_they_keep_their_bounds(
    lang: str, page: str
) -> None:
    with loaded("isolation") as isolation:
        found = json.loads((FOLDER / "isolation.json").read_text("utf-8"))
        text = (FOLDER.parent / "docs" / page).read_text("utf-8")
        assert f"{isolation.BEGIN}\n{isolation.tables(found, lang)}{isolation.END}" in text
        checks = [row for name, row in found["isolation"].items() if "check" in name]
        assert len(checks) == 2
        assert all(row["more_ms"] <= 150 for row in checks)
        assert found["isolation"][f"a class of {isolation.CLASS}, torch"]["ratio"] <= 1.10
        assert max(found["told_s"].values()) <= 8.0
