"""Partitions in files: what is kept, and invalid files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from partition_cases import LABELS, deal_to_file, refusal_of

from dualml.parallel.partition import DirichletLabels, FromFile, RandomPartition, partition_from
from dualml.parallel.partition.from_file import load_partition, save_partition


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    deal_to_file(LABELS, 3)
    return tmp_path


def test_a_file_holds_the_lists_and_where_they_are_from(folder: Path) -> None:
    rule = DirichletLabels(alpha=0.3, least=0)
    parts = rule.partition(LABELS, 5, seed=4)
    save_partition(folder / "mine", parts, LABELS, "digits", rule)
    found, told = load_partition(folder / "mine")
    assert [p.tolist() for p in found] == [p.tolist() for p in parts]
    assert all(p.dtype == np.int64 for p in found)
    assert told["dataset"] == "digits"
    assert told["samples"] == 60
    assert partition_from(told["rule"]) == rule
    kept = FromFile(path="mine", shuffle=False)
    for epoch in range(2):
        again = kept.partition(LABELS.astype(np.uint8), 5, seed=9, epoch=epoch)
        assert [p.tolist() for p in again] == [p.tolist() for p in parts]
    first = (folder / "mine").read_bytes()
    save_partition(folder / "mine", parts, LABELS, "digits", rule)
    assert (folder / "mine").read_bytes() == first


def test_a_file_for_other_samples_or_ranks() -> None:
    rule, other = FromFile(path="deal.npz"), LABELS.copy()
    other[[0, 2]] = other[[2, 0]]
    assert other.tolist() != LABELS.tolist()
    for labels in (other, LABELS[:-1]):
        assert refusal_of(rule.partition, labels, 3) == (
            f"deal.npz partitions 60 samples of some; these are {len(labels)} other ones "
            "(their labels have another SHA-256)"
        )
    assert refusal_of(rule.partition, LABELS, 4) == "deal.npz is for 3 ranks, not for 4"


def write(path: str, about: Any, **lists: Any) -> None:
    with open(path, "wb") as file:
        np.savez(file, about=np.array(json.dumps(about)), **lists)


def test_files_that_are_no_partition(folder: Path) -> None:
    whole, deal = (folder / "deal.npz").read_bytes(), FromFile(path="bad").partition
    missing = "there is no partition file bad; make one with dualml partition --out"
    assert refusal_of(deal, LABELS, 3) == missing
    Path("bad").mkdir()
    assert refusal_of(deal, LABELS, 3) == missing
    Path("bad").rmdir()
    for content in (b"", b"text", whole[: len(whole) // 2], whole[:-30], b"\x93NUMPY" + whole):
        Path("bad").write_bytes(content)
        assert refusal_of(deal, LABELS, 3).startswith("bad: not a readable partition: ")
    flipped = bytearray(whole)
    flipped[whole.index(b"rank1.npy") + 60] ^= 0xFF  # inside the list
    Path("bad").write_bytes(flipped)
    assert "not a readable partition" in refusal_of(deal, LABELS, 3)
    with open("bad", "wb") as file:
        np.save(file, LABELS)
    assert "not a readable partition" in refusal_of(deal, LABELS, 3)
    for about in ("words", [1], {}, {"format": 1}, {"format": 1, "ranks": "x"}):
        write("bad", about, rank0=LABELS)
        assert "not a readable partition" in refusal_of(deal, LABELS, 3)
    write("bad", {"format": 1, "ranks": 2}, rank0=LABELS)
    assert "'rank1" in refusal_of(deal, LABELS, 3)
    write("bad", {"format": 2}, other=LABELS)
    assert refusal_of(deal, LABELS, 3) == "bad: format 2 is newer than 1; update dualml"


def test_a_file_never_runs_code(folder: Path) -> None:
    rule = RandomPartition()
    save_partition(Path("x"), rule.partition(60, 3), LABELS, "some", rule)
    with np.load("x", allow_pickle=False) as packed:
        assert sorted(packed.files) == ["about", "rank0", "rank1", "rank2"]
    with open("bad", "wb") as file:
        np.savez(file, about=np.array([{}], dtype=object))
    assert "allow_pickle" in refusal_of(FromFile(path="bad").partition, LABELS, 3)
