"""State of users' objects, the source lines of their layers, and allowed differences of two
runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dualml.backend import BackendInfo
from dualml.common.words import LANGUAGES
from dualml.experiment.comparison import FirstDivergence
from dualml.parity.models import run
from dualml.parity.models.attributes import capture_attributes, restore_attributes
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.construction import locations_by_name, record_construction
from dualml.parity.models.operations import Operation, SourceLocation
from dualml.parity.models.recorder import Recorder
from dualml.parity.models.sentences import format_place as told
from dualml.parity.models.sides import ResolvedSide
from dualml.parity.models.step_arrays import ComparedStep, measure_repetition
from dualml.parity.models.trace import Trace


class CustomOptimizer:
    done = 0

    def __init__(self) -> None:
        self.slots: dict[str, Any] = {"m": [1.0]}
        self.powers = [1.0, 1.0]
        self.table = {"w": np.zeros(2)}

    def step(self) -> None:
        self.done += 1
        self.slots["v"] = [2.0]
        self.slots["m"][0] = 3.0
        self.powers = [one / 2 for one in self.powers]
        self.table["w"] += 1


def copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else None


def test_counters_lists_and_tables_are_put_back() -> None:
    one = CustomOptimizer()
    kept = capture_attributes(one, copied, lambda value: False)
    for _ in range(2):
        one.step()
        restore_attributes(kept, copied)
        assert one.slots == {"m": [1.0]}
        assert one.done == 0
        assert one.powers == [1.0, 1.0]
        assert not one.table["w"].any()


def test_the_line_that_built_a_layer_is_known() -> None:
    class Base:
        __module__ = "framework.layers"

        def __init__(self) -> None:
            self.ready = True

    class Layer(Base):
        __module__ = "framework.layers"

    with record_construction(Base, ("/framework/",)) as places:
        one = Layer()
    place = locations_by_name(places, {id(one): "block.norm"})["block.norm"]
    assert place.file == __file__
    assert place.code == "Layer()"
    assert Layer().ready  # and no longer
    assert len(places) == 1


def test_both_lines_are_told_where_they_are_two() -> None:
    here, there = (
        SourceLocation("net.py", 22, "self.norm(x)"),
        SourceLocation("net.py", 13, "nn.LayerNorm(8)"),
    )
    one = Operation(7, "layer_norm", ("op:6",), {}, ((2, 8),), here)
    row = {**one.describe(), "built": asdict(there)}
    for lang, words in (("en", "net.py line 13: nn.LayerNorm(8)"), ("zh", "net.py 第 13 行")):
        assert words in told(lang, "torch", row)
    row["built"] = row["place"]
    assert "built" not in told("en", "torch", row)


def test_two_runs_may_differ_by_rounding_which_then_counts() -> None:
    one = Recorder.__new__(Recorder)
    one.trace = Trace("mindspore", {}, [], {"act": "Softplus"})
    one.draws = 1

    def judge(repeated: NDArray[Any]) -> dict[str, str] | None:
        run = ComparedStep(1, {"forward/00000001/act": np.ones(4)}, measure_repetition)
        run.add("forward/act", repeated)
        return one.find_nondeterminism(list(run.base), run.distances)

    assert judge(np.ones(4)) is None
    assert not one.trace.envelope
    assert judge(np.ones(4) + 1e-6) is None
    assert one.trace.envelope is not None
    assert abs(one.trace.envelope["forward/00000001/act"] - 1e-6) < 1e-9
    assert judge(np.ones(4) + 1e-3) == {"phase": "forward", "name": "act", "type": "Softplus"}
    assert one.find_nondeterminism(["forward/00000001/act"], {}) is not None  # no longer computed
    # An optimizer that sets its rate in the update has that of the run before until then.
    assert one.find_nondeterminism(["schedule/00000001/lr"], {"schedule/00000001/lr": 0.5}) is None


def test_a_search_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = FirstDivergence(1, "forward", "fc", 1.0, 1e-7, layer="fc", type="Linear", other="fc")
    found = ModelComparison(
        verdict="different",
        reason="outside",
        sides=("torch", "mindspore"),
        margin=10.0,
        tolerance="measured",
        steps=1,
        first=first,
    )
    one = Trace("torch", {}, [], {})
    one.operations = [Operation(0, "linear", (), {}, ((2, 4),))]
    monkeypatch.setattr(run, "traces", lambda folder: (one, one))
    monkeypatch.setattr(run, "search_causes", lambda *given: None)
    (tmp_path / "explainer.log").write_text("Traceback\nTypeError: unhashable\n")
    side = ResolvedSide("a", BackendInfo("torch", "torch", "", "dualml_torch.backend:X"), {})
    told = run.add_explanation(tmp_path, {"timeout": 1.0, "budget": 1.0}, [side], found)
    for lang in LANGUAGES:
        assert "TypeError: unhashable" in told.paragraph(lang)
