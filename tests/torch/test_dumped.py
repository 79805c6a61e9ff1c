"""Conversion of msprobe's tensors to .npy files."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from dualml.common.errors import UserError
from dualml_torch.parity.dumped import convert


class PrintOnLoad:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("owned",)


def test_tensors_are_written_beside_their_files(tmp_path: Path) -> None:
    folder = tmp_path / "step0" / "rank0" / "dump_tensor_data"
    folder.mkdir(parents=True)
    whole = torch.arange(6.0).reshape(2, 3)
    torch.save(torch.nn.Parameter(whole), folder / "a.output.0.pt")
    torch.save(whole.bfloat16() / 3, folder / "b.output.0.pt")
    assert convert(tmp_path) == 2
    assert np.array_equal(np.load(folder / "a.output.0.npy"), whole.numpy())
    lower = np.load(folder / "b.output.0.npy")
    assert lower.dtype == np.float32
    assert np.array_equal(lower, (whole.bfloat16() / 3).float().numpy())


def test_a_pickle_that_calls_something_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "dump_tensor_data"
    folder.mkdir()
    (folder / "a.pt").write_bytes(pickle.dumps(PrintOnLoad(), protocol=2))
    with pytest.raises(UserError, match=r"a\.pt: no tensor that torch opens with weights_only"):
        convert(tmp_path)
    assert "owned" not in capsys.readouterr().out
