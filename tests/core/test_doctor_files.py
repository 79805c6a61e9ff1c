"""`dualml doctor FILE`: the names of version 0.1 that a user's files still use."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command import dualml

from dualml.common.errors import UserError
from dualml.common.former_members import FORMER_MEMBERS
from dualml.common.former_paths import CORE
from dualml.interface.doctor.former_python import FormerNameScan, resolve_name
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

def shadowed(Slice, made):
    return Slice.whole, made.whole

def read(a: "Slice", b: Optional[Slice]):
    return a.whole, b.whole
for made in somebody:
    made.whole
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
    (24, "Slice.whole is now Slice.full"),
]


def test_every_use_that_the_code_shows_is_found_and_no_other() -> None:
    assert FormerNameScan().read(CODE) == FOUND


@pytest.mark.parametrize("former", CORE)
def test_every_former_path_is_found(former: str) -> None:
    (found,) = FormerNameScan().read(f"import dualml.{former}")
    assert found == (1, f"dualml.{former} is now dualml.{CORE[former]}")


@pytest.mark.parametrize("owner", [key for key in FORMER_MEMBERS if key.startswith("dualml.")])
def test_every_former_member_is_found(owner: str) -> None:
    module, _, name = owner.rpartition(".")
    for former, present in FORMER_MEMBERS[owner].items():
        code = f"from {module} import {name}\ndef f(x: {name}):\n    x.{former}\n"
        found = [message.split()[0::3] for line, message in FormerNameScan().read(code)]
        assert [[text.rpartition(".")[2] for text in pair] for pair in found] == [[former, present]]


def test_our_own_code_has_no_former_name() -> None:
    root = Path(__file__).resolve().parents[2]
    (finding,) = examine_files([root / "experiments", root / "examples"])
    assert finding.mark == "ok"


def test_notebooks_and_experiments_are_read_and_other_folders_left_out(tmp_path: Path) -> None:
    code = [
        ["%matplotlib inline\n", "import dualml.optim"],
        "%%bash\nls $HOME",
        "%%time\nfrom dualml.runner.checkpoint import Slice\nlisted = !ls\nSlice?",
        "x = Slice('a', 1)\ny = (x\n  % 3)",
        "x.whole",
        "def (",
    ]
    cells = [{"cell_type": "code", "source": source} for source in code]
    cells.append({"cell_type": "markdown", "source": "from dualml.optim import SGD"})
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "b.toml").write_text("[arms.sgd]\nchunk = 4\n[arms.sgd.aggregation]\nevery = 3\n")
    (tmp_path / "notes.txt").write_text("import dualml.optim")
    for folder in (".hidden", "site-packages", "venv"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.py").write_text("import dualml.optim")
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    found = {one.item.removeprefix(f"{tmp_path}/"): one.en for one in examine_files([tmp_path])}
    assert found == {
        "a.ipynb, cell 1:2": "dualml.optim is now dualml.algorithms.optim",
        "a.ipynb, cell 5:1": "Slice.whole is now Slice.full",
        "a.ipynb, cell 6": "not read: invalid syntax (<unknown>, line 1)",
        "b.toml": "chunk is now accumulation_batch, aggregation.every is now sync_period",
        "files": "files read: 2; names of version 0.1: 3; not read: 1",
    }


def test_any_encoding_that_python_reads_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\xef\xbb\xbfimport dualml.optim")
    (tmp_path / "b.py").write_bytes(b"# -*- coding: latin-1 -*-\nimport dualml.optim  # \xe9")
    assert [one.mark for one in examine_files([tmp_path])] == ["warn"] * 3


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.py", b"def (", "invalid syntax"),
        ("a.py", b"x = '\xff'", "utf-8"),
        ("a.py", b"#" * (MAX_SIZE + 1), "bytes, and at most"),
        ("a.py", b"x = " + b"1 + " * 5000 + b"1", "nested too deeply"),
        ("a.py", b"x = " + b"-" * 200_000 + b"1", "nested too deeply"),
        ("a.py", b"\0", "null bytes"),
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
    assert (last.mark, last.en.rpartition("; ")[2]) == ("warn", "not read: 1")


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.py")
    unread, _ = examine_files([tmp_path / "a.py"])
    assert unread.en == "not read: not a regular file"


def test_a_framework_that_is_broken_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise RuntimeError("libfake.so: undefined symbol")

    resolve_name.cache_clear()
    monkeypatch.setattr("dualml.interface.doctor.former_python.importlib.import_module", fail)
    found = FormerNameScan().read("from dualml_ms.optim import SGD\nSGD.whole")
    resolve_name.cache_clear()
    assert found == [(1, "dualml_ms.optim is now dualml_ms.algorithms.optim")]


@pytest.mark.whole
def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    answer = dualml("doctor", str(tmp_path), "--json")
    assert len(json.loads(answer.stdout)["findings"]) == len(FOUND) + 1
    with pytest.raises(UserError, match="does not exist"):
        list(list_files([tmp_path / "none"]))
