"""What the README and the guide to the optimizers print works as printed, in both languages."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conformance.backends import require

ROOT = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.zh.md")
GUIDES = [f"docs/howto/optimizer-in-your-loop{end}" for end in (".md", ".zh.md")]
FEED = {
    "torch": "batches = [(torch.randn(8, 784), torch.randint(0, 10, (8,)))] * 3\n",
    "mindspore": "import numpy as np\nbatches = [(ms.Tensor(np.random.rand(8, 784), ms.float32), "
    "ms.Tensor(np.arange(8), ms.int32))] * 3\n",
}
TELL = {
    "torch": "print(float(model.weight.detach().abs().sum()))",
    "mindspore": "print(float(abs(network.weight.asnumpy()).sum()))",
}


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.S)


@pytest.mark.parametrize("page", GUIDES)
@pytest.mark.parametrize("framework", FEED)
def test_the_ten_lines_train(framework: str, page: str) -> None:
    require(framework)
    (code,) = [block for block in python_blocks(page) if f"import {framework}" in block]
    assert len(code.strip().splitlines()) <= 12
    head, loop = code.split("for x, y in batches:")
    script = (
        f"{head}{FEED[framework]}{TELL[framework]}\nfor x, y in batches:{loop}{TELL[framework]}"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.split()[-2:]
    assert before != after


@pytest.fixture(scope="module")
def port_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Run the README's comparison of a port; return README → lines of the page in its language.

    `assert_parity` raises the page in English, so the comparison that it makes is run here.
    """
    for framework in FEED:
        require(framework)
    folder = tmp_path_factory.mktemp("port") / "port"
    shutil.copytree(ROOT / "docs" / "examples" / "lenet_port", folder)
    (code,) = python_blocks("README.md")
    assert len([line for line in code.splitlines() if line]) == 5
    script = f"import dualml\n{code.replace('assert_parity(', 'port = dualml.compare(')}"
    script += "print(port.page('en'), port.page('zh'), sep='\\f')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = done.stdout.split("\f")
    return {page: text.splitlines() for page, text in zip(READMES, pages, strict=True)}


@pytest.mark.system
@pytest.mark.parametrize("page", READMES)
def test_a_port_is_judged_as_printed(page: str, port_pages: dict[str, list[str]]) -> None:
    """The lines of the block appear in this order; of a number only its first digit is compared,
    because processors round differently."""

    def comparable(line: str) -> str:
        return re.sub(r"(\d)(?:\.\d+)?e([+-]\d+)", r"\1e\2", line)

    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.M | re.S)
    (block,) = [text for kind, text in blocks if not kind]
    lines = iter(map(comparable, port_pages[page]))
    for line in block.splitlines():
        assert line == "…" or comparable(line) in lines, line


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda p: p.name
)
def test_links_between_the_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_pages_exist_in_both_languages() -> None:
    docs = ("data", "parity", "benchmarks", "cost", "ranks", "partition", "split", "run-folder")
    docs += ("models", "differences", "worked-examples", "planted", "power", "gpu", "plan")
    docs += ("checkpoint", "students", "grading", "api")
    for page in ("README", *(f"docs/{name}" for name in docs)):
        assert (ROOT / f"{page}.md").exists()
        assert (ROOT / f"{page}.zh.md").exists()
    for lab in ROOT.glob("experiments/*.toml"):
        pages = {p.name for p in ROOT.glob(f"experiments/{lab.stem}.*.md")}
        assert pages == {f"{lab.stem}.en.md", f"{lab.stem}.zh.md"}


def test_every_command_at_a_glance_exists() -> None:
    words = [sys.executable, "-m", "dualml", "--help"]
    told = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    page = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    glance = page[page.index("## All commands at a glance") : page.index("## Completion")]
    shown = set(re.findall(r"dualml ([a-z]+)", glance))
    for command in (
        *("run", "report", "parity", "list", "show", "data", "doctor"),
        *("capabilities", "simulate", "plan", "partition", "demo"),
    ):
        assert command in shown
        assert re.search(rf"\b{command}\b", told), command
