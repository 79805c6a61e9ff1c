"""Traces that are larger than the memory: written and read array by array."""

from __future__ import annotations

import json
import resource
import signal
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from model_traces import spoiled, trace
from safetensors.numpy import load_file, save

from dualml.common.errors import UserError
from dualml.common.tensor_files import LazyArrays
from dualml.common.tensor_shards import index_path, open_arrays
from dualml.parity.models import trace_files
from dualml.parity.models.judge import judge_traces
from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import ARRAYS, Trace, array_key, read_trace
from dualml.parity.models.trace_files import TraceArrays, make_temporary_arrays

MB = 1 << 20
INDEX = index_path(Path(ARRAYS)).name


@pytest.fixture
def all_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no trace be small."""
    monkeypatch.setattr(trace_files, "SMALL_BYTES", 0)


def test_a_small_trace_is_one_file_with_the_bytes_of_the_library(tmp_path: Path) -> None:
    made = trace()
    made.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trace.json", ARRAYS]
    whole = {name: np.array(value, order="C") for name, value in made.arrays.items()}
    assert (tmp_path / ARRAYS).read_bytes() == save(whole)
    assert isinstance(read_trace(tmp_path).arrays, dict)


@pytest.mark.usefixtures("all_on_disk")
def test_a_large_trace_reads_as_it_was_written(tmp_path: Path) -> None:
    made = trace()
    made.write(tmp_path)
    again = read_trace(tmp_path)
    assert isinstance(again.arrays, LazyArrays)
    assert list(again.arrays) == list(made.arrays)
    assert all(np.array_equal(again.arrays[name], made.arrays[name]) for name in made.arrays)


def write_steps(folder: Path) -> TraceArrays:
    """Write two steps of which only the first is small."""
    arrays = TraceArrays(folder, small=100)
    arrays.store("forward/00000001/x", np.ones(4, np.float32))
    arrays.write()
    arrays.store("forward/00000002/x", np.ones(40, np.float32))
    arrays.write()
    arrays.store("forward/00000003/x", np.ones(41, np.float32))
    assert len(arrays["forward/00000003/x"]) == 41  # before the file is finished
    arrays.write()
    return arrays


def test_a_trace_grows_into_further_files_with_an_index(tmp_path: Path) -> None:
    arrays = write_steps(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "trace-00002.safetensors",
        ARRAYS,
        INDEX,
    ]
    places = json.loads((tmp_path / INDEX).read_text())["weight_map"]
    for name, file in places.items():
        assert np.array_equal(load_file(tmp_path / file)[name], arrays[name])
    found = open_arrays(tmp_path / ARRAYS, list(arrays), 0, "unreadable")
    assert [len(found[name]) for name in arrays] == [4, 40, 41]


def test_an_earlier_trace_leaves_nothing_behind(tmp_path: Path) -> None:
    write_steps(tmp_path)
    trace().write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trace.json", ARRAYS]
    assert judge_traces(read_trace(tmp_path), trace(other=True)).equal


def remove(folder: Path) -> None:
    (folder / "trace-00002.safetensors").unlink()


def truncate(folder: Path) -> None:
    path = folder / "trace-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def lead_away(folder: Path) -> None:
    places = {"forward/00000001/x": "../other.safetensors"}
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))


@pytest.mark.parametrize("damage", [remove, truncate, lead_away])
def test_damaged_files_are_told(damage: Callable[[Path], None], tmp_path: Path) -> None:
    arrays = write_steps(tmp_path)
    made = Trace("torch", {}, [], {})
    made.arrays = arrays
    made.write_header(tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError, match=r"not a readable trace|missing"):
        read_trace(tmp_path)


@pytest.mark.usefixtures("all_on_disk")
@pytest.mark.parametrize(
    "other", [trace(1e-7, other=True), spoiled(lambda x: x * 1.001, "gradient", 2, "fc.bias")]
)
def test_the_verdict_does_not_depend_on_where_the_arrays_are(other: Trace, tmp_path: Path) -> None:
    expected = judge_traces(trace(), other)
    trace().write(tmp_path / "a")
    other.write(tmp_path / "b")
    found = judge_traces(read_trace(tmp_path / "a"), read_trace(tmp_path / "b"))
    assert found.describe() == expected.describe()


@pytest.mark.usefixtures("all_on_disk")
def test_the_judge_holds_one_pair_of_arrays(tmp_path: Path) -> None:
    size, count = MB // 4, 16  # megabytes of float32, and how many
    names = [f"layer{i}.weight" for i in range(count)]
    for side in "ab":
        made = Trace("torch", {}, [Tensor(n, (size,)) for n in names], {}, 1, [["x"]], [[]])
        made.envelope = {}
        values = np.random.default_rng(0)
        for phase, step in (("parameters", 0), ("gradient", 1), ("update", 1)):
            for name in names:
                value = values.standard_normal(size).astype(np.float32)
                made.arrays[array_key(phase, step, name)] = value  # type: ignore[index]
        if side == "b":
            made.arrays[array_key("gradient", 1, names[3])][7] += 1
        made.write(tmp_path / side)
    a, b = (read_trace(tmp_path / side) for side in "ab")
    tracemalloc.start()
    found = judge_traces(a, b)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.verdict == "different"
    assert found.first is not None
    assert found.first.tensor == names[3]
    assert found.first.elements[0]["index"] == [7]
    assert peak < 10 * MB < 3 * count * MB  # two arrays, and the float64 copies of one pair


def test_a_full_disk_is_told_with_the_remedy(tmp_path: Path) -> None:
    arrays = TraceArrays(tmp_path, small=0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MB, limits[1]))
    try:
        arrays.store("forward/00000001/x", np.ones(MB // 4, np.float32))
        with pytest.raises(UserError, match=r"cannot be written to .* after 0\.01 GB; .*folder="):
            arrays.store("forward/00000001/y", np.ones(2 * MB, np.float32))
        assert arrays.failure is not None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, former)


def test_a_temporary_trace_is_gone_with_its_arrays(tmp_path: Path) -> None:
    arrays = make_temporary_arrays(tmp_path)
    arrays.small = 0
    arrays.store("forward/00000001/x", np.ones(4, np.float32))
    (folder,) = tmp_path.iterdir()
    assert list(folder.iterdir())
    value = arrays["forward/00000001/x"]
    del arrays
    assert not list(tmp_path.iterdir())
    assert value.tolist() == [1, 1, 1, 1]
