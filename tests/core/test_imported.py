"""Real dumps of msprobe and TroubleShooter; `dumps/make.py` says how they were made."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command import dualml, strict

from dualml.common.errors import UserError
from dualml.parity import compare_traces
from dualml.parity.models.imported.msprobe import find_dump_files
from dualml.parity.models.imported.msprobe import read as read_msprobe
from dualml.parity.models.imported.read import detect_tool
from dualml.parity.models.imported.troubleshooter import read as read_troubleshooter

ARCHIVE = Path(__file__).parent / "dumps" / "dumps.tar.xz"


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def copy(dumps: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Return a copy of a dump that a test may damage."""
    return lambda name: Path(shutil.copytree(dumps / name, tmp_path / name.replace("/", "-")))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("msprobe/torch", "msprobe/mindspore"),
        ("msprobe/torch-statistics", "msprobe/mindspore"),
        ("troubleshooter/torch", "troubleshooter/mindspore"),
    ],
)
def test_a_right_port_is_equal(a: str, b: str, dumps: Path) -> None:
    found = compare_traces(dumps / b, dumps / a)
    assert (found.verdict, found.sides) == ("equal", ("torch", "mindspore"))
    assert 0 < found.worst < 10
    statistics = [note.key for note in found.notes]
    assert statistics == (["statistics"] if "statistics" in a else [])


@pytest.mark.parametrize(
    ("a", "b", "layer"),
    [
        ("msprobe/torch", "msprobe/torch-tanh", "act"),
        ("msprobe/torch-tanh", "msprobe/mindspore", "act"),
        ("msprobe/torch-statistics", "msprobe/torch-tanh", "act"),
        ("troubleshooter/torch", "troubleshooter/torch-tanh", "NN_GELU_0"),
        ("troubleshooter/torch-tanh", "troubleshooter/mindspore", "NN_GELU_0"),
    ],
)
def test_another_gelu_is_found_where_it_is(a: str, b: str, layer: str, dumps: Path) -> None:
    done = dualml("compare", dumps / a, dumps / b, "--json")
    assert done.returncode == 3, done.stderr
    first = strict(done.stdout)["first"]
    assert (first["step"], first["phase"], first["layer"], first["type"]) == (
        1,
        "forward",
        layer,
        "GELU",
    )


def test_everything_in_a_dump_is_compared(dumps: Path) -> None:
    found = compare_traces(dumps / "msprobe/torch", dumps / "msprobe/mindspore")
    arrays = {phase: row["arrays"] for phase, row in found.phases.items()}
    # Two steps of five modules, forwards and backwards; four parameters, updated once in between.
    assert arrays == {"forward": 20, "gradient": 8, "update": 4}
    assert {pair["a"] for pair in found.mapping} == {
        "conv.weight",
        "conv.bias",
        "head.1.weight",
        "head.1.bias",
    }
    dump = read_msprobe(dumps / "msprobe/torch")
    assert list(dump.steps[0].outputs) == [
        "conv",
        "act",
        "head.0",
        "head.1",
        "head",
        "backward:head.1",
        "backward:head.0",
        "backward:head",
        "backward:act",
        "backward:conv",
    ]
    calls = read_troubleshooter(dumps / "troubleshooter/mindspore")
    assert list(calls.steps[0].outputs)[:2] == ["NN_Conv2d_0", "NN_GELU_0"]
    assert calls.steps[0].inputs[0].shape == (3, 1, 8, 8)


def test_the_gradient_of_an_output_has_its_shape(dumps: Path) -> None:
    for dump in (
        read_msprobe(dumps / "msprobe/torch"),
        read_troubleshooter(dumps / "troubleshooter/torch"),
    ):
        outputs = dump.steps[0].outputs
        gradients = [name for name in outputs if name.startswith("backward:")]
        assert len(gradients) >= 4
        for name in gradients:
            assert outputs[name].shape == outputs[name.removeprefix("backward:")].shape


