"""Checkpoints saved by several ranks are read in any other slices; data that two ranks hold is
stored once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_cases import MESH, arrays, assert_equal, files_of, on_mesh, save_on
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualml.backend.reference.communicator import run_threads
from dualml.common.errors import UserError
from dualml.parallel.split.shards import TensorShard
from dualml.runner.checkpoint import Slice, load, open_checkpoint, save
from dualml.runner.checkpoint.slices import flat_slices, piece_slices


def test_saved_on_a_mesh_and_read_by_other_ranks(tmp_path: Path) -> None:
    expected, folder = arrays(), tmp_path / "ckpt"
    save_on(
        4,
        lambda rank: on_mesh(rank, expected),
        folder,
        layout={"data": 2, "tensor": 2},
        about={"lr": 0.1},
    )
    found = open_checkpoint(folder)
    assert_equal(found, expected)
    assert (found.format, found.step) == ("dualml", 10)
    assert found.layout == {"data": 2, "tensor": 2, "world_size": 4}
    assert found.about == {"lr": 0.1}
    found.verify()
    rows = [slice(0, 3), slice(3, 6), slice(6, 8)]

    def third(comm: Any) -> Any:
        return load(folder, "weights/up.weight", [rows[comm.rank], slice(1, 5)])

    parts = run_threads(3, third)
    np.testing.assert_array_equal(np.concatenate(parts), expected["weights/up.weight"][:, 1:5])


def test_what_several_ranks_hold_is_stored_once_and_dealt_evenly(tmp_path: Path) -> None:
    given_ = {f"w{n}": np.full((64,), n, np.float32) for n in range(8)}
    save_on(4, lambda rank: [Slice.full(n, a) for n, a in given_.items()], tmp_path / "a")
    found = open_checkpoint(tmp_path / "a")
    assert_equal(found, given_)
    assert [len(tensor.shards) for tensor in found.tensors.values()] == [1] * 8
    written = {path.name: w.bytes for path, w in found.files.items()}
    assert list(written) == [f"rank{n}.safetensors" for n in range(4)]
    assert max(written.values()) - min(written.values()) < 64
    save_on(4, lambda rank: [Slice.full(n, a) for n, a in given_.items()], tmp_path / "b")
    assert [w.sha256 for w in open_checkpoint(tmp_path / "b").files.values()] == [
        w.sha256 for w in found.files.values()
    ]


@st.composite
def cuts(draw: Any) -> tuple[tuple[int, ...], list[list[int]]]:
    """Draw a shape, and the positions where each axis is cut."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    return shape, [sorted(draw(st.sets(st.integers(1, n), max_size=3)) - {n}) for n in shape]


@given(case=cuts(), size=st.integers(1, 4), data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_cut_on_any_ranks_is_read_in_any_slice(
    case: Any, size: int, data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shape, places = case
    dtype = data.draw(st.sampled_from([np.float32, np.float16, np.int64, np.uint8, np.bool_]))
    array = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    spans = [
        list(zip([0, *cut], [*cut, n], strict=True)) for cut, n in zip(places, shape, strict=True)
    ]
    slices = [
        Slice("x", shape, offset, array[tuple(map(slice, offset, end))])
        for chosen in np.ndindex(*map(len, spans))
        for offset, end in [
            (
                tuple(spans[axis][i][0] for axis, i in enumerate(chosen)),
                tuple(spans[axis][i][1] for axis, i in enumerate(chosen)),
            )
        ]
    ]
    owners = [data.draw(st.sets(st.integers(0, size - 1), min_size=1)) for _ in slices]
    folder = tmp_path_factory.mktemp("cut") / "ckpt"
    save_on(
        size, lambda rank: [s for s, o in zip(slices, owners, strict=True) if rank in o], folder
    )
    found = open_checkpoint(folder)
    assert_equal(found, {"x": array})
    for _ in range(3):
        ends = [sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))) for n in shape]
        where = [slice(a, b) for a, b in ends]
        np.testing.assert_array_equal(found.read("x", where), array[tuple(where)])


