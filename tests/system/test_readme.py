"""The commands in the README work as printed, in both languages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conformance.backends import require

ROOT = Path(__file__).resolve().parents[2]
FEED = {
    "torch": "batches = [(torch.randn(8, 784), torch.randint(0, 10, (8,)))] * 3\n",
    "mindspore": "import numpy as np\nbatches = [(ms.Tensor(np.random.rand(8, 784), ms.float32), "
    "ms.Tensor(np.arange(8), ms.int32))] * 3\n",
}
TELL = {
    "torch": "print(float(model.weight.detach().abs().sum()))",
    "mindspore": "print(float(abs(network.weight.asnumpy()).sum()))",
}


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
@pytest.mark.parametrize("framework", FEED)
def test_the_ten_lines_train(framework: str, page: str) -> None:
    require(framework)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.S)
    (code,) = [block for block in blocks if f"import {framework}" in block]
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


def test_every_command_of_the_readme_exists() -> None:
    words = [sys.executable, "-m", "dualml", "--help"]
    told = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    shown = set(re.findall(r"dualml ([a-z]+)", (ROOT / "README.md").read_text("utf-8")))
    for command in (
        *("run", "report", "parity", "list", "show", "data", "doctor"),
        *("capabilities", "simulate", "plan", "partition"),
    ):
        assert command in shown
        assert re.search(rf"\b{command}\b", told), command
