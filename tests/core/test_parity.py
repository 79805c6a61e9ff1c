"""Verdicts on trajectories that are known to be equal, different or chaotic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dualml.common.distance import distance, elementwise_distances
from dualml.experiment.store.envelope import Envelope
from dualml.experiment.store.trajectory import Trajectory
from dualml.parity.envelope import (
    clip_to_plain,
    first_suspect_step,
    perturb,
    robust_envelopes,
    shuffle_batch,
    update_envelope,
)
from dualml.parity.pairs import compare_trajectories
from dualml.parity.places import FLOOR
from dualml.parity.statistics import check_equivalence

STEPS = (1, 2, 5, 10)
WIDTH = 1e-6


def trajectory(seed: int = 0, noise: float = 0.0, backend: str = "a") -> Trajectory:
    """Return ten steps of two tensors; ``noise`` is a relative error on everything."""
    base, error = np.random.default_rng(7), np.random.default_rng(seed)

    def add_noise(x: np.ndarray) -> np.ndarray:
        return x * (1 + noise * error.uniform(-1, 1, x.shape))

    tensors, keys = {}, []
    for step in STEPS:
        for phase in ("forward", "gradient", "update", "state"):
            for name in ("fc1.weight", "fc2.weight"):
                tensor = f"exp_avg/{name}" if phase == "state" else name
                key = f"{phase}/{step:08d}/{tensor}"
                keys.append(key)
                tensors[key] = add_noise(base.normal(size=(3, 4)))
    envelope = Envelope.from_content(
        {"loss": [WIDTH] * 10, "tensors": dict.fromkeys(keys, WIDTH), "draws": 3}
    )
    weights = {name: tensors[f"update/00000010/{name}"] for name in ("fc1.weight", "fc2.weight")}
    return Trajectory(
        backend,
        add_noise(np.linspace(2, 1, 10)),
        tensors,
        dict.fromkeys(STEPS, "x"),
        envelope,
        1.0,
        0.5,
        weights,
    )


def test_rounding_sized_differences_are_equal() -> None:
    found = compare_trajectories(trajectory(1, WIDTH), trajectory(2, WIDTH, "b"), 4)
    assert found.verdict == "equal"
    assert found.first_divergence is None
    assert 0 < found.evidence["worst_ratio"] <= 4
    assert found.steps == 10
    assert set(found.phases) == {"data", "forward", "loss", "gradient", "update", "state"}


@pytest.mark.parametrize(
    ("phase", "step"),
    [
        *[("forward", step) for step in STEPS],
        *[("update", step) for step in STEPS],
        ("gradient", 1),
        ("gradient", 2),
        ("gradient", 5),
        ("state", 1),
    ],
)
def test_the_first_divergent_tensor_is_named(phase: str, step: int) -> None:
    a, b = trajectory(1, WIDTH), trajectory(2, WIDTH, "b")
    name = "exp_avg/fc2.weight" if phase == "state" else "fc2.weight"
    for later in STEPS[STEPS.index(step) :]:
        b.tensors[f"{phase}/{later:08d}/{name}"] *= 1.001
    found = compare_trajectories(a, b, 4)
    first = found.first_divergence
    assert found.verdict == "different"
    assert (first["step"], first["phase"], first["tensor"]) == (step, phase, name)
    assert first["after"] == max((s for s in STEPS if s < step), default=0)
    assert first["distance"] == pytest.approx(1e-3, rel=0.05)


def test_other_data_comes_before_everything_it_causes() -> None:
    a, b = trajectory(1, WIDTH), trajectory(2, 0.1, "b")
    b.data[2] = "y"
    b = replace(
        b,
        losses=np.where(np.arange(10) < 1, a.losses, b.losses),
        tensors={k: (a.tensors[k] if "/00000001/" in k else v) for k, v in b.tensors.items()},
    )
    first = compare_trajectories(a, b, 4).first_divergence
    assert (first["step"], first["phase"]) == (2, "data")


def test_the_loss_is_judged_at_every_step_not_only_the_traced() -> None:
    a, b = trajectory(1, WIDTH), trajectory(2, WIDTH, "b")
    b.losses[6] *= 1.01
    first = compare_trajectories(a, b, 4).first_divergence
    assert (first["step"], first["phase"], first["after"]) == (7, "loss", 6)


def test_gradients_are_searched_from_the_last_layer_back() -> None:
    a, b = trajectory(1, WIDTH), trajectory(2, WIDTH, "b")
    for name in ("fc1.weight", "fc2.weight"):
        b.tensors[f"gradient/00000001/{name}"] *= 1.01
    assert compare_trajectories(a, b, 4).first_divergence["tensor"] == "fc2.weight"


@pytest.mark.parametrize("step", STEPS[1:])
def test_one_stray_gradient_with_its_state_is_a_kink(step: int) -> None:
    a, b = trajectory(1, WIDTH), trajectory(2, WIDTH, "b")
    b.tensors[f"gradient/{step:08d}/fc1.weight"] *= 1.01
    for later in STEPS[STEPS.index(step) :]:
        b.tensors[f"state/{later:08d}/exp_avg/fc1.weight"] *= 1.001
    found = compare_trajectories(a, b, 4)
    assert (found.verdict, found.first_divergence) == ("equal", None)
    assert found.reason == "lone_kink"
    assert found.phases["gradient"]["ratio"] > 4, "it is not hidden"
    b.tensors["update/00000010/fc1.weight"] *= 1.001
    assert compare_trajectories(a, b, 4).first_divergence["phase"] == "gradient"


def test_the_state_of_every_layer_is_no_kink() -> None:
    a, b = trajectory(1, WIDTH), trajectory(2, WIDTH, "b")
    for step in STEPS[1:]:
        for name in ("fc1.weight", "fc2.weight"):
            b.tensors[f"state/{step:08d}/exp_avg/{name}"] *= 7
    first = compare_trajectories(a, b, 4).first_divergence
    assert (first["step"], first["phase"]) == (2, "state")


def test_a_state_that_strays_before_its_gradient_is_no_kink() -> None:
    a, b = trajectory(1, WIDTH), trajectory(2, WIDTH, "b")
    b.tensors["state/00000002/exp_avg/fc1.weight"] *= 1.01
    assert compare_trajectories(a, b, 4).reason == "lone_kink", (
        "of an update between the traced ones"
    )
    b.tensors["gradient/00000005/fc1.weight"] *= 1.01
    assert compare_trajectories(a, b, 4).verdict == "different"


def test_the_output_layers_gradient_knows_no_kinks() -> None:
    a, b = trajectory(1, WIDTH), trajectory(2, WIDTH, "b")
    b.tensors["gradient/00000005/fc2.weight"] *= 1.01
    assert compare_trajectories(a, b, 4).verdict == "different"


def test_an_infinite_draw_is_read_back_as_infinite() -> None:
    a, b = trajectory(), trajectory(backend="b")
    told = a.envelope.describe() | {"loss": [1e-6] * 4 + [None] * 6}
    told["tensors"]["update/00000010/fc1.weight"] = None
    envelope = Envelope.from_content(told)
    assert envelope.loss[-1] == envelope.tensors["update/00000010/fc1.weight"] == np.inf
    b.losses[6:] *= 3
    found = compare_trajectories(a, b, 4, [envelope])
    assert (found.reason, found.evidence["chaotic_from"]) == ("chaotic", 5)


def test_a_backends_envelope_serves_every_pair() -> None:
    a, b = trajectory(1, 1e-4), trajectory(2, 1e-4, "b")
    wide = Envelope.from_content(
        {"loss": [1e-3] * 10, "tensors": dict.fromkeys(a.tensors, 1e-3), "draws": 3}
    )
    assert compare_trajectories(a, b, 4).verdict == "different"
    assert compare_trajectories(a, b, 4, [wide]).verdict == "equal"


def test_the_margin_decides() -> None:
    a, b = trajectory(), trajectory(backend="b")
    key = "update/00000010/fc1.weight"
    b.tensors[key] = b.tensors[key] * (1 + 3 * WIDTH)
    assert compare_trajectories(a, b, 4).verdict == "equal"
    assert compare_trajectories(a, b, 2).verdict == "different"


def test_an_empty_envelope_still_allows_one_rounding() -> None:
    a, b = trajectory(), trajectory(backend="b")
    for t in (a, b):
        t.envelope.tensors.update(dict.fromkeys(t.envelope.tensors, 0.0))
    key = "update/00000010/fc1.weight"
    b.tensors[key] = b.tensors[key] * (1 + FLOOR)
    assert compare_trajectories(a, b, 4).verdict == "equal"


def test_nan_on_one_side_is_different() -> None:
    a, b = trajectory(), trajectory(backend="b")
    for step in (2, 5, 10):
        b.tensors[f"gradient/{step:08d}/fc1.weight"][0, 0] = np.nan
    first = compare_trajectories(a, b, 4).first_divergence
    assert (first["step"], first["phase"], first["tensor"]) == (2, "gradient", "fc1.weight")


def test_chaos_is_not_called_equal_nor_different() -> None:
    a, b = trajectory(), trajectory(5, 0.2, "b")
    for t in (a, b):
        t.envelope.loss[5:] = 0.5
    clean = {k: v for k, v in a.tensors.items() if int(k.split("/")[1]) < 6}
    b = replace(
        b, tensors={**b.tensors, **clean}, losses=np.where(np.arange(10) < 5, a.losses, b.losses)
    )
    found = compare_trajectories(a, b, 4)
    assert (found.verdict, found.reason) == ("not comparable", "chaotic")
    assert found.evidence["chaotic_from"] == 6


def test_a_difference_before_the_chaos_still_counts() -> None:
    a, b = trajectory(), trajectory(backend="b")
    for t in (a, b):
        t.envelope.loss[5:] = 0.5
    b.tensors["update/00000001/fc1.weight"] *= 1.1
    assert compare_trajectories(a, b, 4).verdict == "different"


@pytest.mark.parametrize(("draw", "units"), [(0, 1), (1, 2), (2, 4)])
def test_perturbation_is_some_units_in_the_last_place(draw: int, units: int) -> None:
    w = {"w": np.random.default_rng(0).normal(size=1000).astype(np.float32)}
    moved = perturb(w, 0, draw, 1)["w"]
    steps = np.abs(moved.view(np.int32) - w["w"].view(np.int32))
    assert np.median(steps) == units
    assert (np.abs(moved - w["w"]) == units * np.spacing(np.abs(w["w"]))).all()
    assert 0.4 < (moved > w["w"]).mean() < 0.6
    assert not np.array_equal(moved, perturb(w, 0, draw, 2)["w"])
    assert np.array_equal(moved, perturb(w, 0, draw, 1)["w"])


def test_shuffled_batch_has_the_same_samples() -> None:
    batch = np.arange(50)
    assert sorted(shuffle_batch(batch, 0, 0, 1)) == list(range(50))
    assert not np.array_equal(shuffle_batch(batch, 0, 0, 1), batch)


def test_envelope_keeps_the_largest_distance_of_all_draws() -> None:
    base = {"update/00000001/w": np.ones(4)}
    envelope = Envelope()
    for size in (1e-6, 3e-6, 2e-6):
        capture = {"update/00000001/w": np.full(4, 1 + size)}
        envelope = update_envelope(envelope, np.array([1 + size]), capture, np.array([1.0]), base)
    assert envelope.draws == 3
    assert envelope.tensors["update/00000001/w"] == pytest.approx(3e-6, rel=1e-4)
    assert envelope.loss[0] == pytest.approx(3e-6, rel=1e-4)


def test_large_arrays_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((9, 11)).astype(np.float32)
    b = a + rng.standard_normal((9, 11)).astype(np.float32)
    whole = distance(a, b)
    monkeypatch.setattr("dualml.common.distance.BLOCK_ELEMENTS", 10)
    assert distance(a, b) == pytest.approx(whole, rel=1e-14)
    assert distance(a, a) == 0
    b[3, 3] = np.nan
    assert distance(a, b) == np.inf


def test_distances() -> None:
    assert distance(np.zeros(3), np.zeros(3)) == 0
    assert distance(np.zeros(3), np.ones(3)) == 1
    assert distance(np.array([np.nan]), np.array([1.0])) == np.inf
    assert elementwise_distances(
        np.array([1.0, 0.0, np.inf]), np.array([2.0, 0.0, 1.0])
    ).tolist() == [
        0.5,
        0,
        np.inf,
    ]
    with pytest.raises(ValueError, match="shapes differ"):
        distance(np.zeros(2), np.zeros(3))


def test_equivalence_needs_a_narrow_interval_inside_the_margin() -> None:
    a = np.array([0.97, 0.972, 0.968, 0.971])
    assert check_equivalence(a, a + np.array([0.001, -0.001, 0.0005, -0.0005]))["equivalent"]
    assert not check_equivalence(a, a - 0.02)["equivalent"]
    assert not check_equivalence(a, a + np.array([0.03, -0.03, 0.02, -0.02]))[
        "equivalent"
    ]  # too wide to tell
    with pytest.raises(ValueError, match="3 seeds at least"):
        check_equivalence([1.0], [1.0])


def drawn(full: float, plain: float) -> Envelope:
    """Return an envelope of one tensor and ten losses with this width, and the first draw with the
    same."""
    narrow = {"loss": [plain] * 10, "tensors": {"gradient/00000002/w.bias": plain}}
    told = {"loss": [full] * 10, "tensors": {"gradient/00000002/w.bias": full}, "draws": 3}
    return Envelope.from_content({**told, "plain": narrow})


def width(envelopes: list[Envelope]) -> tuple[float, float]:
    found = robust_envelopes(envelopes, "w")
    return (
        max(e.tensors["gradient/00000002/w.bias"] for e in found),
        max(float(e.loss[0]) for e in found),
    )


def test_what_only_one_backend_shows_in_another_order_is_its_fault() -> None:
    right, wrong = drawn(3e-7, 1e-7), drawn(0.3, 1e-7)
    assert width([right, wrong]) == (3e-7, 3e-7)
    assert width([wrong]) == (0.3, 0.3), "nobody else says what it is"


def test_what_all_backends_show_in_another_order_is_a_kink() -> None:
    assert width([drawn(0.02, 1e-7), drawn(0.03, 1e-7)]) == (0.02, 0.02)


def test_a_width_that_the_first_draw_shows_is_believed_of_anyone() -> None:
    assert width([drawn(3e-7, 1e-7), drawn(0.3, 0.1)]) == (0.3, 0.3)


def hidden_envelope(loss: float, output: float) -> Envelope:
    """Return an envelope in which reordering moves a hidden layer's gradient at updates 2 and 4,
    and moves loss and output by the given amounts at update 3."""
    told = {
        f"gradient/{step:08d}/{name}": width
        for step in (2, 3, 4)
        for name, width in {"h.bias": 0.3, "w.bias": output if step == 3 else 1e-7}.items()
    }
    plain = {"loss": [1e-7] * 4, "tensors": dict.fromkeys(told, 1e-7)}
    losses = [1e-7, 1e-7, loss, 1e-7]
    return Envelope.from_content({"loss": losses, "tensors": told, "draws": 3, "plain": plain})


def test_a_kink_that_one_backend_sits_on_alone_counts() -> None:
    kink = hidden_envelope(loss=1e-7, output=1e-7)
    assert first_suspect_step(kink, "w") is None
    assert clip_to_plain(kink, "w") is kink


@pytest.mark.parametrize(("loss", "output"), [(0.2, 1e-7), (1e-7, 0.2)])
def test_once_order_moves_loss_or_output_nothing_of_it_counts(loss: float, output: float) -> None:
    fault = hidden_envelope(loss, output)
    assert first_suspect_step(fault, "w") == 3
    kept = clip_to_plain(fault, "w")
    assert kept.tensors["gradient/00000002/h.bias"] == 0.3
    assert kept.tensors["gradient/00000003/h.bias"] == 1e-7
    assert kept.tensors["gradient/00000003/w.bias"] == 1e-7
    assert kept.tensors["gradient/00000004/h.bias"] == 1e-7
    assert kept.loss.tolist() == [1e-7] * 4
