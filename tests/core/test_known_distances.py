"""Distances that were measured once are not measured again."""

from pathlib import Path
from typing import Any

import pytest
from model_traces import scale_slightly, set_nan, spoiled, trace

from dualml.parity.models import trace_comparison
from dualml.parity.models.judge import judge_traces
from dualml.parity.models.known_distances import read_distances, write_distances


@pytest.mark.parametrize("change", [scale_slightly, set_nan])
def test_a_second_judgement_says_the_same_and_measures_what_is_not_finite(
    change: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = spoiled(change, "gradient", 1, "fc.bias")
    first = judge_traces(trace(), other)
    write_distances(tmp_path, first.distances)
    known = read_distances(tmp_path)
    measured = []
    gap = trace_comparison.gap
    monkeypatch.setattr(trace_comparison, "gap", lambda x, y: measured.append(x.shape) or gap(x, y))
    again = judge_traces(trace(), other, known=known)
    assert again.verdict == first.verdict == "different"
    assert repr(again.describe()) == repr(first.describe())
    assert again.distances == first.distances
    assert again.outside == first.outside
    assert measured == ([] if change is scale_slightly else [(2,)])


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    assert read_distances(tmp_path) is None
