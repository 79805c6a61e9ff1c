"""Overlapped communication in PyTorch: the send time of each bucket, and replicas of a network."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from conformance import native  # noqa: E402

from dualml.backend import Training, backends  # noqa: E402


def training_of() -> Any:
    return backends()["torch"].create("cpu", 1).training(native.recipe())


class RecordingCommunicator:
    """A communicator of one rank that notes the calls made to it, in order."""

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
    """Return a training, its overlapping buckets, and the events of both."""
    events: list[str] = []
    training = training_of()
    pieces = training.make_reducing_buckets(native.BUCKETS, RecordingCommunicator(events))
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
    pieces.wait_reduction(gradients)
    assert events == [*SENT, "4 done", *WAITED]


def test_only_the_last_chunk_sends(hooked: Any) -> None:
    _, pieces, events = hooked
    pieces.gradient(np.arange(9), 1.0)
    assert events == ["4 done", "4 done", *SENT, "1 done"]


def test_a_rank_without_samples_sends_the_same_in_the_same_order(hooked: Any) -> None:
    _, pieces, events = hooked
    _, gradients = pieces.gradient(np.arange(0), 1.0)
    assert events == SENT
    assert not any(g.any() for g in pieces.wait_reduction(gradients))


def test_nothing_is_sent_for_others(hooked: Any) -> None:
    training, _, events = hooked
    training.step(np.arange(4), 1)
    training.trace(np.arange(4), np.arange(2))
    training.make_buckets(native.BUCKETS).gradient(np.arange(4), 1.0)
    assert not [e for e in events if "done" not in e]


def test_the_first_layer_is_still_computed_when_the_last_is_sent(hooked: Any) -> None:
    training, pieces, events = hooked
    training.parameters["fc1.weight"].register_hook(lambda _: events.append("fc1"))
    pieces.gradient(np.arange(4), 1.0)
    assert events[0] == SENT[0]
    assert events.index("fc1") < events.index(SENT[-1])


def test_a_sum_that_nobody_asked_for_is_waited_for(hooked: Any) -> None:
    """A sum that nobody asked for is waited for: it would still write into the buckets."""
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


# --- replicas -------------------------------------------------------------------------------------


def test_replicas_are_the_network_in_all_else() -> None:
    """Replicas equal the network otherwise: without a GPU `DataParallel` calls the wrapped
    network."""
    from dualml_torch.parallel.data_parallel import Replicas

    training = training_of()
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
