"""The pages on partitions name every rule, and show what the command prints."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
from command import DOCS, dualml

from dualml.parallel.partition import PARTITIONS

PAGES = [DOCS / "partition.md", DOCS / "partition.zh.md"]
REAL = Path(os.environ.get("DUALML_DATA") or "nowhere") / "mnist"
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@by_page
def test_the_table_has_every_rule_with_its_settings(page: Path) -> None:
    rows = re.findall(r"^\| `(\w+)` \|(.*)$", page.read_text("utf-8"), re.M)
    assert [name for name, _ in rows] == list(PARTITIONS)
    for name, text in rows:
        settings = {field.name for field in fields(PARTITIONS[name])} - {"shuffle"}
        shown = set(re.findall(r"`(\w+)(?: = [\w.]+)?`", text.split("|")[0]))
        assert shown == settings or name == "dirichlet_sizes"  # "the same"


def test_the_examples_are_the_same_on_both_pages() -> None:
    def code(page: Path) -> str:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.S)
        return re.sub(r"  # .*", "", "".join(blocks))  # but for the comments

    english, chinese = map(code, PAGES)
    assert english == chinese
    assert english.count("PartitionSampler(") == 2


@by_page
@pytest.mark.mnist
@pytest.mark.skipif(not REAL.is_dir(), reason="DUALML_DATA has no folder mnist")
def test_the_command_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    (block,) = re.findall(r"```\n\$ dualml (.*?)\n(.*?)```", page.read_text("utf-8"), re.S)
    done = dualml(*shlex.split(block[0]), cwd=tmp_path, env={"COLUMNS": "100"})
    assert done.returncode == 0, done.stderr
    assert [line.rstrip() for line in done.stdout.splitlines()] == block[1].splitlines()
