"""A framework's own data parallel training, and buckets sent early: the same sum over the ranks."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conformance import native
from conformance.backends import require

from dualml.backend import Training
from dualml.errors import Unsupported
from dualml.launch.ranks import run_ranks

#: float32: sums in another order, and a loss that is scaled instead of its gradient.
TOLERANCE = {"numpy": 1e-12, "torch": 2e-6, "mindspore": 2e-6}
DETAIL = {
    ("numpy", "overlapping"): "no overlap",
    ("torch", "overlapping"): "gradient hooks",
    ("torch", "native"): "torch.nn.parallel.DistributedDataParallel",
    ("mindspore", "native"): "mindspore.nn.DistributedGradReducer in DATA_PARALLEL mode",
}
CASES = [(*case, 2) for case in DETAIL]
CASES += [(name, kind, 3) for name, kind in DETAIL if kind == "overlapping"]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(map(str, case)))
def ran(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What each rank found, and on what."""
    name, kind, n = request.param
    require(name)
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)  # of the ranks, which import this folder as a package
        ranks = run_ranks(name, n, "conformance.native:check", {"kind": kind}, timeout=60)
    return {"name": name, "kind": kind, "ranks": ranks}


def test_the_helper_can_fail() -> None:
    one = {"w": np.ones(3)}
    assert native.distance({"w": np.array([1, 1, 1.1])}, one) == pytest.approx(0.1)
    assert native.distance(one, one) == 0


@pytest.mark.parametrize("case", native.PARTS)
def test_gradients_are_summed_over_the_ranks(ran: dict[str, Any], case: str) -> None:
    """Each times its rank's factor, whatever each rank has of the batch."""
    for rank in ran["ranks"]:
        assert rank["errors"][case] <= TOLERANCE[ran["name"]]


@pytest.mark.parametrize("case", native.PARTS)
def test_plain_pieces_of_the_same_model_are_left_alone(ran: dict[str, Any], case: str) -> None:
    for rank in ran["ranks"]:
        assert rank["errors"][f"{case}, plain afterwards"] == 0


def test_all_ranks_train_the_same_model(ran: dict[str, Any]) -> None:
    """Bit for bit; and the one that sums afterwards train, but for rounding."""
    assert len({rank["digest"] for rank in ran["ranks"]}) == 1
    for rank in ran["ranks"]:
        assert rank["trained"] <= 10 * TOLERANCE[ran["name"]]
        assert rank["traced"] <= TOLERANCE[ran["name"]]
        assert rank["moved"] > 1e-3
        np.testing.assert_allclose(*rank["losses"], rtol=10 * TOLERANCE[ran["name"]])


def test_the_mode_ends_with_what_needs_it(ran: dict[str, Any]) -> None:
    for rank in ran["ranks"]:
        assert rank["mode"] == ("stand_alone" if ran["name"] == "mindspore" else "")


def test_parameters_can_be_read_and_replaced(ran: dict[str, Any]) -> None:
    for rank in ran["ranks"]:
        assert rank["buckets"] > 1
        assert rank["assigned"] == 0


def test_the_records_say_what_was_used(ran: dict[str, Any]) -> None:
    for rank in ran["ranks"]:
        assert DETAIL[ran["name"], ran["kind"]] in rank["detail"]


# --- what a backend does not have -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "way", "told"),
    [
        ("numpy", "native", "no data parallel training of its own"),
        ("mindspore", "overlapping", "one by one on a CPU"),
        ("numpy", "replicas", "one device"),
        ("torch", "replicas", "needs two GPUs; there are"),
        ("mindspore", "replicas", "no training by replicas"),
    ],
)
def test_one_line_says_what_is_not_there(name: str, way: str, told: str) -> None:
    require(name)
    if name == "torch" and require("torch").cuda.device_count() > 1:
        pytest.skip("there are GPUs")
    training = native.training(name)
    arguments: dict[str, tuple[Any, ...]] = {"native": (None,), "overlapping": ([], None)}
    with pytest.raises(Unsupported, match=told) as caught:
        getattr(training, way)(*arguments.get(way, ()))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["torch", "mindspore"])
def test_native_training_needs_a_group(name: str) -> None:
    require(name)
    alone = SimpleNamespace(group=None, size=1, rank=0)
    with pytest.raises(Unsupported, match="this rank is alone"):
        native.training(name).native(alone)


# --- PyTorch: what is sent when -------------------------------------------------------------------


