"""A checkpoint of 4 ranks of one backend is resumed by 3 ranks of another, on another mesh."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from conformance import checkpoint
from conformance.backends import REFEREE, create, on_ranks, rank_backends, tolerance

from dualml.runner.checkpoint import open_checkpoint

#: Those that are judged, and the referee, each with each.
NAMES = sorted({REFEREE.name, *rank_backends()})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function: backend → folder of its ranks' checkpoint."""

    @cache
    def save_with(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name) / "ckpt"
        on_ranks(name, 4, "conformance.checkpoint:saves", str(folder), timeout=60)
        return folder

    return save_with


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("writer", "reader"), list(itertools.product(NAMES, NAMES)))
def test_it_goes_on_elsewhere_as_if_nothing_had_happened(
    saved: Callable[[str], Path], writer: str, reader: str
) -> None:
    folder = saved(writer)
    found = open_checkpoint(folder)
    found.verify()
    assert found.layout == {"mesh": "2 × 1 × 2", "world_size": 4}
    assert {len(t.shards) for t in found.tensors.values()} == {1, 2}, "some are split, and once"
    ranks = on_ranks(reader, 3, "conformance.checkpoint:resume_on_mesh", str(folder), timeout=60)
    whole = checkpoint.expected()
    bound = 5 * max(tolerance(create(name)) for name in (writer, reader))
    for arrays in ranks:
        assert arrays.keys() == whole.keys()
        for name, want in whole.items():
            if name.startswith("loaded "):
                key = f"weights/{name.removeprefix('loaded ')}"
                np.testing.assert_array_equal(
                    np.float32(arrays[name]), np.float32(found.read(key).ravel())
                )
            distance = np.abs(np.array(arrays[name]) - want.ravel()).max()
            assert distance <= bound * max(0.1, np.abs(want).max()), name
