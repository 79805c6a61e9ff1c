"""The exercise on a loader, without a framework: properties, detectors, messages, pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dualml.common.words import LANGUAGES, load_messages
from dualml.course.catalogue import load_plants
from dualml.course.drive_loader import SampleReader, run_loaders
from dualml.course.exercise import Answer, ExerciseCall
from dualml.course.judge import judge
from dualml.course.labs import find_exercise, load_lab
from dualml.course.loader.mistakes import DETECTORS
from dualml.course.loader.requirements import REQUIREMENTS
from dualml.course.loader.runs import unpack_loops
from dualml.course.workspace import read_page, read_solution, read_translations

FLAGS = list(dict.fromkeys(flag for r in REQUIREMENTS for flag in r.flags))
#: Mistakes that show in the rows of every requirement, and in an error.
MISTAKES = ["load_unpaired", *FLAGS, "state_not_plain"]
SOLUTION = find_exercise("loader_torch")[1]


class Rows:
    """Stand-in for a framework: its tensors are arrays."""

    @staticmethod
    def from_numpy(a: Any) -> Any:
        return a


def loader_class(text: str) -> Any:
    """Return the class `Loader` of a solution's text, with NumPy in place of PyTorch."""
    text = text.replace("import torch\n", "").replace(
        "from torch import Tensor\n", "Tensor = None\n"
    )
    space: dict[str, Any] = {"torch": Rows, "__name__": "submitted"}
    exec(compile(text, "loader", "exec"), space)
    return space["Loader"]


def answer_of(made: Any, call: ExerciseCall) -> Answer:
    """Run loaders of a class as the judge does."""
    h, arrays = call.options["hyper"], call.arrays[0]

    def make_loader(rank: int, seed: int) -> Any:
        data = arrays["x"], arrays["y"], h["batch"], rank, h["ranks"], seed
        return made(*data, drop_last=h["drop_last"])

    reader = SampleReader(arrays["x"], arrays["y"], np.asarray)
    return Answer([run_loaders(make_loader, reader, call.options, lambda: None)])


def judgements(text: str, seed: int = 5) -> Iterator[Any]:
    """Judge a solution's text requirement by requirement."""
    made = loader_class(text)
    for requirement in REQUIREMENTS:
        calls = requirement.calls(np.random.default_rng(seed))
        yield judge(requirement, calls, [answer_of(made, call) for call in calls])


@pytest.mark.parametrize("seed", range(4))
def test_our_solution_meets_everything(seed: int) -> None:
    found = list(judgements(read_solution(SOLUTION), seed))
    assert [j for j in found if j.status != "met"] == []


def numpy_plants(right: bool) -> list[Any]:
    """Return the plants of our solution that run without PyTorch."""
    plants = [p for p in load_plants("loader") if p.file == SOLUTION.name and p.right == right]
    uses = "torch."
    return [p for p in plants if not any(uses in new for _, new in p.patch.edits)]


@pytest.mark.parametrize("plant", numpy_plants(False), ids=lambda p: p.name)
def test_a_mistake_is_named(plant: Any) -> None:
    text = plant.patch.apply(read_solution(SOLUTION))
    if plant.name == "state_not_plain":
        with pytest.raises(TypeError, match="JSON serializable"):
            list(judgements(text))
        return
    failed = [j for j in judgements(text) if j.status != "met"]
    assert failed
    assert failed[0].mistakes == (plant.name,)


@pytest.mark.parametrize("plant", numpy_plants(True), ids=lambda p: p.name)
def test_what_is_right_in_another_way_is_accepted(plant: Any) -> None:
    found = list(judgements(plant.patch.apply(read_solution(SOLUTION))))
    assert [j for j in found if j.status != "met"] == []


def test_batches_that_are_none_are_refused() -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(3)
    reader = SampleReader(x, y, np.asarray)
    assert [list(b) for b in reader.read([(x[1:], y[1:])])] == [[1, 2]]
    assert [list(b) for b in reader.read([(x + 0.5, y)])] == [[-1, -1, -1]]
    for batch in ((x[:, 0], y), (x, y[:2])):
        with pytest.raises(TypeError, match="expected a batch"):
            reader.read([batch])


@pytest.mark.parametrize(
    ("sizes", "counts"), [([1], [1]), ([2, -1], [2]), ([3], [2]), ([3], [[1]])]
)
def test_an_answer_that_does_not_add_up_is_refused(sizes: Any, counts: Any) -> None:
    arrays = {"first/values": np.arange(3), "first/sizes": np.array(sizes)}
    with pytest.raises(ValueError, match="loops"):
        unpack_loops({**arrays, "first/counts": np.array(counts)}, "first")


def test_every_mistake_is_planted_in_both_frameworks() -> None:
    assert set(FLAGS) | {"load_unpaired"} == DETECTORS.keys()
    wanted = {(flag, one.name) for flag in MISTAKES for one in load_lab("loader").files}
    assert {(p.name, p.file) for p in load_plants("loader") if not p.right} == wanted


@pytest.mark.parametrize("lang", LANGUAGES)
def test_there_are_words_for_everything(lang: str) -> None:
    own = load_messages(lang, "course_loader")
    depths = ("symptom", "place", "principle", "cause")
    wanted = {f"mistake.{flag}.{depth}" for flag in MISTAKES for depth in depths}
    assert own.keys() == wanted | {f"requirement.{r.name}" for r in REQUIREMENTS}
    assert all(own.values())


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_task_names_every_requirement(lang: str) -> None:
    task = read_page("loader", "loader", lang)
    assert task.startswith("# ")
    for requirement in REQUIREMENTS:
        assert f"`{requirement.name}`" in task


def test_no_translated_line_is_left_over() -> None:
    files = load_lab("loader").files
    there = {line.strip() for one in files for line in read_solution(one).splitlines()}
    assert read_translations("loader").keys() <= there
