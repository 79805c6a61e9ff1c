"""The tutorials, followed to the letter, page by page from top to bottom, in an empty folder."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dualml.launch.route import free_port

pytestmark = pytest.mark.system
ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
NEEDS = {
    "port-a-model": ("torch", "mindspore"),
    "first-lab": ("torch", "mindspore"),
    "find-a-difference": ("torch",),
    "write-a-strategy": ("torch",),
    "run-on-a-cluster": ("torch",),
}
#: Parts of the repository that a page needs in the reader's folder.
THERE = {"write-a-strategy": ("dualml", "dualml_torch")}
#: Other tests that do what these pages do.
ELSEWHERE = {
    "first-lab": "test_lab1 runs the same lab",
    "run-on-a-cluster": "test_machines starts, kills and resumes ranks in the same way",
}
#: Slow commands of a page, and faster replacements.
LESS = {
    "find-a-difference": {"dualml find wrong\n": ""},  # the run has looked already
    "first-lab": {
        "run lab1": "run lab1 --data digits --set data.train=128 --set data.test=50 "
        "--set parity.draws=1 --set parity.horizon=4"
    },
    "run-on-a-cluster": {
        "updates=2000": "updates=400",
        "CHECKPOINT_S=1": "CHECKPOINT_S=0.1",
        "sleep 1": "sleep 0.05",
    },
}
NOT_RUN = re.compile(r"<!-- not run: .+ -->\n```.*?^```$", re.M | re.S)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
NUMBER = re.compile(r"\d(?:[\d.,:]*\d)?(?:e[+-]?\d+|×10[⁻⁰-⁹¹²³]+)?|\binf\b")
#: Progress lines, whose number depends on the machine's speed.
PROGRESS = re.compile(
    r"^(?:\S+ · \S+ · (?:seed|种子)|other processes|looking for|其他进程|正在查找).*\n", re.M
)
GONE_ON = ("cd ", "export ")


def bare(text: str) -> str:
    """Return text without white space (terminals wrap lines) and without numbers."""
    return re.sub(r"[\s…]", "", NUMBER.sub("#", text))


def missing_piece(shown: str, output: str) -> str:
    """Return the first piece of a page's output, between two `…`, that does not appear in order."""
    rest = bare(PROGRESS.sub("", output))
    for piece in filter(None, map(bare, shown.split("…"))):
        if piece not in rest:
            return piece
        rest = rest.partition(piece)[2]
    return ""


@dataclass
class Reader:
    """A reader who writes the files of a page, edits them, runs its commands and compares the
    output."""

    folder: Path
    less: dict[str, str]
    before: str = ""
    output: str = ""

    def follow(self, page: str) -> Iterator[str]:
        """Follow the page and return what differs from it."""
        for kind, text in BLOCK.findall(NOT_RUN.sub("", page)):
            if named := FILE.match(text):
                path = self.folder / named[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
            elif kind == "diff":
                self.change(text)
            elif kind == "bash":
                self.run(text)
            elif not kind and (piece := missing_piece(text, self.output)):
                yield f"not printed: {piece}\n{self.output}"

    def change(self, text: str) -> None:
        head, *lines = text.splitlines()
        path = self.folder / head.removeprefix("--- ")
        old, new = ("\n".join(x[1:] for x in lines if x[0] == sign) for sign in "-+")
        content = path.read_text("utf-8")
        assert content.count(old) == 1, f"{path.name}: {old!r} is not there once"
        path.write_text(content.replace(old, new), "utf-8")

    def run(self, text: str) -> None:
        for long, short in self.less.items():
            text = text.replace(long, short)
        path = f"{self.folder}/.bin:{os.environ['PATH']}"
        with subprocess.Popen(
            ["bash", "-c", self.before + text],
            cwd=self.folder,
            text=True,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": path, "COLUMNS": "200"},
        ) as shell:
            try:
                self.output, _ = shell.communicate(timeout=200)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGTERM)  # what it has put aside, too
        lines = (line for line in text.splitlines(keepends=True) if line.startswith(GONE_ON))
        self.before += "".join(lines)


def commands(folder: Path) -> None:
    """Write the commands ``python``, ``dualml`` and ``pytest`` of this Python into a folder."""
    place = folder / ".bin"
    place.mkdir()
    for name, words in {"python": "", "dualml": "-P -m dualml", "pytest": "-P -m pytest"}.items():
        (place / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (place / name).chmod(0o700)


def pages() -> Iterator[object]:
    for name in NEEDS:
        marks = [pytest.mark.slow(ELSEWHERE[name])] if name in ELSEWHERE else []
        yield pytest.param(f"{name}.md", id=name, marks=marks)
        chinese = pytest.mark.slow("the same commands; only what they print is in Chinese")
        yield pytest.param(f"{name}.zh.md", id=f"{name}.zh", marks=chinese)


@pytest.mark.parametrize("page", list(pages()))
def test_a_tutorial_does_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = page.partition(".")[0]
    for framework in NEEDS[name]:
        if importlib.util.find_spec(framework) is None:
            pytest.skip(f"{framework} is not installed")
    for there in THERE.get(name, ()):
        shutil.copytree(
            ROOT / there, tmp_path / there, ignore=shutil.ignore_patterns("__pycache__")
        )
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if page.endswith(".zh.md"):
        monkeypatch.setenv("DUALML_LANG", "zh")
    commands(tmp_path)
    less = {**LESS.get(name, {}), "29600": str(free_port())}
    wrong = list(Reader(tmp_path, less).follow((TUTORIALS / page).read_text("utf-8")))
    assert not wrong, wrong[0]


def test_every_tutorial_is_followed() -> None:
    assert {page.name.partition(".")[0] for page in TUTORIALS.glob("*.md")} == set(NEEDS)


def test_a_reader_notices_what_is_not_as_the_page_says(tmp_path: Path) -> None:
    commands(tmp_path)
    page = "```python\n# a.py\nprint(1, 'one')\n```\n```bash\npython a.py\n```\n```\n2 {}\n```\n"
    assert not list(Reader(tmp_path, {}).follow(page.format("one")))
    assert not list(Reader(tmp_path, {}).follow(page.format("…")))
    assert list(Reader(tmp_path, {}).follow(page.format("two")))
    change = "```diff\n--- a.py\n-print(1, 'one')\n+print('two')\n```\n"
    again = "```bash\npython a.py\n```\n```\ntwo\n```\n"
    assert not list(Reader(tmp_path, {}).follow(page.format("one") + change + again))
    assert not missing_piece("a … c", "a b c")
    assert missing_piece("c … a", "a b c") == "a"
