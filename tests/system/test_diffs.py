"""Every entry of the catalogue of differences, measured on the installed versions."""

from __future__ import annotations

import pytest
from conformance.backends import require

from dualml.interface.cli.app import app
from dualml.parity.diffs import load
from dualml.parity.diffs.compare import EntryResult
from dualml.parity.diffs.load import catalogue
from dualml.parity.diffs.measure import frameworks, measure_entries

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def measured_entries() -> dict[str, EntryResult]:
    """Measure all entries at once, because starting the frameworks takes most of the time."""
    require("torch")
    require("mindspore")
    return {
        one.entry.name: one for one in measure_entries(list(catalogue().values()), frameworks())
    }


@pytest.mark.parametrize("name", list(catalogue()))
def test_it_is_as_described(name: str, measured_entries: dict[str, EntryResult]) -> None:
    assert measured_entries[name].plain is not None
    assert measured_entries[name].problem is None


def test_what_has_changed_is_named(
    measured_entries: dict[str, EntryResult],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An entry that overstates a difference is noticed, by its bounds and by its kind."""
    right = catalogue()["gelu"]
    wrong = right.model_copy(update={"at_least": 0.5})
    monkeypatch.setattr(load, "catalogue", lambda: {"gelu": wrong})
    assert app(["diffs"], standalone_mode=False) == 1
    told = capsys.readouterr()
    assert "dualml: gelu: should differ by at least 0.5; found " in told.err
    assert "(gelu)" in told.out
    monkeypatch.setattr(load, "catalogue", lambda: {"gelu": right})
    assert app(["diffs", "gelu"], standalone_mode=False) == 0
    assert "gelu" not in capsys.readouterr().err
