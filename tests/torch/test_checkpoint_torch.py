"""torch.distributed.checkpoint in safetensors format, read and written, and PyTorch's other
loaders."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

from dualml.backend.reference.communicator import run_threads
from dualml.common.errors import UserError
from dualml.launch.ranks import run_ranks
from dualml.runner.checkpoint import Slice, open_checkpoint, save
from dualml.runner.checkpoint.convert import convert

hf = pytest.importorskip("torch.distributed.checkpoint.hf_storage")
HERE = Path(__file__).resolve().parent
ROWS, COLUMNS = 7, 4


def tensors() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {
        "up": torch.randn(ROWS, COLUMNS, generator=draw),
        "half": torch.randn(3, generator=draw).bfloat16(),
        "step": torch.tensor(12),
    }


def saves(comm: Any, folder: str) -> None:
    """Save on every rank: some rows of ``up``, as with FSDP2, and everything else."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh, state = init_device_mesh("cpu", (comm.size,)), tensors()
    state["up"] = distribute_tensor(state["up"], mesh, [Shard(0)])
    writer = hf.HuggingFaceStorageWriter(path=folder, save_distributed=True)
    dcp.save(state, storage_writer=writer)


def assert_same_tensors(path: Path, expected: dict[str, torch.Tensor]) -> None:
    """Assert that one of our checkpoints has exactly these tensors, bit for bit."""
    found = open_checkpoint(path)
    assert set(found.tensors) == set(expected)
    for name, tensor in expected.items():
        bits = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
        assert found.read(name, raw=True).tobytes() == bits.tobytes(), name
        assert found.tensors[name].shape == tuple(tensor.shape)


@pytest.mark.system
def test_what_torch_saved_on_several_ranks_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = os.environ.get("PYTHONPATH")  # the ranks import this file
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *([path] if path else [])]))
    folder = tmp_path / "dcp"
    run_ranks("torch", 3, "test_checkpoint_torch:saves", str(folder), timeout=60, limit=120)
    found = open_checkpoint(folder)
    assert found.format == "dcp"
    assert len(found.tensors["up"].shards) == 3
    assert_same_tensors(folder, tensors())
    np.testing.assert_array_equal(
        found.read("up", [slice(2, 6), slice(1, 3)]), tensors()["up"][2:6, 1:3].numpy()
    )
    np.testing.assert_array_equal(found.read("half"), tensors()["half"].float().numpy())
    convert(found, tmp_path / "one.safetensors")
    read = load_file(tmp_path / "one.safetensors")
    for name, tensor in tensors().items():
        assert torch.equal(read[name], tensor)
        assert read[name].dtype == tensor.dtype


def torch_reads(folder: Path, expected: dict[str, torch.Tensor]) -> None:
    """Assert that torch's own reader finds the tensors in a folder."""
    state = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
    dcp.load(state, storage_reader=hf.HuggingFaceStorageReader(path=str(folder)), no_dist=True)
    for name, tensor in expected.items():
        assert torch.equal(state[name], tensor), name


def save_on_two_ranks(folder: Path) -> None:
    """Save a checkpoint on two ranks of the reference, each with some rows of ``up``."""
    given = tensors()
    half = given["half"].view(torch.uint16).numpy()

    def save_rank(comm: Any) -> None:
        first, last = [(0, 4), (4, ROWS)][comm.rank]
        up = Slice("up", (ROWS, COLUMNS), (first, 0), given["up"].numpy()[first:last])
        rest = [Slice.full("half", half, "BF16"), Slice.full("step", given["step"].numpy())]
        save(comm, [up, *rest], folder, step=3)

    run_threads(2, save_rank)


@pytest.mark.parametrize("shards", [1, 3])
def test_torch_reads_what_is_converted(shards: int, tmp_path: Path) -> None:
    save_on_two_ranks(tmp_path / "ckpt")
    convert(open_checkpoint(tmp_path / "ckpt"), tmp_path / "dcp", "dcp", shards)
    torch_reads(tmp_path / "dcp", tensors())
    assert_same_tensors(tmp_path / "dcp", tensors())


