"""Several ranks in the report: tables, cards and figures hold the numbers of the run."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import fake_ranks
import pytest
from test_report_page import Page, rows

from dualml.report import machine, ranks, render
from dualml.report.cells import Table
from dualml.report.chapters import chapters
from dualml.report.collectives import measured, size_of
from dualml.report.fits import fitted
from dualml.report.load import load
from dualml.report.schedules import schedules
from dualml.report.strategies import CLOSED, cards, counts, source
from dualml.report.words import LANGUAGES, Words

EN = Words("en")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_ranks.make(tmp_path_factory.mktemp("ranks"))


@cache
def tables(folder: Path) -> list[Table]:
    return [t for c in chapters(load([folder]), EN) for t in c.tables]


def table(folder: Path, name: str) -> Table:
    found = [t for t in tables(folder) if t.name == name]
    assert found, name
    return found[0]


def row(made: Table, *texts: str) -> list[str]:
    """Texts of the one row that holds all of these."""
    lines = [[cell.text for cell in line] for line in made.rows]
    found = [line for line in lines if set(texts) <= set(line)]
    assert len(found) == 1, (texts, lines)
    return found[0]


# --- reading --------------------------------------------------------------------------------------


def test_arms_are_held_against_the_right_ones(folder: Path) -> None:
    run = load([folder])
    assert run.main_arms() == ["single", "all-reduce-n2", "ring-n2"]
    assert ranks.base_of(run, "slow-ring") in ("ring-n2", "base-ring")
    assert ranks.like(run, "sum", "aggregation.reduce", reduce="weighted") == "all-reduce-n2"
    assert ranks.like(run, "local-4", "aggregation.every", every=1) == "parameters"
    assert ranks.like(run, "sum-lr-over-n", "aggregation.reduce", reduce="weighted") is None
    assert ranks.handicap(run, "slow-ring") == "compute"
    assert ranks.told_slow(run, "slow-late", EN) == "rank 1: computing × 4, from update 51 on"
    assert machine.crowded(run) == [("torch", 4, 2, 2), ("mindspore", 4, 2, 2)]
    assert machine.vector_bytes(run) == 4 * 51_902


def test_a_base_of_another_length_is_better_than_none(tmp_path: Path) -> None:
    def longer(run: dict) -> None:
        run["experiment"]["arms"]["base-ring"]["epochs"] = 2

    arms = ["single", "base-ring", "slow-ring"]
    run = load([fake_ranks.make(tmp_path, arms=arms, change=longer)])
    assert ranks.base_of(run, "slow-ring") == "base-ring"


def test_measurements_and_fits(folder: Path) -> None:
    run = load([folder])
    found = measured(run)
    assert [(m.backend, m.n) for m in found] == [
        ("torch", 2), ("torch", 4), ("mindspore", 2), ("mindspore", 4),
    ]  # fmt: skip
    for m in found:
        assert "neighbour" not in m.exact()
        for (strategy, nbytes), line in m.rows.items():
            told = fitted(run, m.backend, m.n, strategy, nbytes)
            assert told == pytest.approx(line["seconds"], rel=1e-6)
    assert [size_of(b) for b in (1000, 1024, 1.5 * 2**20, 2**30)] == [
        "1,000 B", "1 KiB", "1.5 MiB", "1 GiB",
    ]  # fmt: skip


# --- tables ---------------------------------------------------------------------------------------


def test_times_with_quartiles(folder: Path) -> None:
    made = table(folder, "collectives")
    assert len(made.rows) == 2 * 2 * 5
    line = next(r for r in made.rows if [c.text for c in r][:3] == ["ring", "torch", "4"])
    # 6 messages of 0.1 ms and 1.5 S of 1 ns/B
    assert line[3].text == "0.602"
    assert line[4].text == "2.17"
    assert line[4].note == "2.15 – 2.19"
    best = next(r for r in made.rows if [c.text for c in r][:3] == ["all_reduce", "torch", "4"])
    assert [c.tone for c in best[3:]] == ["good", "good"]


def test_bytes_counted_closed_and_on_the_wire(folder: Path) -> None:
    made = table(folder, "traffic")
    assert row(made, "tree", "torch", "4") == [
        "tree", "torch", "4", "2", "2", "2,097,152", "2,097,152", "6,291,456", "6,291,456", "1",
    ]  # fmt: skip
    native = row(made, "all_reduce", "mindspore", "4")
    assert native[3] == native[5] == "inside"
    assert native[-1] == "2"


def test_fits_and_checks(folder: Path) -> None:
    line = row(table(folder, "fits"), "mindspore", "4", "point to point")
    assert line[3:6] == ["300", "3", "0.333"]
    checked = row(table(folder, "checks"), "torch", "ring")
    assert checked[1:3] == ["4", "2"]
    assert checked[-2:] == ["1.5", "1.5 – 1.5"]


def test_training_slowdown_and_staleness(folder: Path) -> None:
    made = table(folder, "training")
    assert row(made, "ring-n2", "mindspore")[2:6] == ["2", "ring", "45", "40.0"]
    assert row(made, "ring-n2", "torch")[-1] == "✓ equal"
    assert row(made, "sum", "torch")[-1] == "another rule"
    assert not [r for r in made.rows if r[0].text == "slow-ring"]
    slow = row(table(folder, "slowdown"), "slow-ring", "mindspore")
    assert slow[3:] == ["30", "84", "2.8", "3.5", "2.8", "67.9"]
    stale = row(table(folder, "staleness"), "async", "torch")
    assert stale[3:] == ["1", "3", "0.5 · 1.5"]


def test_settings_say_what_the_ranks_do(folder: Path, tmp_path: Path) -> None:
    page = render([folder], tmp_path)[0].read_text("utf-8")
    told = {re.findall(r">([^<>]+)<", line)[0]: line for line in rows(page, "aggregation")}
    assert len(told) == 14
    assert "one by one" in told["one-by-one"]
    assert "topk 1 %" in told["top"]
    assert ">free<" in told["async-free"]
    how = rows(page, "how")
    reduce = next(line for line in how if ">reduce<" in line)
    assert 'class="tone good">native' in reduce
    assert 'class="tone near">composed' in reduce
    assert "gather and fold" in reduce
    assert len(rows(page, "serial")) == 14
    assert len(rows(page, "other-rules")) == 7
    assert len(rows(page, "trials")) == 15 * 2  # nothing trained in micro
    assert len(rows(page, "arms")) == 2  # 0.05 and 0.025


# --- principle and figures ------------------------------------------------------------------------


def test_every_strategy_has_its_card(folder: Path) -> None:
    made = {c.name: c for c in cards(load([folder]), EN)}
    assert set(made) == {*fake_ranks.STRATEGIES, fake_ranks.ASYNC}
    assert "Patarasuk & Yuan 2009" in made["ring"].source
    assert made["tree"].counts[1] == (
        "n = 4: 4 steps; the busiest rank sends 2 messages and 2 S, all ranks together 6 S."
    )
    assert counts("ring", 4, EN).startswith("n = 4: 6 steps; the busiest rank sends 6 messages and")
    for name, formulas in CLOSED.items():
        assert len(formulas) == 3
        assert EN(f"strategy.{name}")
        if name not in ("all_reduce", "all_gather", "reduce_broadcast"):
            assert source(name), name


def test_schedules_are_drawn_once(folder: Path) -> None:
    made = {f.name: f for f in schedules(load([folder]), EN)}
    assert set(made) == {"schedule-all-reduce", "schedule-reduce-broadcast", "schedule-neighbour"}
    assert made["schedule-all-reduce"].alt == (
        "Schedule of all_reduce and ring among 4 ranks: 24 messages in 6 steps."
    )
    assert made["schedule-reduce-broadcast"].width < made["schedule-all-reduce"].width


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_whole_page(folder: Path, tmp_path: Path, lang: str) -> None:
    paths = render([folder], tmp_path, lang)
    text, markdown = (p.read_text("utf-8") for p in paths[:2])
    page = Page(text)
    ids = [value for _, key, value in page.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    names = [i.removeprefix("figure-") for i in ids if i.startswith("figure-")]
    for name in ("collectives", "predictions", "communication", "bottleneck-torch", "slowdown",
                 "serial-distance", "ranks-strategies", "ranks-reduce"):  # fmt: skip
        assert name in names
    for name in names:
        assert f"](figures/{name}.svg)" in markdown
        assert (tmp_path / f"figures/{name}.svg").is_file()
    assert [i for i in ids if i.startswith("chapter-")] == [
        f"chapter-{c}" for c in ("collectives", "training", "bottleneck", "staleness")
    ]
    for file in ("aggregation/ring.py", "aggregation/parallel.py", "dualml_torch/communicator.py"):
        assert file in text
        assert file in markdown
    assert render([folder], tmp_path / "again", lang)[0].read_text("utf-8") == text
