"""One result type, one order of verdicts and one renderer of each kind, for all comparisons."""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from model_traces import scale_slightly, spoiled, trace
from source_trees import parse_source

import dualml
from dualml.common.words import LANGUAGES, Messages
from dualml.experiment.comparison import Comparison
from dualml.experiment.store.load import load
from dualml.experiment.verdict import VERDICTS, verdict_rank, worst_comparison, worst_verdict
from dualml.interface.cli.compare import show_comparison
from dualml.interface.cli.options import OutputOptions
from dualml.parity.against import compare_runs
from dualml.parity.judge import judge_run
from dualml.parity.models.judge import judge_traces
from dualml.parity.models.run import compare_traces
from dualml.report.comparison_page import comparison_page
from dualml.report.page.html import render_html
from dualml.report.page.markdown import render_markdown

CORE = Path(dualml.__file__).parent
RECORDED = Path(__file__).resolve().parents[1] / "golden" / "recorded"
#: Results of a comparison are made, kept and shown in these wings; the others only pass them on.
WINGS = ("experiment", "parity", "report", "runner")
#: The only file that says which verdict is worse.
ORDER = "experiment/verdict.py"
#: The most files of these wings that take part in a comparison of two runs, and of two traces; of
#: these, one asks whether ranks recorded them, and two note what differs inside only.
MAX_FILES = {"runs": 15, "traces": 24}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("recorded")
    with zipfile.ZipFile(RECORDED / "lab1.zip") as packed:
        packed.extractall(place)
    return place


# --- one type -------------------------------------------------------------------------------------


def result_types(path: Path) -> Iterator[str]:
    """Yield the classes of a file that define a field ``verdict``, without records of files."""
    for node in ast.walk(parse_source(path.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef) and not node.name.endswith("Record"):
            fields = (one.target for one in node.body if isinstance(one, ast.AnnAssign))
            if any(isinstance(one, ast.Name) and one.id == "verdict" for one in fields):
                yield node.name


def test_one_type_has_a_verdict() -> None:
    files = (path for wing in WINGS for path in (CORE / wing).rglob("*.py"))
    assert [name for path in files for name in result_types(path)] == ["Comparison"]


def test_another_type_would_be_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("class ARecord:\n    verdict: str\nclass Result:\n    verdict: str = ''\n")
    assert list(result_types(path)) == ["Result"]


def test_trials_runs_and_traces_give_it(folder: Path) -> None:
    verdicts, loaded = judge_run(folder), load([folder])
    every = [
        *verdicts.comparisons,
        *(loaded.comparisons or ()),
        compare_runs(folder, folder),
        *compare_runs(folder, folder).pairs,
        judge_traces(trace(), trace(1e-7, other=True)),
    ]
    assert all(isinstance(one, Comparison) for one in every)
    assert all(len(one.sides) == 2 and one.verdict and one.describe() for one in every)


def test_a_file_restores_what_was_judged(folder: Path) -> None:
    for one, other in zip(
        judge_run(folder).comparisons, load([folder]).comparisons or (), strict=True
    ):
        assert (one.arms, one.seed, one.sides) == (other.arms, other.seed, other.sides)
        assert (one.verdict, one.reason, one.steps) == (other.verdict, other.reason, other.steps)
        assert one.first_divergence == other.first_divergence
        assert one.worst == pytest.approx(other.worst)


# --- one order ------------------------------------------------------------------------------------


def ordered_verdicts(path: Path) -> list[int]:
    """Return the lines of a file with a sequence of three verdicts or more, or that look one up in
    such a sequence."""
    found = []
    for node in ast.walk(parse_source(path.read_text("utf-8"))):
        if isinstance(node, ast.Tuple | ast.List):
            values = [one.value for one in node.elts if isinstance(one, ast.Constant)]
            if sum(value in VERDICTS for value in values) > 2:
                found.append(node.lineno)
        elif isinstance(node, ast.Attribute) and ast.unparse(node).endswith("VERDICTS.index"):
            found.append(node.lineno)
    return found


def test_verdicts_are_ordered_in_one_place() -> None:
    files = {path.relative_to(CORE).as_posix(): path for path in CORE.rglob("*.py")}
    assert [name for name, path in files.items() if ordered_verdicts(path)] == [ORDER]


def test_another_order_would_be_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(
        "A = ('different', 'not comparable', 'equal')\n"
        "B = max(x, key=VERDICTS.index)\n"
        "C = ('equal', 'statistically equal')\n"
    )
    assert ordered_verdicts(path) == [1, 2]


def test_the_worst_verdict() -> None:
    assert sorted(VERDICTS, key=verdict_rank) == list(VERDICTS)
    assert worst_verdict(["equal", "", None, "not comparable"]) == "not comparable"
    assert worst_verdict(VERDICTS) == "different"
    assert worst_verdict(["equal", "of a later version"]) == "of a later version"
    assert worst_verdict([]) == worst_verdict(["", None]) == ""
    sides = ("a", "b")
    one, other, last = (
        Comparison(sides=sides, verdict=verdict, reason=reason)
        for verdict, reason in (("", "x"), ("different", "y"), ("different", "z"))
    )
    assert worst_comparison([one, other, last]) is other
    assert worst_comparison([]) is None


# --- one renderer of each kind --------------------------------------------------------------------


@pytest.fixture(params=["runs", "traces"])
def comparison(request: pytest.FixtureRequest, folder: Path) -> Comparison:
    made: dict[str, Callable[[], Comparison]] = {
        "runs": lambda: compare_runs(folder, folder),
        "traces": lambda: judge_traces(trace(), spoiled(scale_slightly, "forward", 1, "fc")),
    }
    return made[request.param]()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_renderer_takes_every_comparison(
    comparison: Comparison, lang: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = Messages(lang)
    first, *rest = comparison.paragraphs(words)
    assert rest
    page = comparison_page(comparison, words)
    html, text = render_html(page), render_markdown(page)
    assert first in html
    assert first in text
    assert "<table" in html
    assert "****" not in text
    show_comparison(comparison, "compare", OutputOptions(lang=lang))
    assert comparison.paragraph(lang) in capsys.readouterr().out
    show_comparison(comparison, "compare", OutputOptions(json=True))
    printed = json.loads(capsys.readouterr().out)
    assert printed["verdict"] == comparison.verdict
    assert printed["text"][lang] == comparison.paragraph(lang)


# --- its path -------------------------------------------------------------------------------------


def files_called(work: Callable[[], Any]) -> set[str]:
    """Return the files of the core whose functions a call uses, as paths within it."""
    found = set()

    def note_file(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(CORE)):
            found.add(Path(frame.f_code.co_filename).relative_to(CORE).as_posix())

    sys.setprofile(note_file)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("kind", MAX_FILES)
def test_few_files_take_part(
    kind: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace().write(tmp_path / "a")
    spoiled(scale_slightly, "forward", 1, "fc").write(tmp_path / "b")
    judge: Callable[[], Comparison] = {
        "runs": partial(compare_runs, folder, folder),
        "traces": partial(compare_traces, tmp_path / "a", tmp_path / "b"),
    }[kind]
    used = files_called(lambda: show_comparison(judge(), "compare", OutputOptions()))
    own = {
        name
        for name in used
        if name.startswith(("parity/", "report/comparison", "interface/cli/compare"))
        or name in (ORDER, "experiment/comparison.py", "experiment/store/trial_comparison.py")
    }
    assert len(own) <= MAX_FILES[kind], sorted(own)
