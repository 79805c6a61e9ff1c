"""Memory format and compilation: chosen by times that are measured once, cached, overridden and
recorded."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from dualml.common.errors import UserError

if "torch" in os.environ.get("DUALML_REQUIRE", "").split(","):
    import torch
else:
    torch = pytest.importorskip("torch")
from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.optim import Adam
from dualml.backend import TrainingSpec
from dualml_torch.algorithms import kernel_choice as room
from dualml_torch.algorithms.kernel_choice import (
    CHANNELS_LAST,
    CONTIGUOUS,
    KernelChoice,
    decide_compilation,
)
from dualml_torch.backend import TorchBackend
from dualml_torch.common.environ import COMPILE, MEMORY_FORMAT
from dualml_torch.parallel.parallel import TorchParallel

DRAW = np.random.default_rng(0)


@pytest.fixture
def fresh(clean_environ: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An empty cache, and no settings of the user."""
    clean_environ.setenv("DUALML_CACHE", str(tmp_path / "cache"))
    for variable in (MEMORY_FORMAT, COMPILE):
        clean_environ.delenv(variable, raising=False)
    return clean_environ


def training(name: str = "lenet", batch: int = 4, updates: int = 10) -> TorchParallel:
    spec = model(name)
    x = DRAW.normal(size=(8, *spec.input_shape)).astype(np.float32)
    recipe = TrainingSpec(
        spec=spec,
        weights=initial_weights(spec, 0),
        rule=Adam(lr=0.01),
        x=x,
        y=np.arange(8) % 10,
        updates=updates,
        batch=batch,
    )
    return TorchBackend("cpu", 1).training(recipe)


def stub(patch: pytest.MonkeyPatch, **times: float) -> list[list[str]]:
    """Replace the measurement of times; return the calls that were measured."""
    calls: list[list[str]] = []

    def by_turns(variants):  # type: ignore[no-untyped-def]
        calls.append(list(variants))
        return {name: times[name] for name in variants}

    patch.setattr(room, "time_in_turns", by_turns)
    return calls


@pytest.mark.parametrize(
    ("contiguous", "last", "chosen"),
    [(2.0, 1.0, CHANNELS_LAST), (1.0, 2.0, CONTIGUOUS), (1.01, 1.0, CONTIGUOUS)],
)
def test_the_faster_format_is_used_where_it_clearly_wins(
    fresh: pytest.MonkeyPatch, contiguous: float, last: float, chosen: str
) -> None:
    stub(fresh, contiguous_format=contiguous, channels_last=last)
    made = training()
    assert made.choice.memory_format == chosen
    weight = made.parameters["conv2.weight"]
    assert weight.is_contiguous(memory_format=getattr(torch, chosen))
    assert f"{last:g} ms" in made.choice.reason