def test_ranges_of_a_flat_buffer_and_blocks_of_heads(tmp_path: Path) -> None:
    """ZeRO's flat ranges and the head blocks of tensor-parallel attention can be saved."""
    flat = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    qkv = np.arange(48.0).reshape(12, 4)

    def rank_slices(rank: int) -> list[Slice]:
        begin, end = [(0, 17), (17, 41), (41, 60)][rank]
        piece = TensorShard((12, 4), 0, rank, 2, blocks=3)
        heads = list(piece_slices("qkv", piece, piece.extract(qkv))) if rank < 2 else []
        return [*flat_slices("flat", (3, 4, 5), begin, flat.ravel()[begin:end]), *heads]

    save_on(3, rank_slices, tmp_path / "ckpt")
    assert_equal(open_checkpoint(tmp_path / "ckpt"), {"flat": flat, "qkv": qkv})
    with pytest.raises(UserError, match="flat: elements 58 to 61 of 60"):
        list(flat_slices("flat", (3, 4, 5), 58, np.zeros(3)))


def broken(kind: str, rank: int) -> list[Slice]:
    part = np.zeros((2, 3), np.float32)
    if kind == "overlap":
        return [Slice("x", (4, 3), (rank, 0), part), Slice("x", (4, 3), (2, 0), part)]
    if kind == "gap":
        return [Slice("x", (5, 3), (2 * rank, 0), part)]
    if kind == "shape":
        return [Slice("x", (4 + rank, 3), (2 * rank, 0), part)]
    return [Slice("x", (4, 3), (2 * rank, 0), part.astype(np.float16 if rank else np.float32))]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("overlap", r"x \(4, 3\): the slices \[0:2, 0:3\] of rank 0 and \[1:3, 0:3\] of rank 1"),
        ("gap", r"x \(5, 3\): no rank holds \[4:5, 0:3\]"),
        ("shape", r"x is F32 \(4, 3\) on rank 0 and F32 \(5, 3\) on rank 1"),
        ("type", r"x is F32 \(4, 3\) on rank 0 and F16 \(4, 3\) on rank 1"),
    ],
)
def test_ranks_that_do_not_fit_together_save_nothing(
    kind: str, message: str, tmp_path: Path
) -> None:
    folder, before = tmp_path / "ckpt", arrays()
    save_on(4, lambda rank: on_mesh(rank, before), folder)
    kept = files_of(folder)
    with pytest.raises(UserError, match=message):
        save_on(2, lambda rank: broken(kind, rank), folder, step=11)
    assert files_of(folder) == kept
    assert_equal(open_checkpoint(folder), before)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Slice("x", (4,), (3,), np.zeros(2)), r"x\[3:5\] lies outside of its shape \(4,\)"),
        (lambda: Slice("x", (4,), (0, 0), np.zeros((2, 2))), "are to have equally many axes"),
        (lambda: Slice("x", (4, 4), (0,), np.zeros((2, 2))), "are to have equally many axes"),
        (lambda: Slice.full("\udcff", np.zeros(2)), "is no name of a tensor: not Unicode text"),
        (lambda: Slice.full("x", np.array(["a"])), "x: <U1 cannot be saved as a tensor"),
        (lambda: Slice.full("x", np.zeros(2), "BF16"), "x: float64 cannot be saved as BF16"),
        (
            lambda: Slice.full("x", np.zeros(2, np.float32), "F64"),
            "x: float32 cannot be saved as F64",
        ),
    ],
)
def test_a_slice_that_cannot_be(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_the_next_checkpoint_takes_the_place_of_the_last(tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    for step in (10, 10, 20):
        save_on(4, lambda rank: on_mesh(rank, arrays(step)), folder, step=step)  # noqa: B023
        assert_equal(open_checkpoint(folder), arrays(step))
    assert len([name for name in files_of(folder) if name.startswith("step00000020/rank")]) == 4
    assert len(files_of(folder)) == 5


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "step00000001").mkdir()
    (tmp_path / "step00000001" / "thesis.pdf").write_text("mine")
    with pytest.raises(UserError, match="has step00000001 in it and is no checkpoint"):
        save_on(2, lambda rank: [Slice.full("x", np.zeros(3))], tmp_path)
    assert (tmp_path / "step00000001" / "thesis.pdf").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"rank 0: .*file"):
        save_on(2, lambda rank: [Slice.full("x", np.zeros(3))], tmp_path / "file")


