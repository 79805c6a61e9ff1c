"""Key code is quoted from our own source, found without importing a framework."""

from __future__ import annotations

import ast
import html
import re
import subprocess
import sys
from pathlib import Path

import fake_run
import pytest

import dualml.report.code as code


def squeeze(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("rule", ["gd", "sgd", "adam", "adagrad", "rmsprop"])
@pytest.mark.parametrize("framework", ["numpy", "torch", "mindspore"])
def test_listings_are_the_files_own_lines(rule: str, framework: str) -> None:
    (listing,) = code.rule_listings(rule, [framework])
    assert listing.text, f"{listing.caption} has nothing to show"
    ast.parse(listing.text)
    root = Path(__file__).parents[2]
    source = squeeze((root / listing.caption).read_text("utf-8"))
    for line in listing.text.splitlines():
        assert squeeze(line) in source


@pytest.mark.parametrize("framework", ["numpy", "torch", "mindspore"])
def test_shared_part_shows_the_native_entry_point(framework: str) -> None:
    (listing,) = code.base_listings([framework])
    assert f"def {code.HOMES[framework].base_method}(" in listing.text


def test_a_rule_that_inherits_shows_its_parent() -> None:
    (listing,) = code.rule_listings("adamw", ["numpy"])
    assert "# dualml/algorithms/optim/adam.py" in listing.text
    assert "decoupled = True" in listing.text
    assert "def update_param(" in listing.text


def test_a_missing_package_is_an_empty_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(code.HOMES, "torch", code.RuleSource("no_such_package", "step", None))
    assert code.rule_listings("adam", ["torch"])[0].text == ""


def test_highlighting_escapes() -> None:
    assert "<b>" not in code.highlight("x = '<b>'")
    assert "&lt;b&gt;" in code.highlight("x = '<b>'")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", 1),
        ("\nx = 1\n", 2),
        ("x = 1\n\n\n", 1),
        ("a\fb\n", 1),
        ("x\u2028y", 1),
        ("x\r\ny\rz", 3),
        ("'''\n\n'''", 3),
    ],
)
def test_highlighting_takes_lines_as_python_does(text: str, lines: int) -> None:
    assert code.highlight(text).count('class="line"') == lines


def test_highlighting_keeps_every_line_and_its_indentation() -> None:
    text = "def f():\n\n    s = '''a\n  b'''\n    return s"
    lines = code.highlight(text).split('<span class="line"')[1:]
    plain = [re.sub(r"<[^>]*>", "", html.unescape(line.split(">", 1)[1])) for line in lines]
    assert plain == text.splitlines()
    assert [re.search(r"--hang: (\d+)ch", line)[1] for line in lines] == ["4", "4", "8", "6", "8"]


def test_no_framework_is_imported(tmp_path: Path) -> None:
    folder = fake_run.make_run(tmp_path)
    script = (
        "import sys\nfrom pathlib import Path\nfrom dualml.report import render\n"
        f"render([Path({str(folder)!r})])\n"
        "bad = {'torch', 'mindspore', 'dualml_torch', 'dualml_ms'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
