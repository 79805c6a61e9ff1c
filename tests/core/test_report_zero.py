"""The report on ranks that shard state, gradients and weights, and the cost of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fake_memory
import fake_run
import page_parts
import pytest

from dualml.common.words import Messages
from dualml.experiment.store.load import load
from dualml.experiment.store.run import RunData
from dualml.report.figure import LineMark

PSI, MIB = fake_memory.PSI, 2**20


@pytest.fixture
def run(tmp_path: Path) -> RunData:
    return load([fake_memory.make_run(tmp_path)])


def cells(run: RunData, topic: str, name: str, *texts: str) -> dict[str, Any]:
    """Return column → cell of the only row with these texts, in a cell or below one."""
    table = page_parts.evidence_tables(run, topic, Messages("en"))[name]
    lines = [
        line for line in table.cells if set(texts) <= {t for c in line for t in (c.text, c.note)}
    ]
    assert len(lines) == 1, (texts, len(lines))
    return dict(zip([c.label for c in table.columns], lines[0], strict=True))


def test_backends_that_count_the_same_have_one_row_beside_the_closed_form(run: RunData) -> None:
    row = cells(run, "zero", "zero", "zero2")
    assert row["backend"].text == "torch and mindspore"
    assert row["sharded"].text == "gradients and optimizer's state"
    assert row["together"].note.startswith("(4 + 4/2 + 8/2)")
    assert float(row["together"].text) == pytest.approx(10 * PSI / MIB, rel=1e-2)
    assert cells(run, "zero", "zero_all", "one")["ranks"].text == "1"


def test_engines_stand_in_the_same_table_and_say_why_they_are_not_there(run: RunData) -> None:
    row = cells(run, "zero", "zero", "layers")
    assert row["method"].text == "FSDP2 by layers"
    assert row["together"].note.startswith("(4/2 + 4/2 + 8/2)")
    assert " / " not in row["weights"].text  # the first rank has most
    absent = cells(run, "zero", "zero", "absent")
    assert absent["verdict"].text == "unsupported"
    assert absent["verdict"].note == fake_memory.REASON


def test_shares_of_a_replica_and_the_closed_form_are_said(tmp_path: Path, run: RunData) -> None:
    said = page_parts.findings_by_key(tmp_path)
    (held,) = said["zero.held"]
    assert held.startswith("torch and mindspore: with 2 ranks each replica holds ")
    assert held.endswith("zero1 75.0 %, zero2 62.5 % and zero3 50.0 %.")
    assert said["zero.exact"] == [
        "What dualml's own trainings hold is the closed form to the byte in 10 of 10 rows."
    ]
    (besides,) = said["zero.buckets"]
    assert besides.startswith("torch, 2 ranks that shard everything")
    assert said["zero.absent"][0].startswith("One of these did not run here: absent (mindspore)")
    page_parts.same_in_both_languages(run)


def test_one_byte_too_many_is_noticed(tmp_path: Path) -> None:
    def add_byte(trials: list[dict[str, Any]]) -> None:
        trial = next(t for t in trials if (t["arm"], t["backend"]) == ("zero3", "torch"))
        trial["device_memory"][1]["state"] += 1

    fake_memory.make_run(tmp_path, add_byte)
    assert "in 9 of 10 rows" in page_parts.findings_by_key(tmp_path)["zero.exact"][0]


def test_several_that_did_not_run_are_counted(tmp_path: Path) -> None:
    def fewer(trials: list[dict[str, Any]]) -> None:
        for trial in trials:
            if trial["arm"] == "zero3":
                trial |= {"status": "interrupted", "reason": "not started", "device_memory": []}

    fake_memory.make_run(tmp_path, fewer)
    (said,) = page_parts.findings_by_key(tmp_path)["zero.absent"]
    assert said.startswith("3 of these did not run here: absent (mindspore), zero3 (torch)")


def test_the_figure_marks_the_closed_form_at_every_bar(run: RunData) -> None:
    _, every = page_parts.evidence_figures(run, "zero", Messages("en"))
    torch, mindspore = every.panels
    assert torch is not None
    assert mindspore is not None
    (marks,) = [mark for mark in torch.marks if isinstance(mark, LineMark)]
    names = list(torch.y.names)
    assert "layers" in names
    assert "layers" not in mindspore.y.names
    assert "absent" not in mindspore.y.names
    for arm, share in (("one", 16), ("replicas", 16), ("zero1", 12), ("zero2", 10), ("zero3", 8)):
        at = list(marks.y).index(names.index(arm))
        assert marks.x[at] == pytest.approx(share * PSI / MIB, rel=1e-3), arm


def test_the_wrong_way_sends_half_as_much_again(tmp_path: Path, run: RunData) -> None:
    said = page_parts.findings_by_key(tmp_path)
    torch, mindspore = said["zero_price.wrong"]
    assert torch.startswith("torch: a rank that is given the whole sum")
    assert "wrong 1.5 times the bytes of zero1 by the closed form, 1.5 times on the wire" in torch
    assert "wrong 1.5 times the bytes of zero1" in mindspore
    assert [text.partition(" sends ")[0] for text in said["zero_price.weights"]] == [
        "zero3 on torch",
        "zero3 on mindspore",
    ]
    assert said["zero_price.wire"][1].startswith("mindspore: what dualml's 5 arms sent")
    row = cells(run, "zero_price", "zero_price", "wrong", "torch")
    assert row["sharded"].note == "all_reduce"
    assert float(row["wire / closed form"].text) == pytest.approx(1, abs=0.02)
    engine = cells(run, "zero_price", "zero_price", "layers", "torch")
    assert engine["sent, closed form"].text == "405 KiB"  # 4 · (N − 1)/N of 4Ψ bytes


def test_sixteen_bytes_of_a_parameter(tmp_path: Path, run: RunData) -> None:
    row = cells(run, "parameter_bytes", "parameter_bytes", "one", "torch")
    parts = [row[name].text for name in ("weights", "gradients", "optimizer's state", "together")]
    assert parts == ["4", "4", "8", "16"]
    said = page_parts.findings_by_key(tmp_path)
    first = "one on torch and mindspore: 16 bytes for each parameter"
    assert said["parameter_bytes.exact"][0].startswith(first)
    assert said["parameter_bytes.lower"] == [
        "bf16 on torch keeps 75.0 % of the activations of one: the bytes of parameters stay, those "
        "of activations are what a lower precision saves."
    ]
    assert cells(run, "parameter_bytes", "parameter_bytes", "sgd", "torch")["together"].text == "8"


def test_runs_that_share_out_nothing_say_nothing_of_it(tmp_path: Path) -> None:
    said = page_parts.findings_by_key(fake_run.make_run(tmp_path))
    assert not [key for key in said if key.startswith(("zero", "parameter_bytes", "meshes"))]