def test_torch_reads_the_folder_of_a_checkpoint_as_it_is(tmp_path: Path) -> None:
    save_on_two_ranks(tmp_path / "ckpt")
    torch_reads(tmp_path / "ckpt/step00000003", tensors())


def test_the_reader_of_torch_would_notice(tmp_path: Path) -> None:
    save_on_two_ranks(tmp_path / "ckpt")
    wrong = {**tensors(), "up": tensors()["up"] + 1}
    with pytest.raises(AssertionError, match="up"):
        torch_reads(tmp_path / "ckpt/step00000003", wrong)


def test_folders_of_the_writer_for_one_rank_and_of_the_loader(tmp_path: Path) -> None:
    """The index of `HuggingFaceStorageWriter` is read, and converted back into two files that torch
    loads."""
    places = {"up": 1, "half": 2, "step": 2}
    writer = hf.HuggingFaceStorageWriter(path=str(tmp_path / "hf"), fqn_to_index_mapping=places)
    dcp.save(tensors(), storage_writer=writer, no_dist=True)
    assert (tmp_path / "hf/model.safetensors.index.json").exists()
    assert_same_tensors(tmp_path / "hf", tensors())
    convert(open_checkpoint(tmp_path / "hf"), tmp_path / "again", "safetensors", 2)
    index = json.loads((tmp_path / "again/model.safetensors.index.json").read_text())
    read = {}
    for name in set(index["weight_map"].values()):
        read |= load_file(tmp_path / "again" / name)
    for name, tensor in tensors().items():
        assert torch.equal(read[name], tensor)


def test_what_torch_puts_together_is_whole(tmp_path: Path) -> None:
    """With `enable_consolidation` both are read: the folder of shards and the consolidated file
    beside it."""
    writer = hf.HuggingFaceStorageWriter(
        path=str(tmp_path / "x"), save_distributed=True, enable_consolidation=True
    )
    floats = {n: t for n, t in tensors().items() if t.is_floating_point()}  # it knows no others
    dcp.save(floats, storage_writer=writer, no_dist=True)
    assert_same_tensors(tmp_path / "x", floats)
    assert_same_tensors(tmp_path / "x/sharded", floats)


def test_the_pickled_format_is_refused(tmp_path: Path) -> None:
    dcp.save(tensors(), checkpoint_id=str(tmp_path / "x"), no_dist=True)
    with pytest.raises(UserError, match=r"its \.metadata is a pickle, which can run code"):
        open_checkpoint(tmp_path / "x")


def test_values_that_are_no_tensors_spoil_the_file_and_are_not_unpickled(tmp_path: Path) -> None:
    """Files with a leading pickle are refused; torch's own reader fails on them, too."""
    writer = hf.HuggingFaceStorageWriter(path=str(tmp_path / "x"), save_distributed=True)
    dcp.save({**tensors(), "epoch": 3}, storage_writer=writer, no_dist=True)
    with pytest.raises(UserError, match="not a safetensors file"):
        open_checkpoint(tmp_path / "x")


def test_types_of_torch_pass_bit_for_bit(tmp_path: Path) -> None:
    kinds = [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8]
    given = {str(kind): torch.arange(256).to(torch.uint8).view(torch.uint8) for kind in kinds}
    given = {name: a.view(kind) for (name, a), kind in zip(given.items(), kinds, strict=True)}
    save_file(given, tmp_path / "a.safetensors")
    assert_same_tensors(tmp_path / "a.safetensors", given)
    convert(open_checkpoint(tmp_path / "a.safetensors"), tmp_path / "b", "dualml", 3)
    convert(open_checkpoint(tmp_path / "b"), tmp_path / "c.safetensors")
    read = load_file(tmp_path / "c.safetensors")
    for name, tensor in given.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name].view(torch.uint8), tensor.view(torch.uint8))
