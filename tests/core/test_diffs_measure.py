"""Running, comparing and judging probes, with hand-made outcomes and simple probes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.backend import BackendInfo
from dualml.interface.cli.app import app
from dualml.parity.diffs import compare, load, measure
from dualml.parity.diffs.compare import (
    EntryResult,
    Probed,
    compare_variant,
    describe_problem,
    format_distance,
    judge_entry,
)
from dualml.parity.diffs.entry import DifferenceEntry
from dualml.parity.diffs.messages import measured_sentence, table_cells
from dualml.parity.diffs.page import render_page
from dualml.parity.diffs.worker import collect_arrays


def entry(name: str = "it", **fields: Any) -> DifferenceEntry:
    text = {"en": "it", "zh": "它"}
    texts = dict.fromkeys(("title", "torch", "mindspore", "remedy"), text)
    return DifferenceEntry(name=name, topic="layers", sources=("a page",), **{**texts, **fields})


def probed_array(*values: Any, dtype: str = "float32") -> Probed:
    return "arrays", {"value": np.array(values, dtype)}


RAISED: Probed = ("raised", "ValueError: no")
DIED: Probed = ("died", "was ended by SIGKILL")
#: Kind → torch's and MindSpore's outcome, the distance, and the words in both languages.
OUTCOMES: dict[str, tuple[Probed, Probed, float, str, str]] = {
    "same": (probed_array(1, 2), probed_array(1, 2), 0.0, "0", "0"),
    "value": (probed_array(3, 4), probed_array(3, 4.5), 0.5 / 29.25**0.5, "0.092", "0.092"),
    "type": (probed_array(1), probed_array(1, dtype="int32"), 0.0, "float32 against int32",
             "float32 对 int32"),
    "shape": (probed_array(1, 2), probed_array(1), np.inf, "(2,) against (1,)", "(2,) 对 (1,)"),
    "nan": (probed_array(0), probed_array(np.nan), np.inf, "MindSpore gives NaN or ∞",
            "MindSpore 得到 NaN 或 ∞"),
    "raises": (probed_array(0), RAISED, np.inf, "MindSpore raises ValueError: no",
               "MindSpore 抛出 ValueError: no"),
    "both raise": (RAISED, RAISED, np.inf,
                   "both raise: torch ValueError: no; MindSpore ValueError: no",
                   "两者都报错：torch ValueError: no; MindSpore ValueError: no"),
    "died": (probed_array(0), DIED, np.inf,
             "the process of MindSpore did not end well: was ended by SIGKILL",
             "MindSpore 的进程未正常结束：was ended by SIGKILL"),
}  # fmt: skip
KINDS = ("value", "shape", "type", "raises", "nan", "same")


@pytest.mark.parametrize("kind", OUTCOMES)
def test_see_tells_the_kinds_apart(kind: str) -> None:
    torch, mindspore, far, en, zh = OUTCOMES[kind]
    seen = compare_variant(torch, mindspore)
    assert seen.kind == kind
    assert seen.distance == pytest.approx(far)
    assert (seen.text_in("en"), seen.text_in("zh")) == (en, zh)
    back = compare_variant(mindspore, torch)
    assert (back.kind, back.distance) == (seen.kind, seen.distance)


@pytest.mark.parametrize(
    ("a", "b", "kind", "far"),
    [
        ({"x": np.ones(2), "y": np.ones(2)}, {"x": np.ones(2)}, "shape", np.inf),
        ({"x": np.ones(2), "y": np.ones(2)}, {"x": np.ones(2), "y": -np.ones(2)}, "value", 2.0),
        ({"x": np.array([np.inf])}, {"x": np.array([np.inf])}, "value", np.inf),
        ({"x": np.array("same")}, {"x": np.array("same")}, "same", 0.0),
        ({"x": np.array("sum")}, {"x": np.array("mean")}, "value", np.inf),
        ({"x": np.array([1j])}, {"x": np.array([-1j])}, "value", 2.0),
        ({"x": np.array([True])}, {"x": np.array([False])}, "value", 1.0),
        ({"x": np.zeros((0, 3))}, {"x": np.zeros((0, 3))}, "same", 0.0),
        ({}, {}, "same", 0.0),
    ],
)
def test_see_compares_all_arrays(
    a: dict[str, Any], b: dict[str, Any], kind: str, far: float
) -> None:
    seen = compare_variant(("arrays", a), ("arrays", b))
    assert (seen.kind, seen.distance) == (kind, pytest.approx(far))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_is_as_described_if_it_is_of_that_kind(kind: str, outcome: str) -> None:
    plain, equal = compare_variant(*OUTCOMES[outcome][:2]), compare_variant(*OUTCOMES["same"][:2])
    at_least = 0.09 if kind == "value" else 0.0
    found = describe_problem(entry(kind=kind, at_least=at_least, after=0.0), plain, equal)
    assert (found is None) == (kind == outcome)
    if found is not None:
        assert plain.text in found


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_bounds_hold_in_both_directions(lang: Any) -> None:
    zero, near, far = (
        compare_variant(probed_array(1), probed_array(1 + gap)) for gap in (0, 1e-6, 1e-2)
    )

    def problem_of(plain: Any, equal: Any, **fields: Any) -> str | None:
        return describe_problem(entry(**fields), plain, equal, lang)

    assert problem_of(far, near, at_least=1e-3, after=1e-5) is None
    assert "0.02" in (problem_of(far, near, at_least=0.02, after=1e-5) or "")
    assert "1e-07" in (problem_of(far, near, at_least=1e-3, after=1e-7) or "")
    assert problem_of(far, far, at_least=1e-3) is None  # nothing makes them equal
    assert problem_of(far, compare_variant(*OUTCOMES["raises"][:2]), at_least=1e-3, after=1.0)
    assert problem_of(
        far, compare_variant(probed_array(np.nan), probed_array(np.nan)), at_least=1e-3, after=1.0
    )
    assert problem_of(near, zero, kind="same", at_least=1e-5, after=0.0) is None
    assert problem_of(far, zero, kind="same", at_least=1e-5, after=0.0)
    for kind in ("same", "value", "raises"):  # a process that died is never as described
        assert "SIGKILL" in (
            problem_of(far, compare_variant(*OUTCOMES["died"][:2]), kind=kind, at_least=1e-3) or ""
        )


def test_judge_needs_both_sides() -> None:
    side = {"plain": probed_array(1), "equal": probed_array(1)}
    assert judge_entry(entry(), {"torch": side}) == EntryResult(entry(), None, None, None)
    found = judge_entry(entry(at_least=0.1, after=0.0), {"torch": side, "mindspore": side})
    assert found.problem == "should differ by value; found same (0)"
    assert found.problem_in("zh") == "差异的种类应为 value；实测为 same（0）"
    other = {"plain": probed_array(2), "equal": probed_array(1)}
    assert (
        judge_entry(entry(at_least=0.1, after=0.0), {"torch": side, "mindspore": other}).problem
        is None
    )
    swapped = {"plain": probed_array(1), "equal": probed_array(2)}  # the variants are not mixed up
    assert judge_entry(
        entry(at_least=0.1, after=0.0), {"torch": side, "mindspore": swapped}
    ).problem


def test_a_distance_that_sees_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "array_distance", lambda a, b: 0.0)
    with pytest.raises(AssertionError):
        test_see_tells_the_kinds_apart("value")


def test_numbers_are_short() -> None:
    assert [
        format_distance(x) for x in (0.0, 1.74e-4, 2e-12, 0.0123, 0.981, 2.0, np.inf, np.nan)
    ] == [
        "0",
        "1.7e-4",
        "2.0e-12",
        "0.012",
        "0.98",
        "2",
        "∞",
        "∞",
    ]


def test_a_table_has_no_message_of_an_error() -> None:
    for kind in ("raises", "both raise", "died"):
        seen = compare_variant(*OUTCOMES[kind][:2])
        found = EntryResult(entry(kind="raises"), seen, seen, None)
        for lang in ("en", "zh"):
            shown = [*table_cells(found, lang), measured_sentence(found, lang, brief=True)]  # type: ignore[arg-type]
            assert not any(": no" in text or "SIGKILL" in text for text in shown), shown


def test_what_probes_may_return() -> None:
    found = collect_arrays({"a": (1, [2, 3]), "b": [np.zeros(2), 4.0]})
    assert {name: array.tolist() for name, array in found.items()} == {
        "a0": 1,
        "a1": [2, 3],
        "b0": [0, 0],
        "b1": 4.0,
    }
    with pytest.raises(TypeError, match="a probe returned NoneType"):
        collect_arrays(None)


# Probes that are run.

PROBES = """
import os, signal
import numpy as np

