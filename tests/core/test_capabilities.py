"""`dualml capabilities` on threads of the reference: correct results, and errors that must be
noticed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from command import dualml, strict

from dualml.algorithms.communicator import DTYPES, PRIMITIVES, Implementation
from dualml.backend import backends
from dualml.backend.reference.communicator import ThreadCommunicator
from dualml.common.errors import TrialError, Unsupported, UserError
from dualml.common.words import section_messages
from dualml.interface.cli.capabilities import cell
from dualml.runner.capabilities import CapabilityColumn, ProbeResult, columns, probe, probe_backends


def column(**options: Any) -> CapabilityColumn:
    (found,) = probe_backends([backends()["numpy"]], ["cpu"], **options)
    return found


def test_json() -> None:
    done = dualml("capabilities", "--backend", "numpy", "--ranks", 3, "--json")
    assert done.returncode == 0, done.stderr
    told = strict(done.stdout)
    assert (told["ranks"], told["ok"]) == (3, True)
    (found,) = told["columns"]
    assert (found["backend"], found["device"], found["reason"]) == ("numpy", "cpu", None)
    assert list(found["primitives"]) == list(PRIMITIVES)
    assert found["primitives"]["all_reduce"]["kind"] == "composed"
    assert found["primitives"]["exchange"]["kind"] == "native"
    assert found["primitives"]["asynchronous"]["kind"] == "unsupported"
    ops = found["primitives"]["reduce"]["dtypes"]
    assert set(ops) == set(DTYPES)
    assert set(ops["float64"]) == {"sum", "mean", "max", "min", "prod"}
    assert set(ops["int32"]) == {"sum", "max", "min", "prod", "band", "bor", "bxor"}


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], ["primitive", "composed: messages between", "all that ran is right"]),
        (["--lang", "zh"], ["原语", "组合实现", "所有运行结果均正确"]),
        (["--dtypes"], ["int64: composed sum max min prod", "float16: native"]),
    ],
)
def test_table(words: list[str], shown: list[str]) -> None:
    wide = {"COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}
    done = dualml("capabilities", "--backend", "numpy", *words, env=wide)
    assert done.returncode == 0, done.stderr
    for text in (*PRIMITIVES, *shown):
        assert text in done.stdout, done.stdout


@pytest.mark.parametrize(
    "words",
    [["--ranks", 1], ["--device", "abacus"], ["--backend", "abacus"], ["--lang", "la"]],
    ids=lambda words: words[0],
)
def test_wrong_usage(words: list[object]) -> None:
    done = dualml("capabilities", "--backend", "numpy", *words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


# What is not right is noticed.


def test_a_wrong_result_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ThreadCommunicator.all_reduce

    def wrong(self: Any, x: Any, op: str = "sum", **options: Any) -> Any:
        found = right(self, x, op, **options)
        return found + 1 if op == "max" and self.rank == 1 and x.dtype == np.int32 else found

    monkeypatch.setattr(ThreadCommunicator, "all_reduce", wrong)
    found = column()
    assert not found.ok
    entries = found.entries["all_reduce"]
    assert entries["int32"]["max"].detail.startswith("rank 1: wrong result: [")
    assert entries["int32"]["sum"].kind == entries["int64"]["max"].kind == "composed"
    assert found.summary("all_reduce").kind == "failed"
    assert found.summary("reduce").kind == "composed"


def test_a_wrong_claim_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = ThreadCommunicator.implementation_of

    def modest(
        self: Any, primitive: str, dtype: str = "float32", op: str = "sum"
    ) -> Implementation:
        told = truth(self, primitive, dtype, op)
        return Implementation("unsupported", "no") if primitive == "gather" else told

    monkeypatch.setattr(ThreadCommunicator, "implementation_of", modest)
    assert column().summary("gather") == ProbeResult("unsupported", "no")

    monkeypatch.setattr(ThreadCommunicator, "implementation_of", truth)
    real = probe.run_primitive
    monkeypatch.setattr(probe, "run_primitive", lambda *args: real(*args[:-1], "native"))
    told = column().summary("scatter")
    assert told.kind == "failed"
    assert "declared native, but made of messages" in told.detail


def test_a_rank_that_raises_ends_it_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ThreadCommunicator.gather

    def wrong(self: Any, x: Any, root: int = 0) -> Any:
        if self.rank == 0 and x.dtype == np.int32:
            raise RuntimeError("no gather today\nmore of it")
        return right(self, x, root)

    monkeypatch.setattr(ThreadCommunicator, "gather", wrong)
    monkeypatch.setattr(columns, "TIMEOUT", 1.0)
    found = column()
    entries = found.entries
    assert entries["gather"]["int32"][""].detail == "rank 0: RuntimeError: no gather today"
    assert entries["gather"]["float64"][""].kind == "composed"
    assert entries["all_gather"]["float16"][""].detail.startswith("rank 0: not tried after gather")
    assert not found.ok


@pytest.mark.parametrize("error", [Unsupported("2 ranks, 1 GPUs"), TrialError("rank 0: it fell")])
def test_a_backend_that_cannot_start(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(columns, "run_ranks", fail)
    found = column()
    assert (found.reason, found.ok) == (str(error), False)
    assert json.dumps(found.describe())
    assert str(error) in cell(found, "reduce", section_messages("en", "capabilities"), False).text
    found.requested = False  # a GPU that was only looked for
    assert found.ok
    looked_for = cell(found, "reduce", section_messages("en", "capabilities"), False)
    assert looked_for.text.startswith("unsupported: ")
    assert looked_for.tone == "muted"


def test_one_rank_has_nobody_to_talk_to() -> None:
    with pytest.raises(UserError, match="at least 2"):
        probe_backends([], None, ranks=1)


def test_what_differs_is_listed_by_kind() -> None:
    native, composed = ProbeResult("native", "n"), ProbeResult("composed", "c")
    mixed = CapabilityColumn("b", "cpu")
    mixed.entries["reduce"] = {
        "float32": {"sum": native, "prod": native},
        "int32": {"sum": native, "prod": composed},
        "int64": {"sum": composed, "prod": composed},
        "float64": {"sum": native, "prod": native},
    }
    assert mixed.summary("reduce") == native
    assert mixed.differing_types("reduce") == {"composed": ["int32 prod", "int64"]}
    shown = cell(mixed, "reduce", section_messages("en", "capabilities"), False)
    assert (shown.text, shown.tone) == ("native: n", "good")
    assert shown.note == "composed: int32 prod, int64 (c)"


def test_both_languages_have_the_same_words() -> None:
    assert set(section_messages("en", "capabilities")) == set(
        section_messages("zh", "capabilities")
    )