def test_bits_of_bfloat16(tmp_path: Path) -> None:
    bits = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    half = [slice(0, 128), slice(128, 256)]
    save_on(
        2, lambda r: [Slice("x", (256, 256), (128 * r, 0), bits[half[r]], "BF16")], tmp_path / "a"
    )
    found = open_checkpoint(tmp_path / "a")
    assert found.tensors["x"].kind == "BF16"
    assert found.read("x", raw=True).tobytes() == bits.tobytes()


def test_the_manifest_is_as_its_page_says(tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    save_on(4, lambda rank: on_mesh(rank, arrays()), folder)
    manifest = json.loads((folder / "checkpoint.json").read_text())
    assert list(manifest) == ["format", "dualml", "step", "layout", "about", "files", "tensors"]
    assert manifest["format"] == 1
    assert manifest["tensors"]["half"] == {"type": "F16", "shape": [4, 4]}
    assert set(manifest["files"]["step00000010/rank0.safetensors"]) == {"bytes", "sha256"}
    assert MESH.size == len(manifest["files"])


def single_slice(rank: int) -> list[Slice]:
    return [Slice.full("x", np.arange(4.0))]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            {"about": {"n": 2**63}},
            "about can hold what JSON can: about.n: a whole number beyond 64",
        ),
        ({"about": {"n": float("nan")}}, "about can hold what JSON can: "),
        ({"about": {"a": json.loads("[" * 40 + "]" * 40)}}, "nested more than 32 deep"),
        ({"about": {"s": "\udcff"}}, "about.s: not Unicode text"),
        ({"about": {"o": object()}}, "about can hold what JSON can: Object of type object"),
        ({"layout": {"x": 2**64}}, "layout.x: a whole number beyond 64 bits"),
        ({"step": 2**63}, "step: a whole number beyond 64 bits"),
    ],
)
def test_what_the_reader_would_refuse_is_not_saved(
    words: dict[str, Any], message: str, tmp_path: Path
) -> None:
    save_on(2, single_slice, tmp_path, step=1)
    with pytest.raises(UserError, match=message):
        save_on(2, single_slice, tmp_path, **{"step": 2, **words})
    assert open_checkpoint(tmp_path).step == 1
    save_on(2, single_slice, tmp_path, step=3)
    assert open_checkpoint(tmp_path).step == 3


def test_what_is_wrong_on_one_rank_is_told_on_all(tmp_path: Path) -> None:
    def failing_slices(rank: int) -> Any:
        yield Slice.full("x", np.zeros(2))
        if rank == 1:
            raise KeyError("weight")

    said = []

    def save_rank(comm: Any) -> None:
        try:
            save(comm, failing_slices(comm.rank), str(tmp_path), step=2)
        except UserError as error:
            said.append(str(error))

    run_threads(3, save_rank, 20)
    assert len(said) == 3
    assert all(text.startswith("rank 1: KeyError: 'weight'; ") for text in said), said


def test_a_thousand_slices_of_a_tensor_on_a_rank(tmp_path: Path) -> None:
    rows = np.arange(1001.0)
    save_on(
        1, lambda rank: [Slice("x", (1001,), (n,), rows[n : n + 1]) for n in range(1001)], tmp_path
    )
    np.testing.assert_array_equal(load(str(tmp_path), "x"), rows)
    with pytest.raises(UserError, match=r"0.0 in slice.* is no whole number"):
        load(tmp_path, "x", [slice(0.0, 1.0)])
