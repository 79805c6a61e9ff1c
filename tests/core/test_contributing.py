"""CONTRIBUTING followed to the letter: a toy rule, strategy, partition and chapter, with only the
files the page names, are run and reported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")

RULE = '''
"""Sign descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualml.algorithms.optim.base import GRADIENT, RULES, Array, Rule, Variants


@RULES.register("toysign")
@dataclass(frozen=True, kw_only=True)
class ToySign(Rule):
    """θ_t = θ_{t-1} − η·sign(g).

    Source: Bernstein et al. 2018, "signSGD", Algorithm 1.
    """

    name = "toysign"
    variants: ClassVar[Variants] = {"toysign": {"lr": 0.01}}

    def formulas(self) -> list[str]:
        return [GRADIENT, r"\\theta_t = \\theta_{t-1} - \\eta \\, s ( g_t )"]

    def one(
        self, p: Array, g: Array, s: dict[str, Array], step: int, lr: float
    ) -> tuple[Array, dict[str, Array]]:
        return p - lr * np.sign(g), {}
'''
STRATEGY = '''
"""Everybody sends everything to everybody, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.parallel.aggregation.base import STRATEGIES, Strategy, Tensor, execute
from dualml.parallel.aggregation.schedule import Schedule, Transfer
from dualml.algorithms.communicator.base import Communicator


@STRATEGIES.register("toychain")
@dataclass(frozen=True)
class ToyChain(Strategy):
    """A sum along a chain, and back.

    Source: a toy.
    """

    name: ClassVar[str] = "toychain"
    uses: ClassVar[tuple[str, ...]] = ("exchange",)
    counted: ClassVar[bool] = True

    def sum(self, comm: Communicator, x: Tensor) -> Tensor:
        return execute(self.schedule(comm.size), comm, x)

    def schedule(self, n: int) -> Schedule:
        up = [(Transfer(r, r + 1, 0, 0, "add"),) for r in range(n - 1)]
        down = [(Transfer(r, r - 1, 0, 0, "put"),) for r in range(n - 1, 0, -1)]
        return Schedule(n, 1, tuple(up + down))
'''
PARTITION = '''
"""The last samples first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualml.parallel.partition.base import PARTITIONS, Index, Partition, Samples, count


@PARTITIONS.register("toyreverse")
@dataclass(frozen=True, kw_only=True)
class ToyReverse(Partition):
    """Rank r gets the r-th block from the end.

    Source: a toy.
    """

    name = "toyreverse"

    def own(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        return np.array_split(np.arange(count(samples))[::-1], ranks)
'''
CHAPTER = '''
"""How many trials there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report.blocks import Block, Item, Table
from dualml.report.columns import columns
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.experiment.store.run import Run
from dualml.common.words import Words


def evidence(run: Run, words: Words) -> Iterator[Block]:
    rows = [[arm, str(len(run.select(arm)))] for arm in run.arms]
    yield Table("toycount", words("table.toycount"), columns(words, "`arm`", "seed:"), rows)


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "toycount", "table-toycount")
    notes.say("count", n=len(run.trials))
    return notes


TOPIC = Topic("toycount", 850, evidence, findings)
'''
WORDS = {
    "toysign": "[symbols]\ntoysign = '{toysign}'\n",
    "toychain": "[strategy]\ntoychain = '{toychain}'\n",
    "toyreverse": "[partition.rule]\ntoyreverse = '{toyreverse}'\n",
    "toycount": "[topic]\ntoycount = '{toycount}'\n[table]\ntoycount = 'T'\n"
    "[say.toycount]\ncount = '{count}'\n",
}
SAID = {
    "en": {
        "toysign": "Toy steps.",
        "toychain": "Toy chain.",
        "toyreverse": "Backwards.",
        "toycount": "Toy counts",
        "count": "There are {n} trials.",
    },
    "zh": {
        "toysign": "玩具步长。",
        "toychain": "玩具链。",
        "toyreverse": "倒序。",
        "toycount": "玩具计数",
        "count": "共有 {n} 个试验。",
    },
}
#: Heading of the page → name of the toy, and the core files it needs besides its messages.
TOYS = {
    "An update rule": ("toysign", {"dualml/algorithms/optim/NAME.py": RULE}),
    "An aggregation strategy": ("toychain", {"dualml/parallel/aggregation/NAME.py": STRATEGY}),
    "A partition": ("toyreverse", {"dualml/parallel/partition/NAME.py": PARTITION}),
    "A chapter of the report": ("toycount", {"dualml/report/topics/NAME.py": CHAPTER}),
}
TOML = """
name = "toys"
model = "softmax"
title = { en = "Toys", zh = "玩具" }
[data]
name = "digits"
train = 60
test = 20
[arms.one]
optimizer = { name = "toysign", lr = 0.01 }
batch_size = 12
updates = 4
partition = { name = "contiguous" }
[arms.two]
optimizer = { name = "toysign", lr = 0.01 }
world_size = 2
batch_size = 12
updates = 4
aggregation = { strategy = "toychain" }
partition = { name = "toyreverse" }
"""


def section(heading: str) -> str:
    """Return the text of the page below a heading."""
    return re.split(r"^##+ ", GUIDE.split(f"### {heading}\n")[1], flags=re.M)[0]


@pytest.mark.parametrize("heading", TOYS)
def test_the_page_names_the_files_that_a_toy_needs(heading: str) -> None:
    for file in TOYS[heading][1]:
        assert f"`{file}`" in section(heading)
    assert len(re.findall(r"`[a-z_]+/[\w/]*NAME\.py`", section(heading))) <= 3


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the core with the toys in it."""
    root = tmp_path_factory.mktemp("toys")
    shutil.copytree(ROOT / "dualml", root / "dualml", ignore=shutil.ignore_patterns("__pycache__"))
    for name, files in TOYS.values():
        for file, text in files.items():
            place = root / file.replace("NAME", name)
            assert not place.exists()
            place.write_text(text.lstrip(), "utf-8")
        for lang, said in SAID.items():
            words = root / f"dualml/common/words/{lang}/{name}.toml"
            words.write_text(WORDS[name].format(**said), "utf-8")
    return root


def dualml(tree: Path, *words: str) -> str:
    path = os.pathsep.join([str(tree), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "dualml", *words],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_toys_run_and_are_reported(tree: Path) -> None:
    (tree / "toys.toml").write_text(TOML, "utf-8")
    dualml(tree, "run", "toys.toml", "--backend", "numpy", "--out", "out")
    for lang in SAID:
        dualml(tree, "report", "out", "--out", lang, "--lang", lang)
        page = (tree / lang / "report.md").read_text("utf-8")
        said = SAID[lang]
        for name in ("toysign", "toychain", "toycount"):
            assert said[name] in page, name
        assert said["count"].format(n=2) in page
        assert r"\eta \, s ( g_t )" in page
        assert "toyreverse" in page
    assert "toychain" in dualml(tree, "simulate", "--strategy", "toychain", "--ranks", "2,64")
    assert "倒序。" in dualml(tree, "partition", "--lang", "zh")


def test_they_are_not_here() -> None:
    from dualml.algorithms.optim import RULES

    assert "toysign" not in RULES
