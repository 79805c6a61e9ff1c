"""Several ranks in the report: tables, cards and figures hold the numbers of the run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

import fake_ranks
import pytest
from page_parts import page, row, sections, tables
from test_report_page import Page, rows

from dualml.common.registry import cited_source
from dualml.common.words import LANGUAGES, Messages
from dualml.common.words.numbers import nbytes
from dualml.experiment.store.load import load
from dualml.parallel import aggregation
from dualml.parallel.aggregation import ASYNCHRONOUS, STRATEGIES
from dualml.report import legend, machine, ranks, render
from dualml.report.blocks import Card, Prose, RowBlock, SectionBlock, Table, walk
from dualml.report.collective_timing import collective_measurements, uncrowded_measurements
from dualml.report.figure import Bar, Figure, LineMark
from dualml.report.fits import predict_seconds
from dualml.report.topics import combination, principle, schedules

pytestmark = pytest.mark.whole

B = TypeVar("B")
EN = Messages("en")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_ranks.make_run(tmp_path_factory.mktemp("ranks"))


def table(folder: Path, name: str) -> Table:
    return tables(page(folder))[name]


def blocks(folder: Path, kind: type[B]) -> list[B]:
    return [block for block in walk(page(folder).blocks) if isinstance(block, kind)]


def cells(made: Table, *texts: str) -> list[str]:
    """Return the texts of the only row that contains all of these texts."""
    return list(row(made, *texts).values())


# --- reading --------------------------------------------------------------------------------------


def test_arms_are_held_against_the_right_ones(folder: Path) -> None:
    run = load([folder])
    assert run.main_arms() == ["single", "all-reduce-n2", "ring-n2"]
    assert run.contrast.arm_without_straggler("slow-ring") in ("ring-n2", "base-ring")
    assert ranks.handicap(run, "slow-ring") == "compute"
    assert ranks.handicap_text(run, "slow-late", EN) == "rank 1: computing × 4, from update 51 on"
    assert machine.oversubscribed_backends(run) == [("torch", 4, 2, 2), ("mindspore", 4, 2, 2)]
    assert machine.vector_bytes(run) == 4 * 51_902


def test_a_base_of_another_length_is_better_than_none(tmp_path: Path) -> None:
    def longer(run: dict) -> None:
        run["experiment"]["arms"]["base-ring"]["epochs"] = 2

    arms = ["single", "base-ring", "slow-ring"]
    run = load([fake_ranks.make_run(tmp_path, arms=arms, change=longer)])
    assert run.contrast.arm_without_straggler("slow-ring") == "base-ring"


def test_arms_that_combine_otherwise_have_their_plain_arm(folder: Path) -> None:
    rules = {arm: (rule, other) for arm, rule, other in combination.compared_arms(load([folder]))}
    assert rules == {
        "sum": ("sum", "all-reduce-n2"),
        "sum-lr-over-n": ("sum", "all-reduce-n2"),
        "parameters": ("parameters", "all-reduce-n2"),
        "local-4": ("local", "parameters"),
        "async": ("asynchronous", "all-reduce-n2"),
        "async-free": ("asynchronous", "all-reduce-n2"),
        "fp16": ("compress", "all-reduce-n2"),
        "top": ("compress", "all-reduce-n2"),
        "one-by-one": ("one_by_one", "all-reduce-n2"),
    }


def test_measurements_and_fits(folder: Path) -> None:
    run = load([folder])
    every = collective_measurements(run)
    assert [(m.backend, m.n) for m in every] == [
        ("torch", 2),
        ("torch", 4),
        ("mindspore", 2),
        ("mindspore", 4),
    ]
    assert [m.n for m in uncrowded_measurements(run, every)] == [2, 2]  # on two cores
    for m in every:
        assert "neighbour" not in m.competing(1024)
        for (strategy, size), line in m.rows.items():
            seconds = predict_seconds(run, m.backend, m.n, strategy, size)
            assert seconds == pytest.approx(line["seconds"], rel=1e-6)
    assert [nbytes(b) for b in (1000, 1024, 1.5 * 2**20, 2**30)] == [
        "1,000 B",
        "1 KiB",
        "1.5 MiB",
        "1 GiB",
    ]


# --- tables ---------------------------------------------------------------------------------------


def test_the_first_table_answers(folder: Path) -> None:
    """The sentences compare short and long vectors per framework, fastest first, and give the cost
    of a slow node."""
    made = table(folder, "fastest")
    assert [c.label for c in made.columns] == [
        "strategy",
        "torch, 1 KiB",
        "torch, 1 MiB",
        "mindspore, 1 KiB",
        "mindspore, 1 MiB",
        "torch, one slow node",
        "mindspore, one slow node",
    ]
    rows = [[cell.text for cell in line] for line in made.cells]
    assert sorted(float(r[2]) for r in rows) == [float(r[2]) for r in rows]
    assert set(fake_ranks.STRATEGIES) - {"neighbour"} == {r[0] for r in rows}
    ring = next(line for line in made.cells if line[0].text == "ring")
    assert [(c.text, c.note) for c in ring[5:]] == [("2.8", "rank 1: computing × 4")] * 2
    assert [c.tone for c in next(iter(made.cells))[1:5]] == ["good"] * 4
    summary = page(folder).blocks[0]
    assert isinstance(summary, SectionBlock)
    assert made in list(walk(summary.blocks))


def test_times_with_quartiles(folder: Path) -> None:
    made = table(folder, "collectives")
    assert len(made.rows) == 2 * 2 * 5
    line = next(r for r in made.cells if [c.text for c in r][:3] == ["ring", "torch", "4"])
    # 6 messages of 0.1 ms and 1.5 S of 1 ns/B
    assert line[3].text == "0.602"
    assert line[4].text == "2.17"
    assert line[4].note == "2.15 – 2.19"
    best = next(r for r in made.cells if [c.text for c in r][:3] == ["all_reduce", "torch", "4"])
    assert [c.tone for c in best[3:]] == ["good", "good"]


def test_bandwidths_as_nccl_tests_define_them(folder: Path) -> None:
    made = table(folder, "bandwidths")
    assert {r[0].text for r in made.cells} == {*fake_ranks.STRATEGIES} - {"neighbour"}
    line = next(r for r in made.cells if [c.text for c in r][:3] == ["ring", "torch", "4"])
    # 1 MiB in 2.17 ms are 0.483 GB/s, of which 2 · 3/4 pass each rank's link
    assert (line[4].text, line[4].note) == ("0.724", "0.483")


def test_bytes_counted_closed_and_on_the_wire(folder: Path) -> None:
    made = table(folder, "traffic")
    assert cells(made, "tree", "torch", "4") == [
        "tree",
        "torch",
        "4",
        "2",
        "2",
        "2,097,152",
        "2,097,152",
        "6,291,456",
        "6,291,456",
        "1",
    ]
    native = cells(made, "all_reduce", "mindspore", "4")
    assert native[3] == native[5] == "inside"
    assert native[-1] == "2"


def test_fits_and_checks(folder: Path) -> None:
    line = cells(table(folder, "fits"), "mindspore", "4", "point to point")
    assert line[3:6] == ["300", "3", "0.333"]
    checked = cells(table(folder, "checks"), "torch", "ring")
    assert checked[1:3] == ["4", "2"]
    assert checked[-2:] == ["1.5", "1.5 – 1.5"]


def test_training_slowdown_and_staleness(folder: Path) -> None:
    made = table(folder, "training")
    assert cells(made, "ring-n2", "mindspore")[2:6] == ["2", "ring", "45", "40.0"]
    assert cells(made, "ring-n2", "torch")[-1] == "✓ equal"
    assert cells(made, "sum", "torch")[-1] == "another rule"
    assert not [r for r in made.cells if r[0].text == "slow-ring"]
    steps = [[cell.text for cell in line] for line in table(folder, "steps").cells]
    assert steps == [
        ["all_reduce", "10", "40.0", "30", "40.0"],
        ["ring", "15", "40.0", "45", "40.0"],
    ]
    slow = cells(table(folder, "slowdown"), "slow-ring", "mindspore")
    assert slow[3:] == ["30", "84", "2.8", "3.5", "2.8", "67.9"]
    stale = cells(table(folder, "staleness"), "async", "torch")
    assert stale[3:] == ["1", "3", "0.5 · 1.5"]


def test_other_rules_beside_the_plain_one(folder: Path) -> None:
    made = table(folder, "combination")
    assert len(made.rows) == 9 * 2
    line = next(r for r in made.cells if [r[0].text, r[1].text] == ["one-by-one", "torch"])
    assert [c.text for c in line[2:4]] == ["all-reduce-n2", "bucket_bytes"]
    assert (line[-1].text, line[-1].note) == ("30", "10")
    differs = {r[0].text: r[3].text for r in made.cells}
    assert differs["sum-lr-over-n"] == "lr, reduce"
    assert differs["local-4"] == "every"


def test_settings_say_what_the_ranks_do(folder: Path, tmp_path: Path) -> None:
    page = render([folder], tmp_path)[0].read_text("utf-8")
    lines = {re.findall(r">([^<>]+)<", line)[0]: line for line in rows(page, "aggregation")}
    assert len(lines) == 14
    assert "one by one" in lines["one-by-one"]
    assert "topk 1 %" in lines["top"]
    assert ">free<" in lines["async-free"]
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
    run = load([folder])
    made = {b.title: b for b in principle.strategy_cards(run, EN) if isinstance(b, Card)}
    assert set(made) == {*fake_ranks.STRATEGIES, fake_ranks.ASYNC}
    texts = {name: [b.text for b in c.blocks if isinstance(b, Prose)] for name, c in made.items()}
    assert any("Patarasuk & Yuan 2009" in text for text in texts["ring"])
    assert (
        "n = 4: 4 steps; the busiest rank sends 2 messages and 2 S, all ranks together 6 S."
    ) in texts["tree"]
    assert principle.schedule_counts("ring", 4, EN).startswith(
        "n = 4: 6 steps; the busiest rank sends 6 messages and"
    )
    for name in (*STRATEGIES, ASYNCHRONOUS):
        assert len(principle.formulas(name)) == 3
        assert EN(f"strategy.{name}")
        if name not in ("all_reduce", "all_gather", "reduce_broadcast"):
            assert cited_source(principle.strategy_class(name)), name


def test_schedules_are_drawn_once(folder: Path) -> None:
    (shown,) = schedules.evidence(load([folder]), EN)
    assert isinstance(shown, RowBlock)
    made = {f.name: f for f in shown.blocks if isinstance(f, Figure)}
    assert set(made) == {"schedule-all-reduce", "schedule-reduce-broadcast", "schedule-neighbour"}
    assert made["schedule-all-reduce"].alt == (
        "Schedule of all_reduce and ring among 4 ranks: 24 messages in 6 steps."
    )
    assert made["schedule-reduce-broadcast"].width < made["schedule-all-reduce"].width


def test_curves_of_strategies_and_of_other_rules(folder: Path) -> None:
    """Arms that differ only in the strategy are labelled by it, others by their own names."""
    made = {f.name: f for f in blocks(folder, Figure)}
    owners = {
        name: {mark.owner for panel in made[name].panels if panel for mark in panel.marks}
        for name in ("ranks-strategies", "ranks-reduce")
    }
    assert {o.series for o in owners["ranks-strategies"]} == {"", "all_reduce", "ring"}
    assert {o.arm for o in owners["ranks-strategies"]} == {"", "single"}
    assert {o.arm for o in owners["ranks-reduce"]} == {"single", "sum", "sum-lr-over-n"}
    assert {o.backend for o in owners["ranks-reduce"]} == {"torch", "mindspore"}


def test_slow_ranks_beside_healthy_ones(folder: Path) -> None:
    """Panels of one handicap share their scale, and the slow rank is marked."""
    made = {f.name: f for f in blocks(folder, Figure)}
    panels = [panel for panel in made["bottleneck-torch"].panels if panel]
    assert [panel.title for panel in panels] == ["slow-ring", "slow-late"]
    assert len({panel.x.high for panel in panels}) == 1
    assert all(list(panel.y.names) == ["0", "1 ◂"] for panel in panels)
    bars = {m.owner.series for m in panels[0].marks if isinstance(m, Bar)}
    assert bars == {f"{p}_s{s}" for p in ("compute", "wait", "transfer") for s in ("", "-without")}
    (panel,) = made["slowdown"].panels
    assert panel is not None
    points = {
        (m.owner.backend, m.owner.series): list(m.x)
        for m in panel.marks
        if isinstance(m, LineMark) and not m.joined
    }
    assert points["torch", ""][0] == pytest.approx(2.8)
    assert points["torch", "predicted"][0] == pytest.approx(3.5)


def test_a_strategy_of_others_has_a_name_and_a_colour(tmp_path: Path) -> None:
    """An unknown strategy, of a newer version or a plugin, is measured, trained and drawn."""

    def rename(run: dict) -> None:
        arms = run["experiment"]["arms"]
        arms["ring-n2"] = {**arms["ring-n2"], "aggregation": {"strategy": "gossip"}}

    folder = fake_ranks.make_run(tmp_path, change=rename)
    for path in folder.glob("trials/micro-*/*/seed0/collectives.json"):
        path.write_text(path.read_text("utf-8").replace('"ring"', '"gossip"'), "utf-8")
    html = render([folder])[0].read_text("utf-8")
    assert "gossip" in html
    made = {f.name: f for f in blocks(folder, Figure)}
    keys = {key.name: key for key in made["collectives"].entries if key.kind == "series"}
    assert keys["gossip"].color
    assert keys["gossip"].marker
    assert keys["gossip"].color not in {k.color for n, k in keys.items() if n != "gossip"}
    assert "gossip" in {line[0].text for line in table(folder, "collectives").cells}
    assert row(table(folder, "training"), "ring-n2", "torch")["strategy"] == "gossip"


def test_more_strategies_than_colours_keep_them_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict.fromkeys(f"strategy{k}" for k in range(len(legend.STRATEGY_COLORS) - 1))
    monkeypatch.setattr(aggregation, "STRATEGIES", known)
    used = ["strategy0", *aggregation.SCHEMES, "gossip", "rumour"]
    colors = [entry.color for entry in legend.strategies(used)]
    assert len(set(colors)) == len(used)
    assert legend.strategies(["strategy0"])[0].color == colors[0]  # wherever it is shown


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_whole_page(folder: Path, tmp_path: Path, lang: str) -> None:
    paths = render([folder], tmp_path, lang)
    text, markdown = (p.read_text("utf-8") for p in paths[:2])
    page = Page(text)
    ids = [value for _, key, value in page.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    names = [i.removeprefix("figure-") for i in ids if i.startswith("figure-")]
    for name in (
        "fastest",
        "collectives",
        "predictions",
        "communication",
        "bottleneck-torch",
        "slowdown",
        "serial-distance",
        "ranks-strategies",
        "ranks-reduce",
    ):
        assert name in names
    for name in names:
        assert f"](figures/{name}.svg)" in markdown
        assert (tmp_path / f"figures/{name}.svg").is_file()
    topics = (
        "collectives",
        "traffic",
        "native",
        "predictions",
        "training",
        "combination",
        "bottleneck",
        "staleness",
    )
    assert [name for name in sections(text) if name in topics] == list(topics)
    for file in (
        "aggregation/ring.py",
        "aggregation/parallel.py",
        "dualml_torch/algorithms/communicator.py",
    ):
        assert file in text
        assert file in markdown
    assert render([folder], tmp_path / "again", lang)[0].read_text("utf-8") == text
