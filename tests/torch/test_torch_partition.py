"""A real DataLoader delivers the partition's samples; PyTorch's own sampler agrees index for
index."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.parallel.partition import (
    PARTITIONS,
    Contiguous,
    DistributedSampler,
    Partition,
    partition_from,
)
from dualml.parallel.partition.distributed_sampler import torch_permutation
from dualml.parallel.partition.from_file import save_partition

if "torch" in os.environ.get("DUALML_REQUIRE", "").split(","):
    import torch
else:
    torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data import DistributedSampler as Theirs

from dualml_torch.parallel.partition import PartitionSampler

PAGE = Path(__file__).resolve().parents[2] / "docs" / "partition.md"
LABELS = np.arange(31) % 4
SETTINGS: dict[str, dict[str, Any]] = {
    "fractions": {"fractions": [0.5, 0.3, 0.2]},
    "dirichlet_labels": {"alpha": 0.5},
    "dirichlet_sizes": {"alpha": 2.0},
    "file": {"path": "deal.npz"},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_partition(Path("deal.npz"), Contiguous().partition(31, 3), LABELS, "some", Contiguous())


def rule_of(name: str) -> Partition:
    return partition_from({"name": name, **SETTINGS.get(name, {})})


def delivered(loader: DataLoader[Any]) -> list[int]:
    return [int(i) for (batch,) in loader for i in batch]


@pytest.mark.parametrize(
    ("name", "workers"), [*((name, 0) for name in PARTITIONS), ("random_sampling", 2)]
)
def test_a_loader_delivers_every_list_in_every_epoch(name: str, workers: int) -> None:
    rule, data = rule_of(name), TensorDataset(torch.arange(31))
    for rank in range(3):
        sampler = PartitionSampler(rule, LABELS, 3, rank, seed=5)
        loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=workers)
        for epoch in (0, 1):
            sampler.set_epoch(epoch)
            want = rule.partition(LABELS, 3, 5, epoch)[rank].tolist()
            assert delivered(loader) == want
            assert len(sampler) == len(want)
            assert len(loader) == -(-len(want) // 4)


def test_an_epoch_is_dealt_once_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    deal = Contiguous.partition

    def counting_partition(
        self: Contiguous, samples: Any, ranks: int, seed: int, epoch: int
    ) -> Any:
        calls.append(epoch)
        return deal(self, samples, ranks, seed, epoch)

    monkeypatch.setattr(Contiguous, "partition", counting_partition)
    sampler = PartitionSampler(Contiguous(), 31, 3, 1)
    assert calls == []
    for epoch in (0, 2):
        sampler.set_epoch(epoch)
        assert len(sampler) == len(list(sampler)) == len(list(sampler)) == 10
    assert calls == [0, 2]
    assert all(type(i) is int for i in sampler)


def test_a_rank_without_samples_has_no_batches() -> None:
    rule = partition_from({"name": "fractions", "fractions": [1, 0]})
    loader = DataLoader(TensorDataset(torch.arange(9)), sampler=PartitionSampler(rule, 9, 2, 1))
    assert delivered(loader) == []
    assert len(loader) == 0


def test_what_cannot_be_meant_is_told() -> None:
    for ranks, rank in ((3, 3), (3, -1), (0, 0)):
        with pytest.raises(UserError, match=f"no rank {rank} of {ranks}; ranks count from 0"):
            PartitionSampler(Contiguous(), 31, ranks, rank)
    sampler = PartitionSampler(Contiguous(), 2, 3, 0)
    with pytest.raises(UserError, match="3 ranks cannot share 2 samples"):
        len(sampler)
    with pytest.raises(UserError, match="received epoch = -1"):
        sampler.set_epoch(-1)


def test_the_example_of_the_page() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    (code,) = [block for block in blocks if "dualml_torch" in block]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 232 of 1437\n1 232 of 1437\n"


SEEDS = (0, 7, 2**31, 2**32 - 1, 2**32 + 5, 2**40 + 3)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("n", [1, 2, 8, 31, 100])
def test_the_lists_of_distributed_sampler(n: int, drop_last: bool, shuffle: bool) -> None:
    rule = DistributedSampler(shuffle=shuffle, drop_last=drop_last)
    for ranks in (r for r in (1, 2, 3, 8, 31) if r <= n):
        for rank in range(ranks):
            for seed in SEEDS:
                theirs = Theirs(
                    range(n), ranks, rank, shuffle=shuffle, seed=seed, drop_last=drop_last
                )
                ours = PartitionSampler(rule, n, ranks, rank, seed)
                for epoch in (0, 1, 9):  # the seed's lower 32 bits run over
                    theirs.set_epoch(epoch)
                    ours.set_epoch(epoch)
                    assert list(ours) == list(theirs)


@pytest.mark.parametrize("n", [2, 10, 1000, 2**17])
@pytest.mark.parametrize("seed", [0, 3, 2**32, 2**63 - 1, -1])
def test_the_permutation_is_randperms(n: int, seed: int) -> None:
    drawn = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    assert torch_permutation(n, seed).tolist() == drawn.tolist()


def test_more_ranks_than_samples_is_where_pytorch_goes_on() -> None:
    """A partition with fewer samples than ranks is refused; PyTorch would repeat samples."""
    assert [list(Theirs(range(2), 5, rank, shuffle=False)) for rank in (0, 4)] == [[0], [0]]
    with pytest.raises(UserError, match="5 ranks cannot share 2 samples"):
        DistributedSampler().partition(2, 5)