def first():
    return np.array([1.0, {value}])

def kills():
    os.{end}
    return 0.0

def between():
    return np.float32({value})

def raises():
    raise ValueError("one line\\nand another")

def nothing():
    return None

def last():
    return np.array([{value}])

def last_equal():
    return np.array([3.0])
"""
NAMES = ("first", "kills", "between", "raises", "nothing", "last")


def info(
    side: str, tmp_path: Path, value: float, end: str = "getpid()", importable: bool = True
) -> BackendInfo:
    """Return a backend whose probes need no framework."""
    package = tmp_path / f"fake_{side}"
    folder = package / "parity" / "diffs"
    folder.mkdir(parents=True)
    (package / "__init__.py").write_text("" if importable else "import not_there_at_all\n")
    (folder.parent / "__init__.py").write_text("")
    (folder / "__init__.py").write_text("")
    (folder / "layers.py").write_text(PROBES.format(value=value, end=end))
    return BackendInfo(
        side,
        "numpy",
        "",
        f"fake_{side}.backend:None",
        lambda threads: {"PYTHONPATH": str(tmp_path)},
    )


ENTRIES = [
    entry("first", at_least=0.1),
    entry("kills"),
    entry("between", at_least=0.1),
    entry("raises", kind="raises"),
    entry("nothing"),
    entry("last", at_least=0.1, after=0.0),
]


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("_exit(7)", "ended with exit code 7 without a result"),
        ("kill(os.getpid(), signal.SIGKILL)", "was ended by SIGKILL"),
    ],
    ids=["exit", "kill"],
)
def test_a_probe_that_ends_its_process_takes_no_other_with_it(
    end: str, why: str, tmp_path: Path
) -> None:
    sides = {
        "torch": info("torch", tmp_path, 1.0),
        "mindspore": info("mindspore", tmp_path, 2.0, end),
    }
    told: list[str] = []
    found = {one.entry.name: one for one in measure.measure_entries(ENTRIES, sides, told.append)}
    assert {name: one.plain and one.plain.kind for name, one in found.items()} == {
        "first": "value",
        "kills": "died",
        "between": "value",
        "raises": "both raise",
        "nothing": "died",
        "last": "value",
    }
    assert found["kills"].problem == f"the process of MindSpore did not end well: {why}"
    assert "a probe returned NoneType" in (found["nothing"].problem or "")
    assert found["raises"].plain is not None
    assert found["raises"].plain.text.count("one line") == 2
    assert "another" not in found["raises"].plain.text
    for name in ("first", "between", "last"):
        assert found[name].problem is None
    assert found["first"].plain == found["first"].equal  # there is no other probe
    assert found["last"].equal is not None
    assert found["last"].equal.kind == "same"
    assert "mindspore: kills" in told


def test_a_framework_that_does_not_start_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = {
        "torch": info("torch", tmp_path, 1.0),
        "mindspore": info("mindspore", tmp_path, 2.0, importable=False),
    }
    started: list[str] = []
    attempt = measure.attempt

    def counting_attempt(side: BackendInfo, *rest: Any) -> str:
        started.append(side.name)
        return attempt(side, *rest)

    monkeypatch.setattr(measure, "attempt", counting_attempt)
    found = measure.measure_entries([ENTRIES[0], ENTRIES[2], ENTRIES[5]], sides)
    assert started == ["torch", "mindspore"]
    for one in found:
        assert "No module named 'not_there_at_all'" in (one.problem or "")


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, DifferenceEntry]:
    """Return the command with these entries and probes; the probe ``kills`` ends the process on
    MindSpore's side."""
    known = {e.name: e for e in ENTRIES if e.name in ("first", "kills", "last")}
    sides = {
        "torch": info("torch", tmp_path, 1.0),
        "mindspore": info("mindspore", tmp_path, 2.0, "_exit(7)"),
    }
    monkeypatch.setattr(load, "catalogue", lambda: known)
    monkeypatch.setattr(measure, "frameworks", lambda: sides)
    monkeypatch.setenv("COLUMNS", "120")
    return known


