"""Exported traces follow Chrome's trace event format and match the ranks' files."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import fake_ranks
import fake_run
import fake_splits
import numpy as np
import pytest

from dualml.experiment.store.load import load
from dualml.experiment.store.times import TIMELINE, TIMES
from dualml.parallel.split.timeline import KINDS
from dualml.report.export import export
from dualml.report.export.spans import COMMUNICATION, RankTrace, TraceSpan
from dualml.report.export.trace import assign_threads, make_trace

Event = dict[str, Any]


def events_of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["ph"] == kind]


def faults(events: list[Event]) -> list[str]:
    """Return the violations of the "Trace Event Format" by complete, metadata and flow events."""
    wrong, lanes = [], defaultdict[tuple[int, int], list[Event]](list)
    for event in events:
        wrong += [f"{event} has no {key}" for key in {"name", "ph", "pid", "tid"} - event.keys()]
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append(event)
            if not (event["ts"] >= 0 and event["dur"] > 0):
                wrong.append(f"{event}: times")
    for where, own in lanes.items():
        names = {
            e["args"]["name"]
            for e in events_of(events, "M")
            if e["name"] == "thread_name" and (e["pid"], e["tid"]) == where
        }
        wrong += [f"{where} is called {names}"] * (len(names) != 1)
        moments = [e["ts"] for e in own]
        wrong += [f"{where}: not in order"] * (moments != sorted(moments))
        inside: list[int] = []
        for event in own:
            begin, end = round(1e3 * event["ts"]), round(1e3 * (event["ts"] + event["dur"]))
            while inside and inside[-1] <= begin:
                inside.pop()
            if inside and end > inside[-1]:
                wrong.append(f"{where}: {event['name']} overlaps")
            inside.append(end)
    for begin, end in zip(events_of(events, "s"), events_of(events, "f"), strict=True):
        if begin["id"] != end["id"] or begin["ts"] > end["ts"] or end["bp"] != "e":
            wrong.append(f"arrow {begin['id']}")
        wrong += [
            f"arrow {begin['id']} touches nothing"
            for half in (begin, end)
            if not any(
                e["ts"] <= half["ts"] < e["ts"] + e["dur"] for e in lanes[half["pid"], half["tid"]]
            )
        ]
    return wrong


def exported(folder: Path, out: Path) -> dict[str, dict[str, Any]]:
    export([folder], "trace", out)
    return {path.stem: json.loads(path.read_text()) for path in out.iterdir()}


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_splits.make_run(
        tmp_path_factory.mktemp("split"), arms=["deep", "inter", "mesh"], backends=["torch"]
    )


def test_a_pipeline(split: Path, tmp_path: Path) -> None:
    made = exported(split, tmp_path / "out")
    assert {*made} == {"inter.torch.seed0", "mesh.torch.seed0"}  # one rank keeps no times
    for name, content in made.items():
        events, arm = content["traceEvents"], name.partition(".")[0]
        assert faults(events) == []
        assert content["otherData"]["arm"] == arm
        place = split / "trials" / arm / "torch/seed0"
        n = fake_splits.ARMS[arm]["world_size"]
        columns = TIMELINE.read_all(place, n)
        for rank in range(n):
            own = [e for e in events_of(events, "X") if e["pid"] == rank and e["cat"] != "updates"]
            kept = columns[rank]["end"] > columns[rank]["begin"]
            told = Counter(e["name"].split()[0] for e in own)
            there = Counter(KINDS[int(k)] for k in columns[rank]["kind"][kept])
            assert told == there
            spent = sum(e["dur"] for e in own)
            lengths = (columns[rank]["end"] - columns[rank]["begin"]).sum()
            assert spent == pytest.approx(1e6 * lengths, rel=1e-6)
            sent = sum(e["args"].get("bytes", 0) for e in own if e["name"].startswith("send"))
            assert sent == columns[rank]["bytes"][columns[rank]["kind"] == 2].sum()
        # A message of the simulation is received by whoever waits for it until then.
        assert {
            (s["pid"], f["pid"])
            for s, f in zip(events_of(events, "s"), events_of(events, "f"), strict=True)
        } == LINKS[arm]


LINKS = {"inter": {(0, 1), (1, 0)}, "mesh": {(0, 2), (2, 0), (1, 3), (3, 1)}}


def test_updates_and_aggregations(tmp_path: Path) -> None:
    folder = fake_ranks.make_run(tmp_path / "run", arms=["single", "slow-ring"], backends=["torch"])
    (made,) = exported(folder, tmp_path / "out").values()
    events = made["traceEvents"]
    assert faults(events) == []
    times = TIMES.read_all(folder / "trials/slow-ring/torch/seed0", 2)
    own = [e for e in events_of(events, "X") if e["pid"] == 1]
    rings = [e for e in own if e["name"] == "ring"]
    assert [e["args"]["update"] for e in rings] == [*range(1, fake_ranks.UPDATES + 1)]
    first = min(float(t["begin"][0]) for t in times)
    assert [e["ts"] for e in rings] == pytest.approx((1e6 * (times[1]["arrive"] - first)).tolist())
    assert [e["dur"] for e in rings] == pytest.approx(
        (1e6 * (times[1]["end"] - times[1]["arrive"])).tolist(), abs=2e-3
    )
    assert {e["args"]["name"] for e in events_of(events, "M") if e["name"] == "process_name"} == {
        "rank 0",
        "rank 1",
    }


def span(begin: float, end: float, **message: Any) -> TraceSpan:
    return TraceSpan(COMMUNICATION, "x", begin, end, {}, **message)


def test_what_overlaps_comes_into_another_thread() -> None:
    lanes = assign_threads([span(0, 4), span(1, 2), span(3, 5), span(4, 6), span(7, 7)], 0.0)
    assert {name: [(b // 10**9, e // 10**9) for b, e, _ in own] for name, own in lanes.items()} == {
        "communication": [(0, 4), (1, 2), (4, 6)],
        "communication 2": [(3, 5)],
    }


def test_ranks_on_two_machines_have_times_of_their_own(split: Path) -> None:
    run = load([split])
    trial = next(t for t in run.trials if t.arm == "inter")
    message = (1, 0, 0, 0, 0, 0)
    ranks = [
        RankTrace("a", [span(100, 101, sends=message)]),
        RankTrace("b", [span(5, 9, receives=message)]),
    ]
    events = make_trace(ranks, run, trial)["traceEvents"]
    assert [e["ts"] for e in events_of(events, "X")] == [0, 0]
    assert not events_of(events, "s")
    same = [
        RankTrace("a", r.spans)
        for r in (ranks[0], RankTrace("a", [span(99, 103, receives=message)]))
    ]
    (begin,), (end,) = (
        events_of(make_trace(same, run, trial)["traceEvents"], kind) for kind in "sf"
    )
    assert (begin["ts"], end["ts"]) == (1e6, 1e6)  # whoever waited is met where sending begins


def test_the_check_notices(split: Path, tmp_path: Path) -> None:
    events = exported(split, tmp_path / "out")["inter.torch.seed0"]["traceEvents"]
    spans = [e for e in events_of(events, "X") if e["cat"] == "compute" and e["pid"] == 0]
    spans[1]["ts"] -= spans[1]["dur"] / 2 + spans[1]["ts"] - spans[0]["ts"] - spans[0]["dur"]
    assert any("overlaps" in fault for fault in faults(events))
    events_of(events, "f")[0]["ts"] = -1.0
    assert any(fault.startswith("arrow") for fault in faults(events))


def test_damaged_times_are_named(tmp_path: Path) -> None:
    folder = fake_ranks.make_run(tmp_path / "run", arms=["slow-ring"], backends=["torch"])
    np.savez(folder / "trials/slow-ring/torch/seed0/rank1.times.npz", begin=[0.0])
    with pytest.raises(Exception, match="arrive is missing"):
        export([folder], "trace")
    assert not (folder / "export/trace").exists()


def test_no_trial_has_times(tmp_path: Path) -> None:
    folder = fake_run.make_run(tmp_path / "run", seeds=[0], failed=None)
    with pytest.raises(Exception, match="dualml run lab4"):
        export([folder], "trace")
