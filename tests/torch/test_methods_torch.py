"""Training methods in PyTorch: the memory they hold, and updates that they skip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conformance import methods, native

from dualml.algorithms.model.zoo import model
from dualml.algorithms.precision.scaling import MAX_SKIPPED_UPDATES, START
from dualml.backend import MemoryReport, backends
from dualml.common.errors import TrialError, Unsupported
from dualml.experiment.methods.engine import EngineSupport
from dualml_torch.algorithms.model import Network
from dualml_torch.experiment.methods.fsdp import shardable_layers

BATCH = np.arange(12)


def make_method(name: str, recipe: Any = None) -> Any:
    driving = backends()["torch"].create("cpu", 1).require_capability(EngineSupport)
    training = driving.method(name, native.recipe() if recipe is None else recipe, None)
    training.step(BATCH, 1)  # optimizers make their state when they first need it
    return training


def memory(training: Any) -> Any:
    return training.require_capability(MemoryReport).measure_memory(BATCH)


WHOLE = sum(w.nbytes for w in native.WEIGHTS.values())


def test_one_process_holds_what_was_counted_by_hand() -> None:
    """Saved activations of 784 → 256 → tanh → 128 → tanh → 10: each tanh's output (the next layer's
    input), log-softmax's, and nll_loss's weight."""
    held = memory(make_method("single"))
    slots = len(native.RULE.state_keys)
    assert (held.weights, held.gradients, held.state) == (WHOLE, WHOLE, slots * WHOLE)
    assert held.activations == 4 * len(BATCH) * (256 + 128 + 10) + 4
    assert held.buckets == 0
    assert make_method("single").measure_memory().activations is None


@pytest.mark.parametrize("name", ["amp_bf16", "amp_fp16"])
def test_lower_precision_has_master_weights_and_casts_among_its_activations(name: str) -> None:
    held = memory(make_method(name))
    slots = len(native.RULE.state_keys)
    assert (held.weights, held.gradients, held.state) == (WHOLE, WHOLE, slots * WHOLE)
    layers = [w for n, w in native.WEIGHTS.items() if n.endswith("weight")]
    # Of two bytes: the samples, each tanh's output, and the weights that a gradient of an input
    # needs; log-softmax is float32. And the scale that the loss is multiplied with.
    casts = 2 * sum(w.size for w in layers[1:])
    inside = 2 * len(BATCH) * (784 + 256 + 128) + 4 * len(BATCH) * 10 + 4
    assert held.activations == casts + inside + 4 * (name == "amp_fp16")


def test_recomputation_keeps_less() -> None:
    """Recomputation reduces the memory of a text classifier, whose blocks are deep enough."""
    plain, again = (memory(make_method(name, methods.recipe())) for name in ("single", "recompute"))
    assert (again.weights, again.gradients, again.state) == (
        plain.weights,
        plain.gradients,
        plain.state,
    )
    assert 0 < again.activations < plain.activations / 2


def test_an_update_that_is_skipped_while_counting_is_made_again() -> None:
    """An update skipped during counting is repeated: with a loss scale that is too large, the first
    updates take no step and create no state."""
    training = scaled(2.0**24, factor=0.5)
    held = memory(training)
    slots = len(native.RULE.state_keys)
    assert (held.gradients, held.state) == (WHOLE, slots * WHOLE)


# --- updates that are passed over -----------------------------------------------------------------


def scaled(by: float, factor: float) -> Any:
    """Train from the initial weights with this loss scale, which an overflow multiplies by a
    factor."""
    training = make_method("amp_fp16")
    training.load(native.WEIGHTS, native.recipe().initial_state(), 0)
    training.method.scaler = torch.amp.GradScaler("cpu", init_scale=by, backoff_factor=factor)
    return training


def skipped(training: Any) -> tuple[int, int]:
    return training.skips.lost, training.skips.skipped


def test_an_update_that_is_passed_over_is_counted() -> None:
    training = scaled(1e30, factor=1e-30)
    for step in range(1, 4):
        training.step(BATCH, step)
    assert skipped(training) == (0, 1)
    counted = {name: float(value) for name, value in training.state()["loss_scale"].items()}
    assert counted == {"scale": pytest.approx(1.0), "lost": 0, "skipped": 1}
    assert native.distance(training.weights(), native.WEIGHTS) > 0
    training.load(training.weights(), training.state(), 3)
    assert skipped(training) == (0, 1)
    training.load(native.WEIGHTS, native.recipe().initial_state(), 0)
    assert skipped(training) == (0, 0)
    assert training.loss_scale() == START


def test_overflow_in_every_update_ends_the_trial_also_later_on() -> None:
    training = scaled(1.0, factor=0.999)
    training.step(BATCH, 1)
    assert skipped(training) == (0, 0)
    moved = training.weights()
    training.method.scaler.update(1e30)
    for step in range(2, 1 + MAX_SKIPPED_UPDATES):
        ((loss, _),) = training.step(BATCH, step)
        assert np.isfinite(float(loss))
    assert skipped(training) == (MAX_SKIPPED_UPDATES - 1, MAX_SKIPPED_UPDATES - 1)
    assert native.distance(training.weights(), moved) == 0
    with pytest.raises(TrialError, match=f"{MAX_SKIPPED_UPDATES} updates in a row were skipped"):
        training.step(BATCH, 1 + MAX_SKIPPED_UPDATES)


@pytest.mark.parametrize("name", ["single", "amp_bf16"])
def test_a_method_without_a_scale_has_nothing_to_tell(name: str) -> None:
    assert "loss_scale" not in make_method(name).state()


def test_layers_that_share_a_table_are_not_taken_apart() -> None:
    def small(tied: bool) -> Network:
        sizes = {"width": 8, "blocks": 1, "heads": 1, "tied": tied}
        return Network(model("gpt", words=20, length=4, sizes=sizes))

    assert {type(each).__name__ for each in shardable_layers(small(tied=False))} >= {
        "Embedding",
        "Linear",
    }
    with pytest.raises(Unsupported, match=r"sizes\.tied = false"):
        shardable_layers(small(tied=True))
