"""The report's principle and code cards on sharding and recomputation."""

from __future__ import annotations

from pathlib import Path

import fake_memory
import fake_run
import page_parts
import pytest

from dualml.algorithms.model.zoo import model
from dualml.common.words import Messages
from dualml.experiment.store.load import load
from dualml.experiment.store.run import RunData
from dualml.report import ranks
from dualml.report.blocks import Card, Formula, Prose
from dualml.report.machine import vector_bytes


@pytest.fixture
def run(tmp_path: Path) -> RunData:
    return load([fake_memory.make_run(tmp_path)])


def cards(run: RunData, topic: str) -> dict[str, list[str]]:
    """Return the title of a card → the arms that it names."""
    found = [b for b in page_parts.evidence(run, topic, Messages("en")) if isinstance(b, Card)]
    assert all(any(isinstance(b, Formula) for b in card.blocks) for card in found)
    said = {card.title: [b.text for b in card.blocks if isinstance(b, Prose)] for card in found}
    return {
        title: next(text for text in texts if text.startswith("Arms: "))[6:].split(", ")
        for title, texts in said.items()
    }


def test_each_stage_has_a_card_with_its_arms(run: RunData) -> None:
    assert cards(run, "shared") == {
        "ZeRO 1: the state": ["zero1"],
        "ZeRO 2: and gradients": ["zero2"],
        "ZeRO 3: and weights": ["zero3"],
        "the whole sum to every rank": ["wrong"],
    }
    assert page_parts.evidence(run, "memory_code", Messages("en"))


def test_what_is_computed_again_has_a_card(tmp_path: Path) -> None:
    arms = {"kept": fake_run.MAIN["adam"], "again": {**fake_run.MAIN["adam"], "recompute": "full"}}
    assert cards(load([fake_run.make_run(tmp_path, arms=arms)]), "again") == {
        "full: whole blocks": ["again"]
    }


def test_arms_that_share_out_send_around_a_ring(run: RunData) -> None:
    assert {arm: ranks.strategy(run, arm) for arm in ("replicas", "zero1", "zero3", "wrong")} == {
        "replicas": "all_reduce",
        "zero1": "ring",
        "zero3": "ring",
        "wrong": "all_reduce",
    }
    assert not ranks.uses_default_aggregation(run, "zero1")


def test_the_vector_has_the_sizes_of_the_experiment(run: RunData) -> None:
    sizes = {"width": 32, "blocks": 2, "heads": 8, "tied": False}
    run.experiment["model"], run.experiment["sizes"] = "gpt", sizes
    run.meta["data"] = {"vocabulary": 500, "length": 32}
    expected = model("gpt", words=500, length=32, sizes=sizes).nbytes()
    assert vector_bytes(run) == expected != model("gpt", words=500, length=32).nbytes()


def test_others_say_nothing_of_it(tmp_path: Path) -> None:
    plain = load([fake_run.make_run(tmp_path)])
    for topic in ("shared", "again", "memory_code"):
        assert page_parts.evidence(plain, topic, Messages("en")) == []
