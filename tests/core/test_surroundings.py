"""State that a step's function refers to, besides model and optimizer, is put back."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np

from dualml.parity.models.surroundings import MAX_ELEMENTS, Surroundings

COUNT = 0
TABLE: dict[str, Any] = {"a": 1}


class Schedule:
    """A schedule that a user wrote."""

    def __init__(self) -> None:
        self.step, self.rates, self.mean = 0, [0.1], np.zeros(3)

    def advance(self, by: int = 1) -> None:
        self.step += by
        self.rates.append(0.1 / self.step)
        self.mean += 1.0


def surroundings_of(function: Any, kept: Any = None) -> Surroundings:
    return Surroundings(
        function, lambda value: None, lambda value: value is kept, lambda value: None
    )


def count_up() -> None:
    global COUNT
    COUNT += 1
    TABLE["b"] = COUNT


def test_globals_are_put_back_also_those_of_functions_that_are_called() -> None:
    def step() -> None:
        count_up()

    before, counted = surroundings_of(step), COUNT
    step()
    assert (counted + 1, {"a": 1, "b": counted + 1}) == (COUNT, TABLE)
    before.restore()
    assert (counted, {"a": 1}) == (COUNT, TABLE)


def test_variables_of_the_enclosing_function_are_put_back() -> None:
    schedule, total = Schedule(), 0.0

    def step() -> None:
        nonlocal total
        total += 1.5
        schedule.advance()

    before = surroundings_of(step)
    step()
    after = surroundings_of(step)
    before.restore()
    assert (total, schedule.step, schedule.rates, schedule.mean.tolist()) == (0, 0, [0.1], [0] * 3)
    step()
    step()
    after.restore()
    assert (total, schedule.step, schedule.rates) == (1.5, 1, [0.1, 0.1])
    assert schedule.mean.tolist() == [1] * 3


def test_methods_partials_and_callable_objects_are_followed() -> None:
    class Callable(Schedule):
        def __call__(self) -> None:
            self.advance()

    for schedule in (Schedule(), Callable()):
        step: Any = schedule if callable(schedule) else functools.partial(schedule.advance, 2)
        before = surroundings_of(step)
        step()
        before.restore()
        assert schedule.step == 0


def test_what_is_kept_and_what_is_data_is_left_alone() -> None:
    model, large = Schedule(), {"x": np.zeros(MAX_ELEMENTS + 1)}
    module = ModuleType("other")

    def step() -> None:
        model.advance()
        large["x"] += 1
        module.value = 1  # type: ignore[attr-defined]

    before = surroundings_of(step, kept=model)
    step()
    before.restore()
    assert model.step == 1
    assert large["x"][0] == 1
    assert module.value == 1  # type: ignore[attr-defined]


def test_a_mapping_that_may_be_a_file_is_not_emptied() -> None:
    class File:
        """A mapping on a disk, like that of h5py: entries can be set, and it is no dict."""

        def __init__(self) -> None:
            self.entries = {"a": 1}

        def __setitem__(self, name: str, value: int) -> None:
            self.entries[name] = value

        def clear(self) -> None:
            raise AssertionError

    file = File()

    def step() -> None:
        file["b"] = 2

    before = surroundings_of(step)
    step()
    before.restore()
    assert file.entries == {"a": 1, "b": 2}
