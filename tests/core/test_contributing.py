"""CONTRIBUTING and the recipes followed to the letter: their files, edits and commands work in a
copy of the core, and every file and name that they mention exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from recipe_pages import (
    RECIPES,
    ROOT,
    blocks,
    commands,
    edit,
    follow,
    missing_paths,
    unknown_names,
    words_of,
)

from dualml.backend import Capability
from dualml.backend.shard import FlatParameterStorage
from dualml.experiment.load import load
from dualml.experiment.methods.engine import EngineSupport

GUIDE = ROOT / "CONTRIBUTING.md"
PAGES = [GUIDE, GUIDE.with_suffix(".zh.md"), *sorted(RECIPES.glob("*.md"))]
SOURCES = (
    "dualml",
    "dualml_torch",
    "dualml_ms",
    "benchmarks",
    "docs",
    "tests",
    "experiments",
    ".ci",
)
MAX_LINES = 100
#: Recipe → Python files that it adds to the core. Their commands run on the NumPy backend.
FOLLOWED = {
    "update-rule": ["dualml/algorithms/optim/signsgd.py"],
    "strategy": ["dualml/parallel/aggregation/chain.py"],
    "partition": ["dualml/parallel/partition/reverse.py"],
    "schedule": ["dualml/parallel/split/gpipe_lifo.py"],
    "report-topic": ["dualml/report/topics/trial_count.py"],
    "export-target": ["dualml/report/export/loss_list.py"],
    "command": ["dualml/interface/cli/seeds.py"],
}
#: Recipe → report that its commands write, and a text of the component in it.
REPORTED = {
    "update-rule": ("runs/signsgd", "Only the sign of the gradient counts"),
    "strategy": ("runs/chain", "The running sum walks along the ranks"),
    "report-topic": ("runs/counted", "slow 和 fast 共有 2 次试验"),
}
RUN = REPORTED["update-rule"][0]
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the core, changed as the recipes say."""
    root = tmp_path_factory.mktemp("toys")
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "dualml", root / "dualml", ignore=skipped)
    for recipe, files in FOLLOWED.items():
        written = follow(RECIPES / f"{recipe}.md", root)
        assert [file for file in written if file.endswith(".py")] == files
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


def run_commands(recipe: str, tree: Path) -> None:
    """Run the ``dualml`` commands of a recipe on the NumPy backend; RUN is the run that the first
    recipe makes."""
    ours = [words for program, *words in commands(RECIPES / f"{recipe}.md") if program == "dualml"]
    assert ours
    for words in ours:
        dualml(tree, *({"RUN": RUN, "both": "numpy"}.get(word, word) for word in words))


@pytest.fixture(scope="module")
def run(tree: Path) -> Path:
    """The run of the first recipe."""
    run_commands("update-rule", tree)
    return tree / RUN


@pytest.mark.whole
@pytest.mark.parametrize("recipe", FOLLOWED)
def test_the_commands_of_a_recipe_work(recipe: str, tree: Path, run: Path) -> None:
    if recipe != "update-rule":
        run_commands(recipe, tree)
    if recipe in REPORTED:
        folder, text = REPORTED[recipe]
        assert text in (tree / folder / "report.md").read_text("utf-8")


@pytest.mark.whole
def test_a_component_is_reported_in_chinese_with_its_formula(tree: Path, run: Path) -> None:
    dualml(tree, "report", str(run), "--out", "zh", "--lang", "zh")
    page = (tree / "zh" / "report.md").read_text("utf-8")
    assert "只看梯度的符号" in page
    assert r"\eta \, \operatorname{sign} ( g_t )" in page


def test_the_experiment_of_the_recipe_is_one(tmp_path: Path) -> None:
    follow(RECIPES / "experiment.md", make_folders(tmp_path, "experiments"))
    assert len(load(str(tmp_path / "experiments/warmup.toml")).arms) == 2


def make_folders(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).mkdir()
    return root


@pytest.mark.parametrize("recipe", ["partition", "schedule"])
def test_edits_of_tests_fit(recipe: str, tmp_path: Path) -> None:
    """Edits outside of the core are tried on copies of their files."""
    for kind, text in blocks(RECIPES / f"{recipe}.md"):
        if kind == "diff":
            file = text.splitlines()[0].removeprefix("--- ")
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            if not (tmp_path / file).exists():
                shutil.copy(ROOT / file, tmp_path / file)
            edit(tmp_path, text)


@by_page
def test_every_path_exists(page: Path) -> None:
    assert missing_paths(page) == []


@pytest.fixture(scope="module")
def known() -> set[str]:
    return {*words_of(SOURCES)}


@by_page
def test_every_name_exists(page: Path, known: set[str]) -> None:
    assert unknown_names(page, known) == []


def test_what_does_not_exist_is_noticed(tmp_path: Path, known: set[str]) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "`dualml/nowhere.py` `docs/NAME.md` `dualml/optim/NAME.py` `no_such_file.py`\n"
        "`Capabilities` `update_param` `update_one_par` `NAME_equal`\n"
        "```bash\npytest tests/core/test_nothing.py tests/core/test_names.py\n```\n",
        "utf-8",
    )
    missing = ["dualml/nowhere.py", "dualml/optim/NAME.py", "no_such_file.py"]
    assert missing_paths(page) == [*missing, "tests/core/test_nothing.py"]
    assert unknown_names(page, known - {"update_one_par"}) == ["update_one_par"]


@pytest.mark.parametrize("suffix", [".md", ".zh.md"])
def test_the_guide_is_short_and_leads_to_the_recipes(suffix: str) -> None:
    text = GUIDE.with_suffix(suffix).read_text("utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert f"(docs/recipes/index{suffix})" in text


@pytest.mark.parametrize("suffix", [".md", ".zh.md"])
def test_the_index_lists_every_recipe(suffix: str) -> None:
    pages = {
        p.name for p in RECIPES.glob("*.md") if p.name.endswith(".zh.md") == (suffix == ".zh.md")
    }
    linked = re.findall(r"\]\(([\w.-]+)\)", (RECIPES / f"index{suffix}").read_text("utf-8"))
    other = {".md": ".zh.md", ".zh.md": ".md"}[suffix]
    assert {*linked, f"index{suffix}"} == pages | {f"index{other}"}


@pytest.mark.parametrize("page", ["backend.md", "backend.zh.md"])
def test_the_backend_recipe_lists_every_capability(page: str) -> None:
    text = (RECIPES / page).read_text("utf-8")
    assert {FlatParameterStorage, EngineSupport} < {*Capability.__subclasses__()}
    for kind in Capability.__subclasses__():
        if kind.__module__.startswith("dualml."):
            assert f"| `{kind.__name__}`" in text
            for method in sorted(kind.__abstractmethods__):
                assert f"`{method}`" in text, f"{kind.__name__}.{method}"


def test_the_example_components_are_not_here() -> None:
    for files in FOLLOWED.values():
        assert not any((ROOT / file).exists() for file in files)