def test_one_number_off_is_different(copy: Callable[[str], Path], dumps: Path) -> None:
    spoiled = copy("msprobe/torch")
    path = next(
        spoiled.glob("step1/*/dump_tensor_data/Module.head.1.Linear.forward.0.output.0.npy")
    )
    array = np.load(path)
    array[1, 2] += 1e-3
    path.chmod(0o644)
    np.save(path, array)
    found = compare_traces(dumps / "msprobe/torch", spoiled)
    assert found.first is not None
    assert (found.first.step, found.first.layer) == (2, "head.1")
    assert found.first.elements[0]["index"] == [1, 2]


def test_pickles_are_not_opened(copy: Callable[[str], Path], dumps: Path) -> None:
    folder = copy("msprobe/torch")
    for path in folder.rglob("*.npy"):
        path.with_suffix(".pt").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
        path.unlink()
    found = compare_traces(folder, dumps / "msprobe/torch-tanh")
    assert found.verdict == "different"
    assert [note.key for note in found.notes] == ["statistics", "pickled"]
    assert "python -m dualml_torch.parity.dumped DUMP" in found.paragraph()
    objects = copy("troubleshooter/torch")
    path = next(objects.rglob("NN_GELU_0_forward_output.npy"))
    np.save(path, np.array([{}], object), allow_pickle=True)
    with pytest.raises(UserError, match=r"no readable array: .*allow_pickle=False"):
        compare_traces(objects, dumps / "troubleshooter/torch")


def head(folder: Path, **values: object) -> None:
    path = next(folder.glob("step0/*/dump.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def another_rank(folder: Path) -> None:
    one = next(folder.glob("step0/*"))
    shutil.copytree(one, one.with_name("rank7"))


@pytest.mark.parametrize(
    ("name", "spoil", "said"),
    [
        (
            "msprobe/torch",
            lambda f: head(f, framework="paddle"),
            "framework 'paddle'; this version",
        ),
        (
            "msprobe/torch",
            lambda f: head(f, level="L2"),
            "level 'L2'; this version reads L0, L1, mix",
        ),
        ("msprobe/torch", lambda f: head(f, task="structure"), "task 'structure'; this version"),
        ("msprobe/torch", lambda f: head(f, data={}), "nothing was recorded"),
        ("msprobe/torch", lambda f: head(f, data={"x": {}}), "'x': an entry of another version"),
        ("msprobe/torch", lambda f: head(f, data=3), "not a dump of msprobe"),
        ("msprobe/torch", another_rank, "of 2 ranks, .*; name the folder of one"),
        ("msprobe/torch", lambda f: next(f.glob("step0/*/dump.json")).write_text("{"), "not JSON"),
        (
            "troubleshooter/torch",
            lambda f: next(f.glob("rank0/*.csv")).write_text("[1]"),
            "another version wrote it",
        ),
        (
            "troubleshooter/torch",
            lambda f: next(f.glob("rank0/*.csv")).write_text(""),
            "no output of any call",
        ),
        (
            "troubleshooter/torch",
            lambda f: next(f.rglob("NN_GELU_0_forward_output.npy")).write_bytes(b"x"),
            "no readable array",
        ),
    ],
)
def test_damaged_dumps_and_other_versions_are_refused(
    name: str, spoil: Callable[[Path], None], said: str, copy: Callable[[str], Path], dumps: Path
) -> None:
    folder = copy(name)
    spoil(folder)
    with pytest.raises(UserError, match=said):
        compare_traces(folder, dumps / name)


def test_folders_are_sorted_however_deep_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("step10/rank0", "step0/rank0", "rank0"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "dump.json").touch()
    found = [path.parent.as_posix() for path in find_dump_files(Path())]
    assert found == ["rank0", "step0/rank0", "step10/rank0"]


def test_two_kinds_are_refused(dumps: Path, tmp_path: Path) -> None:
    done = dualml("compare", dumps / "msprobe/torch", dumps / "troubleshooter/torch")
    assert done.returncode == 2
    assert "two of one tool can be compared" in done.stderr
    assert detect_tool(tmp_path) == ""
    done = dualml("compare", dumps / "msprobe/torch", tmp_path)
    assert "is none of a known tool" in done.stderr
