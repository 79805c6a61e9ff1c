"""The numbers listed beside a wrong one give the right one, calculated by the rule of its page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from test_course_inputs import EVERY, calculated

from dualml.course.checkpoint.requirements import CheckpointRequirement
from dualml.course.checkpoint.rules import SHARE
from dualml.course.exercise import Difference
from dualml.course.rnn_ps.remote_rules import MOMENTUM

#: Symbols of a checkpoint's state that have another name than the state.
SYMBOLS = {"momentum/weight": "v", "momentum/bias": "v", "rate": "η"}


def listed_inputs(*names: str) -> Iterator[tuple[str, Difference, Mapping[str, Any], Any]]:
    """Yield requirement, place, listed numbers and call of every result of these requirements."""
    for name in names:
        for place, inputs, call in calculated(EVERY[name]):
            yield name, place, inputs, call


def parts_of(key: str) -> tuple[int, str]:
    step, _, name = key.removeprefix("whole/").partition("/")
    return int(step), name


def softsign(z: float) -> float:
    return z / (1 + abs(z))


def test_a_checkpoint_lists_the_last_update() -> None:
    seen = set()
    for _, place, n, call in listed_inputs("checkpoint.resume", "checkpoint.undisturbed"):
        key = place.key.replace("saved/", f"{call.options['updates']}/")
        step, name = parts_of(key)
        seen.add(name)
        last, value = step - 1, place.expected
        if name == "shift":
            before = n[f"shift_{last}"]
            assert np.isclose((1 - SHARE) * before + SHARE * n[f"x_{step}"], value)
        elif name == "rate":
            assert np.isclose(n["η_0"] * n["factor"] ** n["epochs"], value)
        elif name == "draws":
            assert n == {"seed": call.options["seeds"][place.rank], "updates": step}
        else:
            v = n["μ"] * n[f"v_{last}"] + n[f"g_{step}"]
            right = v if name.startswith("momentum/") else n[f"θ_{last}"] - n["η"] * v
            assert np.isclose(right, value), place
    assert seen == {"weight", "bias", "shift", "rate", "draws", "momentum/weight", "momentum/bias"}


def test_a_checkpoint_lists_what_the_second_training_began_with() -> None:
    """A load that does nothing leaves exactly the numbers that are listed."""
    nothing = frozenset({"model_lost", "optimizer_lost", "random_lost"})
    for aspect in ("model", "optimizer", "random"):
        requirement = EVERY[f"checkpoint.{aspect}"]
        assert isinstance(requirement, CheckpointRequirement)
        for _, place, n, call in listed_inputs(requirement.name):
            name = place.key.partition("/")[2]
            left = requirement.expected(call, nothing)[place.rank][place.key][place.index]
            assert n == {f"{SYMBOLS.get(name, name)}_0": left}
    for _, place, n, _ in listed_inputs("checkpoint.progress"):
        name = place.key.partition("/")[2]
        assert n[f"{name}_0"] == 0
        assert n["save 1"] < n["save 2"] == place.expected


def test_a_parameter_server_lists_numbers_and_gradients() -> None:
    names = set()
    for _, place, n, call in listed_inputs("server.alone", "server.update"):
        step, name = parts_of(place.key)
        names.add(name)
        symbol = "E" if name == "table" else "W"
        total = sum(n[f"g_{step} (rank {rank})"] for rank in range(1, call.ranks))
        factor = call.options["lr"] / (call.ranks - 1)
        assert np.isclose(n[f"{symbol}_{step - 1}"] - factor * total, place.expected)
    assert names == {"table", "weights"}
    for _, place, n, call in listed_inputs("server.loss"):
        at = parts_of(place.key)[0] - 1
        assert len(n["words"]) == call.options["length"] * call.options["batch"]
        assert len(n[f"E_{at}[{n['words'][0]}]"]) == call.options["width"]
        assert np.ndim(n[f"W_{at}[0]"]) == 0


def test_remote_calls_list_momentum_sequences_and_the_last_word() -> None:
    kinds = set()
    for _, place, n, call in listed_inputs("remote.tables", "remote.recurrent", "remote.losses"):
        step, name = parts_of(place.key)
        kinds.add(name)
        if name == "loss":
            assert np.isclose(np.mean(list(n.values())), place.expected)
        elif name == "state":
            j = (place.index or ())[1]
            z = np.dot(n[f"input[{j}]"], n["x_3"]) + np.dot(n[f"hidden[{j}]"], n["h_2"])
            assert np.isclose(softsign(float(z) + n[f"bias[{j}]"]), place.expected)
        else:
            v = MOMENTUM * n[f"v_{step - 1}"] + n[f"g_{step}"]
            assert np.isclose(n[f"θ_{step - 1}"] - call.options["lr"] * v, place.expected)
    assert kinds >= {"loss", "state", "table", "decoder", "input", "hidden"}


def test_accumulation_lists_sums_and_counts() -> None:
    for name, place, n, _ in listed_inputs(
        "accumulate.loss", "accumulate.empty", "accumulate.remainder"
    ):
        if place.key == "losses":
            total, tokens = n["L_0"] + n["L_1"], n["N_0"] + n["N_1"]
            assert np.isclose(total / tokens, place.expected), name
        if place.key == "updates":
            assert n["epochs"] * -(-n["micro_batches"] // n["k"]) == place.expected


@pytest.mark.parametrize("name", ["bottleneck.step", "bottleneck.empty"])
def test_a_balanced_update_lists_sizes_and_gradients(name: str) -> None:
    for _, place, n, call in listed_inputs(name):
        step, of = parts_of(place.key)
        sizes = [n[f"n_{rank}"] for rank in range(call.ranks)]
        if of == "rows":
            assert sizes[place.rank] == place.expected
            continue
        g = sum(n[f"g_{rank}"] * size for rank, size in enumerate(sizes)) / sum(sizes)
        assert np.isclose(n[f"θ_{step - 1}"] - call.options["hyper"]["lr"] * g, place.expected)


def test_a_measured_time_lists_the_rounds_of_which_it_is_the_median() -> None:
    kinds = set()
    requirement = EVERY["bottleneck.measure"]
    for _, first, _, call in listed_inputs("bottleneck.measure"):
        for column, kind in enumerate(("compute", "transfer", "wait")):
            place = Difference(first.rank, first.key, (0, column), 0.0, 0.0)
            n = requirement.inputs(call, place)
            right = requirement.expected(call)[0]["times"][0, column]
            assert np.isclose(np.median(list(n.values())), right)
            kinds |= {key.partition("_")[0] for key in n}
            assert all(key.startswith(kind) for key in n)
    assert kinds == {"compute", "transfer", "wait"}


def test_an_output_over_remote_calls_lists_activations_and_weights() -> None:
    found = [
        (place, n) for _, place, n, _ in listed_inputs("rpc.updates") if place.key == "outputs"
    ]
    assert found
    for place, n in found:
        assert np.isclose(np.dot(n["h"], n["W"]) + n["b"], place.expected)
