"""MindSpore's own checkpoints: read and written without it, and loaded back by it."""

from __future__ import annotations

from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from dualml.common.errors import UserError
from dualml.parity.models.weights import mindspore_file
from dualml.parity.models.weights.mindspore_file import CheckpointWriter, index_checkpoint
from dualml_ms.models import load_checkpoint
from dualml_ms.parity.recorder import Recorder


class Net(nn.Cell):
    """A layer, a norm with statistics, and a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Dense(3, 4), nn.BatchNorm1d(4)
        self.scale = ms.Parameter(ms.Tensor(2.5, ms.float32), name="temperature")

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.norm(self.fc(x)) * self.scale


def test_what_mindspore_saves_is_read(tmp_path: Path) -> None:
    net = Net()
    ms.save_checkpoint(net, str(tmp_path / "w.ckpt"), append_dict={"epoch": 3, "note": "text"})
    found = index_checkpoint(tmp_path / "w.ckpt")
    for parameter in net.get_parameters():
        assert found[parameter.name].read().tobytes() == parameter.asnumpy().tobytes()
    assert "note" not in found
    assert found["epoch"].kind == "I64"
    ms.save_checkpoint(net, str(tmp_path / "c.ckpt"), crc_check=True)
    assert set(index_checkpoint(tmp_path / "c.ckpt")) == {p.name for p in net.get_parameters()}


def test_an_encrypted_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.ckpt"
    ms.save_checkpoint(Net(), str(path), enc_key=b"0" * 16, enc_mode="AES-GCM")
    with pytest.raises(UserError, match="not a readable MindSpore checkpoint"):
        index_checkpoint(path)


@pytest.mark.parametrize("part", [mindspore_file.PART_BYTES, 16])
def test_what_is_written_is_loaded_by_mindspore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(mindspore_file, "PART_BYTES", part)
    rng, net = np.random.default_rng(0), Net()
    values = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in net.get_parameters()}
    writer = CheckpointWriter(tmp_path / "w.ckpt")
    for name, value in values.items():
        writer.append(name, "F32", value)
    writer.finish()
    load_checkpoint(net, tmp_path / "w.ckpt")
    for parameter in net.get_parameters():
        assert parameter.asnumpy().tobytes() == values[parameter.name].tobytes()


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path / "w.ckpt")
    writer.append("fc.weight", "F32", np.ones((4, 3), np.float32))
    writer.finish()
    with pytest.raises(UserError, match="MindSpore finds no"):
        load_checkpoint(Net(), tmp_path / "w.ckpt")


def test_parameters_are_stored_under_their_own_names() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    recorder = Recorder(Net(), None)
    assert recorder.stored_names()["scale"] == ["temperature"]
