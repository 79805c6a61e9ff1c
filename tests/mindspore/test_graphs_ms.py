"""Graphs cached on disk belong to exactly one cell and give the bits of a compiled graph, or are
not used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mindspore")

import mindspore as ms
import numpy as np
from filelock import FileLock
from mindspore import nn, ops

from dualml.algorithms.model import ModelSpec, model
from dualml.algorithms.model.layers import Linear
from dualml_ms.algorithms.model import LOSSES, Network
from dualml_ms.algorithms.training import LossAndGradients, LossCell
from dualml_ms.common import graphs as module
from dualml_ms.common.environ import environ
from dualml_ms.common.fingerprint import UnknownContent, fingerprint
from dualml_ms.common.graphs import GraphCache, compile_once, graph_cache

PROGRAM = Path(__file__).with_name("graph_cases.py")
X = ms.Tensor(np.zeros((2, 3), np.float32))


def run_case(case: str, cache: Path, **more: str) -> dict[str, Any]:
    env = {**os.environ, **environ(1), "DUALML_CACHE": str(cache), **more}
    result = subprocess.run(
        [sys.executable, str(PROGRAM), case], env=env, capture_output=True, text=True, timeout=240
    )
    assert result.returncode == 0, result.stderr
    assert "[ERROR]" not in result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.timeout(400)
def test_a_graph_from_disk_has_the_bits_of_a_compiled_one(tmp_path: Path) -> None:
    compiled = run_case("everything", tmp_path, DUALML_MINDSPORE_GRAPHS="off")
    assert compiled["graphs"] is None
    assert not list(tmp_path.glob("mindspore-graphs-*"))
    with ThreadPoolExecutor() as pool:  # like two ranks of a trial
        first = list(pool.map(run_case, ["everything"] * 2, [tmp_path] * 2))
    again = run_case("everything", tmp_path)
    for case in (*first, again):
        assert case["result"] == compiled["result"]
    number = sum(case["graphs"][1] for case in first)
    assert number > 30
    assert again["graphs"] == [number, 0, []]
    # Each graph was compiled by one of the two and loaded by the other.
    assert sum(case["graphs"][0] for case in first) == number
    assert not list(tmp_path.glob("mindspore-graphs-*/*.lock"))


def test_another_cell_in_its_place_does_not_get_its_graph(tmp_path: Path) -> None:
    """Another cell at the same place does not get its graph, unlike in MindSpore's own cache, which
    counts compilations."""
    sums = [[2.0, 3.0, 4.0], [3.0, 4.0, 5.0]]
    assert run_case("sums", tmp_path) == {"result": sums, "graphs": [0, 2, []]}
    products = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 4.0, 5.0], [4.0, 5.0, 6.0]]
    assert run_case("products", tmp_path) == {"result": products, "graphs": [1, 3, []]}
    assert run_case("products", tmp_path) == {"result": products, "graphs": [4, 0, []]}
    assert run_case("sums", tmp_path) == {"result": sums, "graphs": [2, 0, []]}
    folder = next(tmp_path.glob("mindspore-graphs-*"))
    assert not list(folder.glob("compiling-*"))


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    right = run_case("sums", tmp_path)["result"]
    files = sorted(tmp_path.glob("mindspore-graphs-*/*.mindir"))
    for path, content in zip(files, (b"", files[1].read_bytes()[:100]), strict=True):
        path.chmod(0o600)
        path.write_bytes(content)
    assert run_case("sums", tmp_path) == {"result": right, "graphs": [0, 2, []]}
    assert run_case("sums", tmp_path) == {"result": right, "graphs": [2, 0, []]}


def test_without_a_place_or_with_a_cache_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert run_case("sums", tmp_path / "file")["graphs"] is None
    monkeypatch.setenv(module.ENABLE, "0")
    assert graph_cache.__wrapped__() is None


def test_a_graph_that_another_process_never_finishes_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.1)
    file = tmp_path / "graph.mindir"
    with FileLock(file.with_suffix(".lock")), compile_once(file):
        assert not file.exists()
    begin = time.monotonic()
    file.touch()
    with FileLock(file.with_suffix(".lock")), compile_once(file):
        assert time.monotonic() - begin < 0.1


def test_the_oldest_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = module.api._get_compile_cache_dep_files.__globals__
    monkeypatch.setitem(program, "entry_script_path", program["entry_script_path"])
    monkeypatch.setenv(module.PATH, "")
    monkeypatch.setattr(module, "MAX_FILES", 2)
    store = GraphCache(tmp_path)
    left = tmp_path / "compiling-1-abc"
    left.mkdir()
    os.utime(left, (1, 1))
    place = tmp_path / "place"
    place.mkdir()
    (place / module.HASH).write_bytes(b"hash")
    for number in range(4):
        (place / "next").write_bytes(b"graph %d" % number)
        store.store_graph(
            tmp_path / f"{number}.mindir", module.NO_GRAPH, place / "next", place / module.HASH
        )
        os.utime(tmp_path / f"{number}.mindir", (time.time() - 100 + number,) * 2)
    assert sorted(p.name for p in tmp_path.glob("*.mindir")) == ["2.mindir", "3.mindir"]
    assert not left.exists()


# --- what a graph is made from --------------------------------------------------------------------


class Scale(nn.Cell):
    """The cell x · factor + constant + weight."""

    def __init__(self, factor: float = 2.0, constant: float = 1.0, size: int = 3) -> None:
        super().__init__()
        self.factor, self.constant = factor, ms.Tensor(constant, ms.float32)
        self.weight = ms.Parameter(ops.zeros((size,), ms.float32), name="weight")
        self.sum = ops.ReduceSum()

    def scaled(self, x):
        return x * self.factor

    def construct(self, x):
        return self.sum(self.scaled(x) + self.constant + self.weight)


def fingerprint_of(cell: nn.Cell, *tensors: ms.Tensor) -> str:
    return fingerprint(cell, tensors or (X,))


def keeping(cell: nn.Cell) -> nn.Cell:
    cell.sum = ops.ReduceSum(keep_dims=True)
    return cell


def test_another_graph_has_another_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [
        fingerprint_of(Scale()),
        fingerprint_of(Scale(factor=3.0)),
        fingerprint_of(Scale(constant=3.0)),
        fingerprint_of(Scale(size=1)),
        fingerprint_of(keeping(Scale())),
        fingerprint_of(Scale().set_train()),
        fingerprint_of(Scale(), ms.Tensor(np.zeros((3, 3), np.float32))),
        fingerprint_of(Scale(), ms.Tensor(np.zeros((2, 3), np.int32))),
        fingerprint_of(Scale(), X, X),
    ]
    monkeypatch.setattr(Scale, "scaled", lambda self, x: x / self.factor)
    seen.append(fingerprint_of(Scale()))
    monkeypatch.setenv("MS_DEV_ANYTHING", "1")
    seen.append(fingerprint_of(Scale()))
    assert len(set(seen)) == len(seen)


def closing_over(factor: float) -> Any:
    return lambda self, x: x * factor


def test_what_a_method_has_closed_over_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for factor in (2.0, 3.0):
        monkeypatch.setattr(Scale, "scaled", closing_over(factor))
        seen.append(fingerprint_of(Scale()))
    assert seen[0] != seen[1]


FACTOR = 2.0


def helped(self: Any, x: Any) -> Any:
    return helper(x) * FACTOR


def helper(x: Any) -> Any:
    return x + 1


def test_a_number_and_a_function_of_the_module_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scale, "scaled", helped)
    seen = [fingerprint_of(Scale())]
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    seen.append(fingerprint_of(Scale()))
    monkeypatch.setitem(globals(), "helper", lambda x: x - 1)
    seen.append(fingerprint_of(Scale()))
    assert len(set(seen)) == 3


@pytest.fixture(params=[ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def mode(request: pytest.FixtureRequest) -> Iterator[None]:
    before = ms.get_context("mode")
    ms.set_context(mode=request.param)
    yield
    ms.set_context(mode=before)


@pytest.mark.usefixtures("mode")
def test_values_of_parameters_and_whoever_made_the_cell_do_not_count() -> None:
    changed = Scale()
    changed.weight.set_data(ms.Tensor([1.0, 2.0, 3.0], ms.float32))
    assert fingerprint_of(Scale()) == fingerprint_of(changed)
    changed(X)  # compiled, or called before
    assert fingerprint_of(Scale()) == fingerprint_of(changed)


def gradient(spec: ModelSpec, loss: str = "cross_entropy") -> LossAndGradients:
    network = Network(spec)
    return LossAndGradients(
        LossCell(network, LOSSES[loss]()), ms.ParameterTuple(network.trainable_params())
    )


def test_models_and_losses_of_trainings() -> None:
    batch = (ms.Tensor(np.zeros((2, 1, 28, 28), np.float32)), ms.Tensor([1, 2]))
    mlp = model("mlp")
    wider = ModelSpec(
        "mlp", mlp.input_shape, (*mlp.layers[:-1], (mlp.layers[-1][0], Linear(128, 9)))
    )
    cells = [gradient(mlp), gradient(mlp), gradient(mlp, "mse"), gradient(wider)]
    cells.append(gradient(model("lenet")))
    seen = [fingerprint_of(cell, *batch) for cell in cells]
    assert seen[0] == seen[1]
    assert len(set(seen)) == 4


def test_what_is_not_understood_has_no_hash() -> None:
    cell = Scale()
    cell.thing = object()
    with pytest.raises(UnknownContent, match=r"^builtins\.object$"):
        fingerprint_of(cell)


class Hidden(nn.Cell):
    """A cell whose parameters are only in a function, where MindSpore finds none for a graph from
    disk."""

    def __init__(self) -> None:
        super().__init__()
        cell = Scale()
        self.gradient = ops.value_and_grad(cell, None, ms.ParameterTuple([cell.weight]))

    def construct(self, x):
        return self.gradient(x)


def test_parameters_that_a_cell_does_not_list() -> None:
    with pytest.raises(
        UnknownContent, match=r"Hidden uses parameters it does not list: \['weight'\]"
    ):
        fingerprint_of(Hidden())
