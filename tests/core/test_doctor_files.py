"""`dualml doctor FILE`: the names of version 0.1 that a user's files still use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import dualml

from dualml.common.errors import UserError
from dualml.common.former_members import FORMER_MEMBERS
from dualml.common.former_paths import CORE
from dualml.interface.doctor.former_python import former_python_names
from dualml.interface.doctor.former_uses import MAX_SIZE, examine_files, list_files

CODE = """\
import dualml.optim as optim
from dualml.checkpoint import Slice
from dualml.parallel.partition import Partition
from dualml.algorithms.communicator import Place
from dualml.testing import assert_parity

class Mine(Partition):
    def deal(self, labels, seed):
        return self.own(3)

def write(s: Slice | None, other):
    other.whole
    return s.whole

made = Slice("a", 1)
made.whole
assert_parity(torch_module=1, mindspore_cell=2)
somebody.whole
"""
FOUND = [
    (1, "dualml.optim is now dualml.algorithms.optim"),
    (2, "dualml.checkpoint is now dualml.runner.checkpoint"),
    (4, "dualml.algorithms.communicator.Place is now dualml.algorithms.communicator.RankContext"),
    (5, "dualml.testing is now dualml.parity.testing"),
    (8, "Mine overrides deal, which is now partition"),
    (9, "Partition.own is now Partition.assign"),
    (13, "Slice.whole is now Slice.full"),
    (16, "Slice.whole is now Slice.full"),
    (17, "the parameter mindspore_cell of assert_parity is now b"),
    (17, "the parameter torch_module of assert_parity is now a"),
]


def test_every_use_that_the_code_shows_is_found_and_no_other() -> None:
    assert former_python_names(CODE) == FOUND


@pytest.mark.parametrize("former", CORE)
def test_every_former_path_is_found(former: str) -> None:
    (found,) = former_python_names(f"import dualml.{former}")
    assert found == (1, f"dualml.{former} is now dualml.{CORE[former]}")


@pytest.mark.parametrize("owner", [key for key in FORMER_MEMBERS if key.startswith("dualml.")])
def test_every_former_member_is_found(owner: str) -> None:
    module, _, name = owner.rpartition(".")
    for former, present in FORMER_MEMBERS[owner].items():
        code = f"from {module} import {name}\ndef f(x: {name}):\n    x.{former}\n"
        found = [message.split()[0::3] for line, message in former_python_names(code)]
        assert [[text.rpartition(".")[2] for text in pair] for pair in found] == [[former, present]]


def test_our_own_code_has_no_former_name() -> None:
    root = Path(__file__).resolve().parents[2]
    (finding,) = examine_files([root / "experiments", root / "examples"])
    assert finding.mark == "ok"


def test_notebooks_and_experiments_are_read_and_other_folders_left_out(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": "from dualml.optim import SGD"},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "import dualml.optim"]},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "b.toml").write_text("[arms.sgd]\nchunk = 4\n[arms.sgd.aggregation]\nevery = 3\n")
    (tmp_path / "notes.txt").write_text("import dualml.optim")
    for folder in (".hidden", "site-packages", "venv"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.py").write_text("import dualml.optim")
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    found = {one.item.removeprefix(f"{tmp_path}/"): one.en for one in examine_files([tmp_path])}
    assert found == {
        "a.ipynb, cell 2:2": "dualml.optim is now dualml.algorithms.optim",
        "b.toml": "chunk is now accumulation_batch, aggregation.every is now sync_period",
        "files": "2 read: 2 names of version 0.1, which still work",
    }


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.py", b"def (", "invalid syntax"),
        ("a.py", b"x = '\xff'", "codec can't decode"),
        ("a.py", b"#" * (MAX_SIZE + 1), "bytes, and at most"),
        ("a.ipynb", b"[1]", "no notebook"),
        ("a.toml", b"a = = 1", "Invalid value"),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    unread, last = examine_files([tmp_path / name])
    assert (unread.mark, unread.item) == ("warn", str(tmp_path / name))
    assert reason in unread.en
    assert last.en.startswith("1 read")


@pytest.mark.whole
def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    answer = dualml("doctor", str(tmp_path), "--json")
    assert len(json.loads(answer.stdout)["findings"]) == len(FOUND) + 1
    with pytest.raises(UserError, match="does not exist"):
        list(list_files([tmp_path / "none"]))
