"""Ranks that share a model in every mesh: bytes, messages and bubbles side by side."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_splits
import page_parts
import pytest

from dualml.algorithms.model.zoo import model
from dualml.common.words import Messages
from dualml.common.words.numbers import quantity
from dualml.experiment.store.load import load
from dualml.experiment.store.run import RunData
from dualml.parallel.split.shards import TensorShard
from dualml.report.topics.meshes import findings, layouts, planned_bytes

MESHES: dict[str, dict[str, Any]] = {
    "replicas": {"data": 4},
    "stages": {"cut": ["fc3", "fc4", "fc6"], "micro_batches": 4},
    "slices": {"tensor": 4},
    "mesh": fake_splits.BOTH,
}
MIB = 2**20


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, split in MESHES.items():
        monkeypatch.setitem(fake_splits.ARMS, name, fake_splits.arm(4, split))

    def add_memory(run: dict[str, Any]) -> None:
        """Give every rank the closed form's memory; later ranks have more activations."""
        for trial in run["trials"]:
            if trial["arm"] in MESHES:
                plan = fake_splits.plan_of(fake_splits.ARMS[trial["arm"]])
                sizes = [sum(map(size, plan.rank_stages(rank)[1].values())) for rank in range(4)]
                trial["device_memory"] = [
                    {
                        "parameters": n,
                        "weights": 4 * n,
                        "gradients": 4 * n,
                        "state": 0,
                        "activations": rank * 1000,
                    }
                    for rank, n in enumerate(sizes)
                ]

    arms = ["deep", *MESHES]
    return fake_splits.make_run(tmp_path, arms=arms, backends=("torch",), change=add_memory)


def size(piece: TensorShard) -> int:
    return math.prod(piece.local_shape)


@pytest.fixture
def run(folder: Path) -> RunData:
    return load([folder])


def row(run: RunData, mesh: str) -> dict[str, Any]:
    table = page_parts.evidence_tables(run, "meshes", Messages("en"))["meshes"]
    (line,) = [line for line in table.cells if line[0].text == mesh]
    return dict(zip([c.label for c in table.columns], line, strict=True))


def test_every_mesh_stands_beside_its_closed_form(run: RunData) -> None:
    assert [x.arm for x in layouts(run)] == list(MESHES)
    for x in layouts(run):
        assert x.counted_bytes == x.closed_form_bytes
    assert row(run, "4 × 1 × 1")["activations"].text == quantity(3000 / MIB)
    assert row(run, "1 × 4 × 1")["idle, in theory"].text == "42.9"  # 3 of 4 + 3 ticks
    assert row(run, "1 × 1 × 4")["idle, in theory"].text == "–"
    assert row(run, "1 × 2 × 2")["verdict"].text == "✓ equal"


def test_what_a_rank_sends_in_closed_form(run: RunData) -> None:
    by_name = {x.arm: x for x in layouts(run)}
    weights = 4 * sum(rank["elements"] for rank in by_name["stages"].split.plan["ranks"])
    assert by_name["replicas"].max_planned_bytes == pytest.approx(1.5 * weights)  # 2 (N − 1)/N
    stages = by_name["stages"].split.plan
    # A stage in the middle sends activations on and gradients back, each of the whole batch.
    assert planned_bytes(stages, 1) == sum(x["nbytes"] for x in stages["links"] if x["source"] == 1)
    assert planned_bytes(stages, 0) == fake_splits.BATCH * 4 * width(stages, 0)
    slices = by_name["slices"].split.plan
    assert planned_bytes(slices, 0) == 1.5 * sum(c["nbytes"] for c in slices["meetings"])
    assert (
        planned_bytes({"meetings": [{"ranks": [0, 1], "kind": "unheard-of", "nbytes": 1}]}, 0)
        is None
    )


def width(plan: Any, stage: int) -> int:
    last = plan["stages"][stage][-1]
    (n,) = model(plan["model"]).shapes()[last]
    return int(n)


def test_the_ends_are_said(folder: Path, run: RunData) -> None:
    said = page_parts.findings_by_key(folder)
    assert said["meshes.equal"] == ["4 of 4 meshes of 4 ranks train what one rank trains."]
    assert "most as 4 × 1 × 1" in said["meshes.held"][0]
    assert "most as 4 × 1 × 1" in said["meshes.sent"][0]
    page_parts.same_in_both_languages(run)
    (figure,) = page_parts.evidence_figures(run, "meshes", Messages("en"))
    assert figure.panels[0] is not None
    assert list(figure.panels[0].y.names) == list(MESHES)


def test_a_mesh_is_equal_only_if_it_is_on_every_backend() -> None:
    said: list[tuple[Any, ...]] = []
    notes: Any = SimpleNamespace(add=lambda key, *n, **more: said.append((key, more)))
    split = SimpleNamespace(size=4, mesh="2 × 2")
    every: Any = [
        SimpleNamespace(
            arm=arm,
            backend=backend,
            verdict=verdict,
            split=split,
            fullest_rank=None,
            max_planned_bytes=None,
        )
        for arm, backend, verdict in (
            ("a", "torch", "different"),
            ("a", "mindspore", "equal"),
            ("b", "torch", "equal"),
            ("b", "mindspore", "equal"),
        )
    ]
    findings(notes, None, every)  # type: ignore[arg-type]
    assert said == [("equal", {"k": 1, "n": 2, "ranks": 4})]


def test_two_meshes_are_no_comparison(tmp_path: Path) -> None:
    run = load([fake_splits.make_run(tmp_path, arms=["deep", "one-4", "inside"])])
    assert layouts(run) == []
    assert not page_parts.evidence(run, "meshes", Messages("en"))