def test_the_times_are_measured_once(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = stub(fresh, contiguous_format=2.0, channels_last=1.0)
    first, second = training().choice, training().choice
    assert first == second
    assert calls == [[CONTIGUOUS, CHANNELS_LAST]]
    training(batch=3)  # another size is another question
    assert len(calls) == 2
    (kept, _) = (tmp_path / "cache").glob("torch-kernels-*.json")
    kept.write_text("{")  # damaged: measured again
    assert training().choice.memory_format == training(batch=3).choice.memory_format
    assert len(calls) == 3


def test_without_a_cache_folder_it_is_measured_for_the_trial(fresh: pytest.MonkeyPatch) -> None:
    fresh.setenv("DUALML_CACHE", "/dev/null/nowhere")
    calls = stub(fresh, contiguous_format=2.0, channels_last=1.0)
    assert training().choice.memory_format == training().choice.memory_format == CHANNELS_LAST
    assert len(calls) == 2


def test_of_two_that_measure_at_a_time_the_first_counts(
    fresh: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "times.json"
    path.write_text(json.dumps({CONTIGUOUS: 1.0, CHANNELS_LAST: 2.0}))
    assert room.save_times(path, {CONTIGUOUS: 2.0, CHANNELS_LAST: 1.0})[CONTIGUOUS] == 1.0


def test_nothing_is_measured_where_nothing_can_be_chosen(fresh: pytest.MonkeyPatch) -> None:
    calls = stub(fresh)
    assert training(batch=0).choice == KernelChoice(CONTIGUOUS, False, "nothing was measured")
    fresh.setenv(COMPILE, "never")
    assert not training("mlp").choice.compiled
    assert calls == []


def test_the_users_format_is_respected(fresh: pytest.MonkeyPatch) -> None:
    stub(fresh, contiguous_format=2.0, channels_last=1.0)
    fresh.setenv(MEMORY_FORMAT, CONTIGUOUS)
    assert training().choice.memory_format == CONTIGUOUS
    fresh.setenv(MEMORY_FORMAT, CHANNELS_LAST)
    assert training(batch=0).choice == KernelChoice(CHANNELS_LAST, False, "set by the user")


@pytest.mark.parametrize("variable", [MEMORY_FORMAT, COMPILE])
def test_another_value_is_one_line(fresh: pytest.MonkeyPatch, variable: str) -> None:
    fresh.setenv(variable, "perhaps")
    with pytest.raises(
        UserError, match=rf"^{variable} is \w+ or \w+, or unset; received 'perhaps'$"
    ):
        training()


def test_only_a_long_trial_compiles_to_find_out(fresh: pytest.MonkeyPatch) -> None:
    calls = stub(fresh, contiguous_format=1.0, recorded=1.0, compiled=0.5)
    fresh.setattr(
        room, "compare_compiled", lambda **makers: {**room.time_in_turns(makers), "seconds": 5.0}
    )
    assert not training("mlp", updates=10_000).choice.compiled
    assert len(calls) == 1
    assert training("mlp", updates=100_000).choice.compiled
    assert not training("mlp", updates=10_000).choice.compiled  # whatever is known by now
    assert calls[1:] == [["recorded", "compiled"]]
    fresh.setenv(COMPILE, "never")
    fresh.setattr(room, "compare_compiled", lambda **makers: pytest.fail("compiled"))
    stub(fresh, contiguous_format=1.0, channels_last=1.0)
    assert not training("lenet", updates=100_000).choice.compiled


TIMES = {"recorded": 2.0, "compiled": 1.0, "seconds": 10.0}


@pytest.mark.parametrize(
    ("times", "updates", "pays"),
    [
        (TIMES, 21_000, True),
        (TIMES, 19_000, False),
        ({**TIMES, "compiled": 1.99, "seconds": 0.1}, 10**9, False),  # as good as equal
        ({**TIMES, "compiled": 3.0}, 10**9, False),
        ({"failed": "no compiler"}, 10**9, False),
    ],
)
def test_compiling_must_pay(times: dict, updates: int, pays: bool) -> None:
    assert decide_compilation(CONTIGUOUS, times, "2 ms", updates, always=False).compiled is pays


def test_without_a_compiler_a_trial_goes_on(fresh: pytest.MonkeyPatch) -> None:
    stub(fresh, contiguous_format=1.0)

    def fails(*given: object) -> None:
        raise RuntimeError("no C++ compiler\nsecond line")

    fresh.setattr("dualml_torch.algorithms.recorded_gradient.compile_graph", fails)
    choice = training("mlp", updates=100_000).choice
    assert not choice.compiled
    assert choice.reason.endswith("compiling failed: no C++ compiler")
    fresh.setenv(COMPILE, "always")
    with pytest.raises(UserError, match=r"compiling failed: no C.. compiler; leave it unset, or"):
        training("mlp")


def test_the_choice_is_recorded(fresh: pytest.MonkeyPatch) -> None:
    stub(fresh, contiguous_format=2.0, channels_last=1.0)
    fresh.setenv(COMPILE, "never")
    backend = TorchBackend("cpu", 1)
    assert "memory_format" not in backend.environment()
    backend.last_training = training()
    facts = backend.environment()
    assert facts["memory_format"] == CHANNELS_LAST
    assert facts["kernels"] == "as recorded"
    assert "channels_last 1 ms" in facts["kernels_reason"]
    assert facts[COMPILE] == "never"
    # Ranks share the batch: nothing is chosen any more.
    backend.last_training.use_contiguous_format()
    assert "memory_format" not in backend.environment()


@pytest.mark.parametrize("name", ["mlp", "lenet", "rnn_lm"])
def test_compiled_updates_differ_by_rounding_alone(fresh: pytest.MonkeyPatch, name: str) -> None:
    """Compiled updates differ by rounding only, for batches of the usual size; other sizes run as
    recorded."""
    pytest.importorskip("torch._inductor")
    ended = []
    for value in ("never", "always"):
        fresh.setenv(COMPILE, value)
        spec, draw = model(name), np.random.default_rng(1)
        x, y = draw.normal(size=(8, *spec.input_shape)).astype(np.float32), np.arange(8) % 10
        if name == "rnn_lm":
            x = draw.integers(0, 2000, (8, 32)).astype(np.int32)
            y = draw.integers(0, 2000, (8, 32))
        weights = dict(initial_weights(spec, 0))
        recipe = TrainingSpec(
            spec=spec, weights=weights, rule=Adam(lr=0.001), x=x, y=y, updates=9, batch=6
        )
        try:
            made = TorchBackend("cpu", 1).training(recipe)
        except UserError as error:
            pytest.skip(str(error))
        for step in range(1, 7):
            made.step(np.arange(6 if step % 3 else 2), step)
        assert made.choice.compiled is (value == "always")
        ended.append(made.weights())
    for key, weight in ended[0].items():
        assert np.allclose(ended[1][key], weight, atol=1e-5)
