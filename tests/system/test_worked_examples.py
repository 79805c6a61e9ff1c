"""The worked examples do what their page says: verdicts, locations, causes and fixes."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("torch", "mindspore"))),
        reason="both frameworks are needed",
    ),
]
DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "worked-examples.md").read_text("utf-8")
#: The page's repairs (and one mistake) and commands, one example after the other.
CHANGES = re.findall(r"```diff\n- *(.*)\n\+ *(.*)\n```", PAGE)
COMPARE = re.findall(r"^dualml (compare .*)$", PAGE, re.M)
AT_ONCE = 2


def short(command: str, steps: int) -> str:
    """Return the script with fewer updates than on the page, where the result is the same."""
    return re.sub(r"--steps \d+", f"--steps {steps}", command)


def run_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        timeout=200,
        check=False,
    )


class CompareOutput:
    """The output of `dualml compare --verbose`: verdict, paragraph, and phase → distance and
    ratio."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.paragraph, _, *rows = done.stdout.splitlines()
        self.verdict, self.code = self.paragraph.partition(":")[0], done.returncode
        cells = [row.split() for row in rows]
        self.distance = {row[0]: float(row[-3]) for row in cells}
        self.ratio = {row[0]: float(row[-1]) for row in cells}


@pytest.fixture(scope="module")
def command_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run every command of both examples in copies of their folders and return the outputs."""
    assert (len(CHANGES), len(COMPARE)) == (4, 2)
    made = tmp_path_factory.mktemp("examples")
    jobs: dict[str, tuple[Path, list[str]]] = {}

    def stage(name: str, source: Path, change: tuple[str, str] | None, command: str) -> Path:
        folder = made / name
        shutil.copytree(source, folder)
        if change is not None:
            port = folder / "net_ms.py"
            text = port.read_text("utf-8")
            assert text.count(change[0]) == 1
            port.write_text(text.replace(*change), "utf-8")
        jobs[name] = (folder, ["-m", "dualml", *shlex.split(command), "--verbose"])
        return folder

    source, before = DOCS / "examples" / "wrong_port", None
    for number, change in enumerate([None, *CHANGES[:3]]):
        command = short(COMPARE[0], 1) if number < 3 else COMPARE[0]
        before = stage(f"port {number}", before or source, change, command)
    right = made / "batch"
    shutil.copytree(DOCS / "examples" / "rounding_only", right)
    assert run_python(right, "batch.py").returncode == 0
    stage("rounding", right, None, short(COMPARE[1], 2))
    stage("mistake", right, CHANGES[3], short(COMPARE[1], 1))
    jobs |= {f"net_{side}": (right, [f"net_{side}.py"]) for side in ("torch", "ms")}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = list(pool.map(lambda job: run_python(job[0], *job[1]), jobs.values()))
    told: dict[str, Any] = {}
    for name, one in zip(jobs, done, strict=True):
        assert one.returncode in (0, 3), one.stderr
        told[name] = one.stdout.splitlines() if name.startswith("net_") else CompareOutput(one)
    return told


@pytest.mark.parametrize(
    ("number", "place", "entry", "cause"),
    [
        (
            0,
            "forward, layer pool (MaxPool2d)",
            "maxpool-stride",
            "`stride` of `pool` (max_pool2d) is 1 in mindspore, 2 in torch",
        ),
        (
            1,
            "forward, layer norm (LayerNorm)",
            "layernorm-eps",
            "`eps` of `norm` (layer_norm) is 1e-07 in mindspore, 1e-05 in torch",
        ),
        (
            2,
            "state, layer bn (BatchNorm2d)",
            "batchnorm-momentum",
            "mindspore gives the new value the weight 0.9 in the running statistics of `bn`",
        ),
    ],
)
def test_the_wrong_port_is_wrong_where_the_page_says(
    command_results: dict[str, Any], number: int, place: str, entry: str, cause: str
) -> None:
    told = command_results[f"port {number}"]
    assert (told.verdict, told.code) == ("different", 3)
    shown = " ".join(PAGE.split())
    for words in (f"different: first at step 1, {place}", cause):
        assert words in told.paragraph
        assert words in shown
    assert f"dualml diffs {entry}" in PAGE


def test_the_wrong_epsilon_leaves_the_loss_inside(command_results: dict[str, Any]) -> None:
    ratio = command_results["port 1"].ratio
    assert ratio["loss"] < 10 < ratio["forward"]


def test_the_wrong_momentum_is_in_the_state_alone(command_results: dict[str, Any]) -> None:
    assert [phase for phase, far in command_results["port 2"].ratio.items() if far > 10] == [
        "state"
    ]


def test_the_repaired_port_is_equal(command_results: dict[str, Any]) -> None:
    assert (command_results["port 3"].verdict, command_results["port 3"].code) == ("equal", 0)


def test_losses_that_differ_in_their_last_digits_are_equal(command_results: dict[str, Any]) -> None:
    a, b = (
        [float(line.split()[-1]) for line in command_results[f"net_{x}"]] for x in ("torch", "ms")
    )
    assert len(a) == len(b) == 4
    assert a != b
    assert a == pytest.approx(b, rel=1e-4)
    assert command_results["rounding"].verdict == "equal"


def test_no_fixed_tolerance_does_for_both(command_results: dict[str, Any]) -> None:
    assert min(command_results["rounding"].distance.values()) > 1e-7
    mistake = command_results["mistake"]
    assert "different: first at step 1, forward, layer norm1" in mistake.paragraph
    assert max(mistake.distance.values()) < 1e-3


def test_both_languages_show_the_same_commands_and_changes() -> None:
    chinese = (DOCS / "worked-examples.zh.md").read_text("utf-8")
    assert re.findall(r"```diff\n- *(.*)\n\+ *(.*)\n```", chinese) == CHANGES
    assert re.findall(r"^dualml (compare .*) --lang zh$", chinese, re.M) == COMPARE