class Told:
    """A communicator of one rank that writes down what is asked of it, and when."""

    def __init__(self, events: list[str]) -> None:
        self.events = events

    def all_reduce(self, x: Any, *, inplace: bool, wait: bool) -> Any:
        assert inplace
        assert not wait
        length = len(x)
        self.events.append(f"send {length}")
        return SimpleNamespace(wait=lambda: self.events.append(f"wait {length}") or x)


@pytest.fixture
def hooked() -> tuple[Training, Any, list[str]]:
    """A training, its overlapping pieces, and the events of both."""
    require("torch")
    events: list[str] = []
    training = native.training("torch")
    pieces = training.overlapping(native.BUCKETS, Told(events))
    inner = training.backward

    def backward(part: Any, share: float) -> Any:
        loss = inner(part, share)
        events.append(f"{len(part)} done")
        return loss

    training.backward = backward
    return training, pieces, events


#: Elements of the buckets, the first to be sent first.
SENT = [f"send {length}" for length in (128 * 10 + 10, 256 + 128 * 256 + 128, 784 * 256)]
WAITED = [text.replace("send", "wait") for text in SENT]


def test_buckets_are_sent_before_the_backward_pass_returns(hooked: Any) -> None:
    _, pieces, events = hooked
    _, gradients = pieces.gradient(np.arange(4), 1.0)
    assert events == [*SENT, "4 done"]
    pieces.settle(gradients)
    assert events == [*SENT, "4 done", *WAITED]


def test_only_the_last_chunk_sends(hooked: Any) -> None:
    _, pieces, events = hooked
    pieces.gradient(np.arange(9), 1.0)
    assert events == ["4 done", "4 done", *SENT, "1 done"]


def test_a_rank_without_samples_sends_the_same_in_the_same_order(hooked: Any) -> None:
    _, pieces, events = hooked
    _, gradients = pieces.gradient(np.arange(0), 1.0)
    assert events == SENT
    assert not any(g.any() for g in pieces.settle(gradients))


def test_nothing_is_sent_for_others(hooked: Any) -> None:
    training, _, events = hooked
    training.step(np.arange(4), 1)
    training.trace(np.arange(4), np.arange(2))
    training.pieces(native.BUCKETS).gradient(np.arange(4), 1.0)
    assert not [e for e in events if "done" not in e]


def test_the_first_layer_is_still_computed_when_the_last_is_sent(hooked: Any) -> None:
    training, pieces, events = hooked
    training.parameters["fc1.weight"].register_hook(lambda _: events.append("fc1"))
    pieces.gradient(np.arange(4), 1.0)
    assert events[0] == SENT[0]
    assert events.index("fc1") < events.index(SENT[-1])


def test_a_sum_that_nobody_asked_for_is_waited_for(hooked: Any) -> None:
    """It would still write into the buckets."""
    _, pieces, events = hooked
    pieces.gradient(np.arange(4), 1.0)
    pieces.gradient(np.arange(4), 1.0)
    assert events == [*SENT, "4 done", *WAITED, *SENT, "4 done"]


def test_a_failed_gradient_leaves_nobody_listening(hooked: Any) -> None:
    training, pieces, events = hooked
    inner = training.backward

    def fails(part: Any, share: float) -> Any:
        if events:
            raise MemoryError
        return inner(part, share)

    training.backward = fails
    with pytest.raises(MemoryError):
        pieces.gradient(np.arange(9), 1.0)
    training.backward = inner
    training.step(np.arange(4), 1)
    assert events == ["4 done", "4 done"]
    pieces.gradient(np.arange(4), 1.0)
    assert events[2:] == [*SENT, "4 done"]


# --- PyTorch: replicas ----------------------------------------------------------------------------


def test_replicas_are_the_network_in_all_else() -> None:
    """Without a GPU `DataParallel` calls the network it is made of."""
    torch = require("torch")
    from dualml_torch.native import Replicas

    training = native.training("torch")
    before, plain = training.weights(), training.network
    training.network = Replicas(plain)
    assert training.network.spec is plain.spec
    loss = training.step(np.arange(4), 1)
    assert torch.isfinite(loss[0][0])
    training.load(before, {}, 0)
    assert native.distance(training.weights(), before) == 0
    assert training.evaluate(training.x.numpy(), training.y.numpy())[0] > 0
    with pytest.raises(AttributeError):
        training.network.nothing  # noqa: B018
