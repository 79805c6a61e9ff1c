"""Growing record files are read incrementally, with the same result as reading them whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dualml.experiment.store import metrics_tail
from dualml.experiment.store.metrics_tail import MetricsTail
from dualml.experiment.store.records import read_records

LINES = [
    json.dumps({"metric": metric, "step": step, "value": step / 7, "unit": "nat", **more})
    for step in (1, 2, 3, 5, 4, 6)
    for metric, more in (("loss", {"epochs": step / 2}), ("class_accuracy", {"class": step % 2}))
]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


def assert_same_curves(trial: Path, seen: MetricsTail) -> None:
    whole = read_records(trial)
    assert seen.curves.keys() == whole.keys()
    for name, curve in whole.items():
        for column in ("step", "value", "epochs", "seconds"):
            np.testing.assert_array_equal(
                getattr(seen.curves[name], column), getattr(curve, column), name
            )


@pytest.mark.parametrize("piece", [11, 100, 10_000])
def test_in_pieces_it_is_what_it_is_as_a_whole(tmp_path: Path, piece: int) -> None:
    """Reading in pieces equals reading the whole, also when a piece ends inside a line."""
    path, seen = tmp_path / "rank0.jsonl", MetricsTail(tmp_path)
    assert not seen.poll()
    for end in range(piece, len(TEXT) + piece, piece):
        path.write_bytes(TEXT[:end])
        seen.poll()
    assert_same_curves(tmp_path, seen)
    assert seen.step == 6
    assert not seen.poll()


def test_only_what_is_new_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    rows_of = metrics_tail.group_rows

    def counting_rows(path: Path, lines: list[bytes], first: int) -> object:
        read.append((first, len(lines)))
        return rows_of(path, lines, first)

    monkeypatch.setattr(metrics_tail, "group_rows", counting_rows)
    path, seen = tmp_path / "rank0.jsonl", MetricsTail(tmp_path)
    path.write_bytes(TEXT)
    assert seen.poll()
    assert not seen.poll()
    path.write_bytes(TEXT + TEXT[: len(LINES[0]) + 1])
    assert seen.poll()
    assert read == [(1, 12), (13, 1)]


def test_a_resumed_trial_is_read_anew(tmp_path: Path) -> None:
    """A resumed trial is read from the start: it restarts at its checkpoint and may already be
    longer than before."""
    path, seen = tmp_path / "rank0.jsonl", MetricsTail(tmp_path)
    path.write_bytes(TEXT)
    seen.poll()
    for text in (TEXT[: len(TEXT) // 2], TEXT.replace(b"loss", b"gain") + TEXT):
        path.write_bytes(text)
        assert seen.poll()
        seen.poll()
        assert_same_curves(tmp_path, seen)
    path.unlink()
    assert seen.poll()
    assert seen.curves == {}


def test_a_damaged_line_is_named_and_ends_it(tmp_path: Path) -> None:
    path, seen = tmp_path / "rank0.jsonl", MetricsTail(tmp_path)
    path.write_bytes(TEXT)
    seen.poll()
    path.write_bytes(TEXT + b'{"metric": 3}\n')
    assert seen.poll()
    assert "rank0.jsonl, line 13 is not a record" in seen.problem
    assert not seen.poll()


def test_a_large_file_is_read_in_several_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_tail, "MAX_POLL_BYTES", 150)
    (tmp_path / "rank0.jsonl").write_bytes(TEXT)
    seen, looks = MetricsTail(tmp_path), 0
    while seen.poll():
        looks += 1
    assert looks > 3
    assert_same_curves(tmp_path, seen)
    monkeypatch.setattr(metrics_tail, "MAX_TOTAL_BYTES", 400)
    seen = MetricsTail(tmp_path)
    while seen.poll():
        pass
    assert 0 < seen.size <= 400
