"""The record of a hypothesis, for models, experiments and exercises."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from dualml.common.words import LANGUAGES
from dualml.course.catalogue import load_plants
from dualml.parity.causes.mutation import Mutation
from dualml.parity.diffs.lookup import entries_about
from dualml.parity.hypothesis import DEPTHS, Hypothesis, Patch
from dualml.parity.models.sentences import make_hypothesis

LABS = ("lab1", "lab2", "lab3", "lab4", "memory", "methods", "checkpoint", "rnn_ps")
SOURCE = "def f(x):\n    return x + 1\n\n\ndef g(x):\n    return x + 1\n"


@pytest.mark.parametrize("lab", LABS)
def test_a_student_s_mistake_has_words_at_every_depth_and_a_patch(lab: str) -> None:
    for plant in load_plants(lab):
        assert plant.patch.edits
        said = [plant.words(lang, depth) for lang in LANGUAGES for depth in DEPTHS]
        assert plant.right or all(said)
        assert plant.right == (plant.mutation is None)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_mutation_of_a_call_has_a_name_words_and_entries(lang: str) -> None:
    change = Mutation("attribute", "set", (3,), "layer_norm", "eps", 1e-7, 1e-5)
    one = make_hypothesis(asdict(change))
    assert one.cause == "layer_norm.eps"
    assert one.entries
    assert "1e-07" in one.words(lang, "cause")
    said = {one.words(lang, depth) for depth in DEPTHS}
    assert len(said) == len(DEPTHS)
    assert "" not in said


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_cause_in_an_experiment_has_words_with_its_numbers(lang: str) -> None:
    one = Hypothesis("averaged-twice", detail={"factor": 0.25})
    assert "0.25" in one.words(lang, "cause").format(**one.detail)
    assert entries_about(one.cause) == ("gradient-reduction",)
    assert one.predict(1, 0) == {}


def test_a_patch_stays_inside_its_target() -> None:
    patch = Patch("a.py", "g", (("x + 1", "x - 1"),))
    assert patch.apply(SOURCE) == SOURCE[:-4] + "- 1\n"
    for wrong in (Patch("a.py", "h", patch.edits), Patch("a.py", "g", (("y", "z"),))):
        with pytest.raises(ValueError, match=r"a\.py"):
            wrong.apply(SOURCE)
