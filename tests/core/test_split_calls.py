"""The plan of a model whose stages are called by one rank, and backends that cannot do this."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import run
from pydantic import ValidationError

from dualml.algorithms.model import model
from dualml.common.errors import UserError
from dualml.experiment.split import Split
from dualml.parallel.split import traffic
from dualml.parallel.split.plan import SplitPlan

LENET, BATCH = model("lenet"), 10
X, MIDDLE, LOGITS = BATCH * 28 * 28 * 4, BATCH * 400 * 4, BATCH * 10 * 4


def plan(world_size: int, **split: Any) -> SplitPlan:
    return Split(engine="rpc", **{"cut": ["flatten"], **split}).plan(LENET, world_size)


def links(made: SplitPlan) -> set[tuple[int, int, int, str]]:
    return {
        (link.source, link.target, link.nbytes, link.what) for link in traffic.links(made, BATCH)
    }


def test_a_master_and_two_workers() -> None:
    made = plan(3)
    assert (made.place, made.driver, made.rank_stages(0)) == ((1, 2), 0, ([], {}))
    assert links(made) == {
        (0, 1, X, "samples"),
        (1, 0, MIDDLE, "activations"),
        (0, 2, MIDDLE, "activations"),
        (2, 0, LOGITS, "activations"),
        (0, 2, LOGITS, "gradients"),
        (2, 0, MIDDLE, "gradients"),
        (0, 1, MIDDLE, "gradients"),
    }
    told = traffic.describe(made, BATCH)
    assert (told["engine"], told["driver"]) == ("rpc", 0)
    assert [rank["stages"] for rank in told["ranks"]] == [[], [0], [1]]
    assert [rank["live"] for rank in told["ranks"]] == [0, 1, 1]


def test_two_ranks_and_micro_batches_that_do_not_divide() -> None:
    made = plan(2, micro_batches=4)
    assert (made.place, made.driver, made.schedule) == ((0, 1), 0, "gpipe")
    assert [(link.messages, link.nbytes) for link in traffic.links(made, BATCH)] == [
        (4, MIDDLE),
        (4, LOGITS),
        (4, LOGITS),
        (4, MIDDLE),
    ]
    assert made.grid.live(0) == 4


def test_stages_by_default_and_as_many_as_are_asked_for() -> None:
    assert plan(3, cut=[]).place == (1, 2)
    assert plan(3, cut=[], stages=3).place == (0, 1, 2)
    assert plan(4, cut=[], stages=3).place == (1, 2, 3)


@pytest.mark.parametrize(
    ("place", "world_size", "driver"),
    [
        ([0, 1, 0], 2, 1),  # a server and its trainer
        ([0, 1, 2], 3, 0),
        ([1, 2, 1], 3, 0),
        ([1, 2, 1, 2], 3, 0),  # rank 0 has nothing else to do
    ],
)
def test_who_drives(place: list[int], world_size: int, driver: int) -> None:
    made = plan(world_size, cut=[], place=place)
    assert made.driver == driver
    ends = {
        link.source if link.target == driver else link.target for link in traffic.links(made, BATCH)
    }
    assert ends == set(place) - {driver}
    assert all(driver in (link.source, link.target) for link in traffic.links(made, BATCH))


def test_a_first_stage_that_learns_nothing_gets_no_gradient() -> None:
    found = links(Split(engine="rpc", cut=["fc1"]).plan(model("mlp"), 3))
    assert {link for link in found if link[3] == "gradients"} == {(0, 2, LOGITS, "gradients")}


@pytest.mark.parametrize(
    ("split", "told"),
    [
        ({"trainers": 2, "micro_batches": 2, "place": [0, 1, 0]}, 'use engine = "messages"'),
        ({"schedule": "1f1b", "micro_batches": 2}, "schedule gpipe"),
        ({"grid": [["0F0"]]}, "schedule gpipe"),
        ({"tensor": 2}, "by layer alone"),
    ],
)
def test_what_calls_cannot_do(split: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Split(engine="rpc", **split)


@pytest.mark.parametrize(
    ("world_size", "place", "told"),
    [
        (4, [], "2 stages by rpc take 2 ranks, or 3"),
        (3, [0, 1], "place must give"),
    ],
)
def test_numbers_that_do_not_fit(world_size: int, place: list[int], told: str) -> None:
    with pytest.raises(UserError, match=told):
        plan(world_size, place=place)


@pytest.mark.system
def test_the_reference_says_what_runs_instead(tmp_path: Path) -> None:
    file = tmp_path / "calls.toml"
    file.write_text(
        'name = "calls"\nmodel = "softmax"\ntitle = { en = "t" }\n'
        '[data]\nname = "digits"\ntrain = 100\ntest = 20\n'
        "[arms.one]\nworld_size = 2\nbatch_size = 10\nupdates = 2\n"
        'optimizer = { name = "sgd", lr = 0.1 }\nsplit = { engine = "rpc" }\n'
    )
    _, told = run(file, tmp_path / "out", "--backend", "numpy")
    trial = told["trials"][0]
    assert trial["status"] == "unsupported"
    assert "no remote procedure calls" in trial["reason"]
    assert 'engine = "messages" runs the same split' in trial["reason"]
