"""PyTorch loads the checkpoints that a comparison writes, and lists what a state dict holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from dualml.common.errors import UserError
from dualml_torch.models import load_checkpoint
from dualml_torch.parity.recorder import Recorder


class Net(nn.Module):
    """An embedding that a head shares, and two buffers, of which one is not stored."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("kept", torch.ones(2))
        self.register_buffer("mask", torch.ones(2), persistent=False)

    def forward(self, x: Any) -> Any:
        return self.head(self.embedding(x))


def test_shared_parameters_have_all_their_names_and_some_buffers_none() -> None:
    assert Recorder(Net(), None).stored_names() == {
        "embedding.weight": ["embedding.weight", "head.weight"],
        "kept": ["kept"],
        "mask": [],
    }


def test_a_checkpoint_with_all_names_is_loaded(tmp_path: Path) -> None:
    net, value = Net(), torch.randn(5, 3)
    values = {"embedding.weight": value, "head.weight": value.clone(), "kept": torch.zeros(2)}
    save_file(values, tmp_path / "w.safetensors")
    load_checkpoint(net, tmp_path / "w.safetensors")
    assert torch.equal(net.head.weight, value)
    del values["kept"]
    save_file(values, tmp_path / "w.safetensors")
    with pytest.raises(UserError, match="PyTorch cannot load it"):
        load_checkpoint(net, tmp_path / "w.safetensors")