def test_the_command_names_what_is_not_as_described(
    catalogue: dict[str, DifferenceEntry], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert app(["diffs"], standalone_mode=False) == 1
    told = capsys.readouterr()
    assert "dualml: kills: the process of MindSpore did not end well" in told.err
    assert "Traceback" not in told.out + told.err
    assert "not as described: 1 (kills)" in told.out
    assert app(["diffs", "last", "--lang", "zh"], standalone_mode=False) == 0
    assert "相对差异为 0.5；统一之后为 0" in capsys.readouterr().out
    (tmp_path / "docs").mkdir()
    assert app(["diffs", "--page", str(tmp_path / "docs")], standalone_mode=False) == 1
    assert not list((tmp_path / "docs").iterdir())  # no page says what is not so
    del catalogue["kills"]
    catalogue["last"] = entry("last", at_least=0.9, after=0.0)
    assert app(["diffs", "--json"], standalone_mode=False) == 1
    told = capsys.readouterr()
    assert "dualml: last: should differ by at least 0.9; found 0.5" in told.err


def test_the_pages_are_written(
    catalogue: dict[str, DifferenceEntry], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    del catalogue["kills"]
    assert app(["diffs", "--page", str(tmp_path)], standalone_mode=False) == 0
    english, chinese = (
        (tmp_path / name).read_text("utf-8") for name in ("differences.md", "differences.zh.md")
    )
    assert "| [last](#last) | it | silent | 0.5 | 0 |" in english
    assert "- **Measured**: differ by 0.5 (relative); made equal 0" in english
    assert "| [last](#last) | 它 | 静默 | 0.5 | 0 |" in chinese
    assert "- **实测**：相对差异为 0.5；统一之后为 0" in chinese
    assert "differ by 0.5" not in render_page([catalogue["last"]], "en")
