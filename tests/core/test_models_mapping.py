"""Users' own models without a framework: pairing, traces written by hand, verdicts, refusals."""

from __future__ import annotations

import json
import unittest
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import dualml, strict

from dualml import parity
from dualml.backend import BackendInfo
from dualml.errors import UserError
from dualml.parity import compare, compare_traces
from dualml.parity.models import run
from dualml.parity.models.gap import farthest, gap
from dualml.parity.models.judge import PHASES, judge
from dualml.parity.models.layers import pair_modules
from dualml.parity.models.mapping import Tensor, canonical, changed, fit, match
from dualml.parity.models.subject import INSIDE, load, subject
from dualml.parity.models.trace import Trace, digest, key, read_trace
from dualml.parity.models.words import ENTRIES, hints
from dualml.testing import assert_parity
from dualml.words import phrases

Shapes = dict[str, tuple[int, ...]]


def tensors(shapes: Shapes) -> list[Tensor]:
    fixed = ("running_mean", "running_var", "moving_mean", "moving_variance", "mask")
    return [Tensor(name, shape, not name.endswith(fixed)) for name, shape in shapes.items()]


def pairs(a: Shapes, b: Shapes, asked: Any = None) -> dict[str, tuple[str, str, str]]:
    found = match(tensors(a), tensors(b), asked)
    return {pair.a: (pair.b, pair.how, pair.change) for pair in found.pairs}


def test_names_and_words_of_both_frameworks_are_one() -> None:
    torch = {"bn.weight": (3,), "bn.bias": (3,), "bn.running_mean": (3,), "bn.running_var": (3,),
             "bn.num_batches_tracked": (), "emb.weight": (9, 4), "act.weight": (1,),
             "rnn.weight_ih_l0_reverse": (8, 4)}  # fmt: skip
    ms = {"bn.moving_mean": (3,), "bn.moving_variance": (3,), "bn.gamma": (3,), "bn.beta": (3,),
          "emb.embedding_table": (9, 4), "act.w": (1,),
          "rnn.weight_ih_l0_reverse": (8, 4)}  # fmt: skip
    assert pairs(torch, ms) == {
        "bn.weight": ("bn.gamma", "word", ""),
        "bn.bias": ("bn.beta", "word", ""),
        "bn.running_mean": ("bn.moving_mean", "word", ""),
        "bn.running_var": ("bn.moving_variance", "word", ""),
        "emb.weight": ("emb.embedding_table", "word", ""),
        "act.weight": ("act.w", "word", ""),
        "rnn.weight_ih_l0_reverse": ("rnn.weight_ih_l0_reverse", "name", ""),
    }


@pytest.mark.parametrize(("a", "b", "how"), [
    ({"0.weight": (2, 3)}, {"layers.0.weight": (2, 3)}, ("ending", "")),
    ({"net.norm.weight": (2,)}, {"norm.gamma": (2,)}, ("ending", "")),
    ({"fc.weight": (2, 3)}, {"fc.weight": (3, 2)}, ("name", "transpose")),
    ({"conv.weight": (6, 5, 3)}, {"conv.weight": (6, 5, 1, 3)}, ("name", "reshape")),
    ({"fc.weight": (2, 3), "fc.bias": (2,)}, {"head.weight": (2, 3), "head.bias": (2,)},
     ("block", "")),
    ({"fc.weight": (2, 3), "fc.bias": (2,)}, {"head.weight": (3, 2), "out.bias": (2,)},
     ("block", "transpose")),
    ({"a.w1": (2, 3), "a.w2": (2, 3)}, {"p": (2, 3), "q": (2, 3)}, ("order", "")),
])  # fmt: skip
def test_the_way_a_partner_is_found(a: Shapes, b: Shapes, how: tuple[str, str]) -> None:
    found = pairs(a, b)
    assert [partner for partner, _, _ in found.values()] == list(b)
    first = next(iter(found.values()))
    assert first[1:] == how or (first[1] == "order" and how[1] == first[2])


def test_names_go_before_order_even_where_the_order_fits() -> None:
    """Both matrices would fit in order; their names say that both are transposed."""
    a: Shapes = {"x.weight": (4, 8), "y.weight": (8, 4)}
    b: Shapes = {"x.weight": (8, 4), "y.weight": (4, 8)}
    assert pairs(a, b) == {
        "x.weight": ("x.weight", "name", "transpose"),
        "y.weight": ("y.weight", "name", "transpose"),
    }


def test_what_the_user_says_goes_first() -> None:
    a: Shapes = {"p": (3, 3), "q": (3, 3)}
    b: Shapes = {"r": (3, 3), "s": (3, 3)}
    asked = {"p": ("s", "transpose")}
    assert pairs(a, b, asked)["p"] == ("s", "asked", "transpose")
    assert pairs(a, b, asked)["q"][0] == "r"


@pytest.mark.parametrize(("asked", "said"), [
    ({"x": "r"}, "torch has no parameter 'x'"),
    ({"p": "x"}, "mindspore has no parameter 'x'"),
    ({"p": ("r", "turn")}, "after the name only 'transpose'"),
    ({"p": "s"}, r"p \(3, 3\) cannot be s \(2,\): the shapes differ"),
    ({"p": "r", "q": "r"}, "'r' is named twice"),
])  # fmt: skip
def test_a_map_that_cannot_be_meant(asked: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        match(tensors({"p": (3, 3), "q": (3, 3)}), tensors({"r": (3, 3), "s": (2,)}), asked)


def test_leftovers_are_listed_with_the_nearest_shapes_of_the_other_side() -> None:
    a = tensors({"a.weight": (4, 4), "fc.weight": (10, 84), "fc.bias": (10,)})
    b = tensors({"a.weight": (4, 4), "head.weight": (10, 85), "head.bias": (10,)})
    with pytest.raises(UserError) as caught:
        match(a, b)
    assert str(caught.value) == (
        "parameters without a partner: 1 of 3 in torch: fc.weight (10, 84) (nearest: head.weight "
        "(10, 85)); 1 of 3 in mindspore: head.weight (10, 85) (nearest: fc.weight (10, 84)); say "
        'which is which: map={"fc.weight": "head.weight"}'
    )


def test_two_of_a_kind_against_one_is_no_choice_to_make() -> None:
    with pytest.raises(UserError, match="2 of 2 in torch"):
        match(tensors({"a.w": (2, 2), "b.w": (2, 2)}), tensors({"c.x": (2, 2)}))


def test_buffers_of_one_side_are_left_out_and_named() -> None:
    found = match(tensors({"w": (2,), "attn.mask": (5, 5)}), tensors({"w": (2,)}))
    assert found.left == (("attn.mask",), ())
    assert [pair.a for pair in found.pairs] == ["w"]


def test_a_change_is_its_own_way_back() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(changed(changed(x, "transpose", (3, 2)), "transpose", (2, 3)), x)
    assert changed(x, "reshape", (2, 1, 3)).shape == (2, 1, 3)
    assert fit((2, 3), (3, 3)) is None
    assert canonical("a.gamma") == "a.weight"


def test_modules_follow_their_parameters() -> None:
    a = {"f": "Sequential", "f.0": "Linear", "f.1": "ReLU", "f.2": "Linear", "act": "GELU"}
    b = {"net": "SequentialCell", "net.0": "Dense", "net.1": "ReLU", "net.2": "Dense", "g": "GELU"}
    shapes: Shapes = {"0.weight": (2, 3), "2.weight": (4, 2)}
    found = match(
        tensors({f"f.{n}": s for n, s in shapes.items()}),
        tensors({f"net.{n}": s for n, s in shapes.items()}),
    )
    assert pair_modules(a, b, found) == {
        "f": "net", "f.0": "net.0", "f.1": "net.1", "f.2": "net.2", "act": "g"
    }  # fmt: skip


# Traces by hand: `a` as from PyTorch, `b` as from MindSpore with a transposed matrix.
def trace(noise: float = 0.0, *, other: bool = False, steps: int = 2) -> Trace:
    base, error = np.random.default_rng(1), np.random.default_rng(2)
    names = {"norm.weight": (3,), "norm.bias": (3,), "fc.weight": (2, 3), "fc.bias": (2,)}
    mine = {"norm.weight": "norm.gamma", "norm.bias": "norm.beta"} if other else {}

    def array(shape: tuple[int, ...], off: float) -> Any:
        x = base.normal(size=shape).astype(np.float32)
        return x * (1 + off * error.uniform(-1, 1, shape)).astype(np.float32)

    made = Trace(
        framework="mindspore" if other else "torch", environment={"device": "cpu"},
        tensors=[Tensor(mine.get(n, n), s[::-1] if other and n == "fc.weight" else s)
                 for n, s in names.items()],
        modules={"norm": "LayerNorm", "fc": "Dense" if other else "Linear"},
        steps=steps, inputs=[["x", "y"]] * steps, order=[["norm", "fc", "(output)"]] * steps,
        envelope={}, draws=3, repeated=True,
    )  # fmt: skip

    def put(phase: str, step: int, name: str, shape: tuple[int, ...], off: float) -> None:
        value = array(shape, off)
        tensor = name.rpartition("/")[2]
        own = name.replace(tensor, mine.get(tensor, tensor))
        turned = other and tensor == "fc.weight"
        made.arrays[key(phase, step, own)] = value.T if turned else value
        assert made.envelope is not None
        if phase != "parameters":
            made.envelope[key(phase, step, own)] = 1e-6

    for name, shape in names.items():
        put("parameters", 0, name, shape, 0)
    for step in range(1, steps + 1):
        for name, width in (("norm", 3), ("fc", 2), ("(output)", 2)):
            put("forward", step, name, (4, width), noise)
        put("loss", step, "loss", (), noise)
        for name, shape in names.items():
            put("gradient", step, name, shape, noise)
        for name, shape in names.items():
            put("update", step, name, shape, noise)
            put("state", step, f"exp_avg/{name}", shape, noise)
    return made


def spoiled(change: Callable[[Any], Any], phase: str, step: int, name: str) -> Trace:
    made = trace(1e-7, other=True)
    where = key(phase, step, name)
    made.arrays[where] = np.asarray(change(made.arrays[where].copy()))
    return made


def off(x: Any) -> Any:
    return x * 1.001


def lost(x: Any) -> Any:
    x.flat[1] = np.nan
    return x


def test_rounding_is_equal_across_names_and_layouts() -> None:
    found = judge(trace(), trace(1e-7, other=True))
    assert (found.verdict, found.reason, found.first) == ("equal", "inside_envelope", None)
    assert found.worst < 1
    assert set(found.phases) == set(PHASES) - {"parameters"}
    assert found.describe()["mapping"][2]["change"] == "transpose"


@pytest.mark.parametrize(("place", "expected"), [
    (("forward", 1, "norm"), ("forward", "norm", "LayerNorm", "norm")),
    (("forward", 2, "(output)"), ("forward", "(output)", "", "(output)")),
    (("loss", 1, "loss"), ("loss", "", "", "loss")),
    (("gradient", 1, "norm.gamma"), ("gradient", "norm", "LayerNorm", "norm.weight")),
    (("update", 1, "fc.weight"), ("update", "fc", "Linear", "fc.weight")),
    (("state", 1, "exp_avg/norm.beta"), ("state", "norm", "LayerNorm", "exp_avg/norm.bias")),
])  # fmt: skip
def test_the_first_divergence_is_named(
    place: tuple[str, int, str], expected: tuple[str, ...]
) -> None:
    found = judge(trace(), spoiled(off, *place))
    assert found.verdict == "different"
    first = found.first
    assert first is not None
    assert (first.phase, first.layer, first.type, first.tensor) == expected
    assert first.step == place[1]
    assert first.distance == pytest.approx(1e-3, rel=0.05)
    assert first.elements
    one = first.elements[0]
    assert one["mindspore"] == pytest.approx(one["torch"] * 1.001, rel=1e-4)
    for lang in ("en", "zh"):
        assert first.tensor in found.paragraph(lang)
    json.dumps(found.describe())


def test_a_small_error_is_named_where_it_begins() -> None:
    b = spoiled(lambda x: x * (1 + 8e-6), "forward", 1, "norm")
    where = key("forward", 1, "fc")
    b.arrays[where] = b.arrays[where] * np.float32(1 + 1.5e-5)
    first = judge(trace(), b).first
    assert first is not None
    assert first.layer == "norm"
    assert first.outside is not None
    assert first.outside["tensor"] == "fc"


def test_nan_on_one_side_and_on_both() -> None:
    one = judge(trace(), spoiled(lost, "forward", 1, "fc"))
    assert (one.verdict, one.first and one.first.kind) == ("different", "nan")
    assert "Only mindspore has NaN" in one.paragraph()
    a = trace()
    a.arrays[key("forward", 1, "fc")].flat[0] = np.nan
    both = judge(a, spoiled(lost, "forward", 1, "fc"))
    assert (both.verdict, both.reason) == ("not comparable", "both_nan")
    assert both.first is not None
    assert both.first.layer == "fc"


def test_the_same_infinity_is_no_difference() -> None:
    x = np.array([1.0, -np.inf], np.float32)
    assert gap(x, x * np.float32(1)) == 0
    assert gap(x, np.array([1.0, np.inf], np.float32)) == np.inf
    assert [e["index"] for e in farthest(x, np.array([2.0, -np.inf], np.float32))] == [[0]]


def test_other_shapes_of_outputs_and_of_modules() -> None:
    output = judge(trace(), spoiled(lambda x: x[:, :1], "forward", 1, "(output)"))
    assert (output.verdict, output.first and output.first.kind) == ("different", "shape")
    assert "(4, 2)" in output.paragraph()
    inside = judge(trace(), spoiled(lambda x: x.T, "forward", 1, "norm"))
    assert inside.verdict == "equal"
    assert [note.key for note in inside.notes] == ["layout"]


def test_another_number_of_outputs() -> None:
    b = trace(1e-7, other=True)
    for step in (1, 2):
        b.arrays[key("forward", step, "(output)[0]")] = b.arrays.pop(
            key("forward", step, "(output)")
        )
    b.order = [["norm", "fc", "(output)[0]"]] * 2
    found = judge(trace(), b)
    assert (found.verdict, found.first and found.first.kind) == ("different", "outputs")


def test_a_parameter_that_one_side_freezes() -> None:
    b = trace(1e-7, other=True)
    b.tensors[3] = replace(b.tensors[3], trained=False)
    first = judge(trace(), b).first
    assert first is not None
    assert (first.phase, first.tensor, first.kind, first.side) == (
        "parameters", "fc.bias", "trained", "mindspore"
    )  # fmt: skip


def test_random_and_chaotic_models_are_not_comparable() -> None:
    b = trace(0.5, other=True)
    b.random = {"phase": "forward", "name": "drop", "type": "Dropout"}
    found = judge(trace(), b)
    assert (found.verdict, found.reason) == ("not comparable", "random")
    assert "drop" in found.paragraph()
    wild = trace()
    assert wild.envelope is not None
    wild.envelope[key("loss", 1, "loss")] = 0.5
    assert judge(wild, trace(1e-7, other=True)).reason == "chaotic"


def test_without_draws_the_tolerance_is_said_to_be_a_bound() -> None:
    a, b = trace(), trace(1e-7, other=True)
    a.envelope = b.envelope = None
    found = judge(a, b)
    assert (found.verdict, found.tolerance) == ("equal", "bound")
    assert "rule of thumb" in found.paragraph()


# Folders.
def written(folder: Path, made: Trace) -> Path:
    made.write(folder)
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    return (
        written(tmp_path / "a", trace()),
        written(tmp_path / "b", trace(1e-7, other=True)),
    )


def test_a_trace_comes_back_as_it_was(folders: tuple[Path, Path]) -> None:
    a, made = read_trace(folders[0]), trace()
    assert a.tensors == made.tensors
    assert a.order == made.order
    assert a.envelope == made.envelope
    assert a.arrays.keys() == made.arrays.keys()
    assert all(np.array_equal(a.arrays[name], value) for name, value in made.arrays.items())
    assert compare_traces(folders[1], folders[0]).sides == ("torch", "mindspore")


def edited(folder: Path, **values: Any) -> None:
    told = json.loads((folder / "trace.json").read_text())
    (folder / "trace.json").write_text(json.dumps({**told, **values}))


def missing(folder: Path) -> None:
    told = json.loads((folder / "trace.json").read_text())
    del told["order"]
    (folder / "trace.json").write_text(json.dumps(told))


@pytest.mark.parametrize(("spoil", "said"), [
    (lambda f: (f / "trace.json").unlink(), "no trace here"),
    (lambda f: (f / "trace.json").write_text("{"), "not a readable trace"),
    (lambda f: (f / "trace.json").write_text("[]"), "not a readable trace"),
    (lambda f: (f / "trace.json").write_text("{}"), "not a trace of dualml"),
    (lambda f: edited(f, format=9), "format 9; this version reads 1"),
    (lambda f: edited(f, steps=7), "7 steps, but 2 inputs"),
    (lambda f: edited(f, names=["x"]), "x and 0 more missing"),
    (lambda f: edited(f, order=[["gone"], []]), "the output of gone in step 1 is missing"),
    (lambda f: edited(f, parameters=[{"name": "w"}]), "'shape' is missing"),
    (missing, "'order' is missing"),
    (lambda f: (f / "trace.safetensors").unlink(), "not a readable trace"),
    (lambda f: (f / "trace.safetensors").write_bytes(
        (f / "trace.safetensors").read_bytes()[:500]), "not a readable trace"),
])  # fmt: skip
def test_a_bad_trace_is_one_clear_line(
    folders: tuple[Path, Path], spoil: Callable[[Path], Any], said: str
) -> None:
    spoil(folders[1])
    with pytest.raises(UserError, match=said) as caught:
        compare_traces(*folders)
    assert "\n" not in str(caught.value)


def test_traces_of_other_plans_are_refused_with_the_part(tmp_path: Path) -> None:
    a = written(tmp_path / "a", trace())
    b = trace(1e-7, other=True)
    b.inputs = [["x", "y"], ["x", "z"]]
    with pytest.raises(UserError, match="other inputs: step 2, tensor 1"):
        compare_traces(a, written(tmp_path / "inputs", b))
    c = trace(1e-7, other=True)
    c.arrays[key("parameters", 0, "fc.bias")] += 1
    with pytest.raises(UserError, match=r"other initial weights: 1 of 4 differ, first fc.bias"):
        compare_traces(a, written(tmp_path / "weights", c))


def test_the_command_line_judges_traces(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    done = dualml("compare", *folders, "--json")
    assert done.returncode == 0, done.stderr
    assert strict(done.stdout)["verdict"] == "equal"
    wrong = written(tmp_path / "wrong", spoiled(off, "forward", 1, "norm"))
    done = dualml("compare", folders[0], wrong, "--lang", "zh")
    assert done.returncode == 3
    assert "不同" in done.stdout
    assert "LayerNorm" in done.stdout
    mapped = tmp_path / "map.toml"
    mapped.write_text('norm.weight = "norm.gamma"\n"fc.weight" = ["fc.weight", "transpose"]\n')
    assert dualml("compare", *folders, "--map", mapped).returncode == 0


@pytest.mark.parametrize(("words", "said"), [
    (("nowhere", "b"), "'nowhere' is neither"),
    (("a", "m.py:Net"), "a folder, the other is not"),
    (("a", "b", "--loss", "mse"), "--loss: of models; a and b are traces"),
    (("a", "b", "--map", "none.toml"), "none.toml: not a readable map"),
    (("x.py:A", "y.py:B"), "either --inputs FILE.npz or --shape 4,8"),
    (("x.py:A", "y.py:B", "--shape", "4,x"), "--shape takes lengths"),
    (("x.py:A", "y.py:B", "--inputs", "x.npz"), "x.npz: not a readable .npz"),
])  # fmt: skip
def test_words_that_cannot_be_meant(
    folders: tuple[Path, Path], words: tuple[str, ...], said: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    from dualml.cli import main

    monkeypatch.chdir(folders[0].parent)
    monkeypatch.setattr("sys.argv", ["dualml", "compare", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


# What is refused before anything starts.
class Net:
    """As a user's model stands in a file."""


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(("model", "said"), [
    (Net(), "torch_module is a live Net: each framework runs in a process of its own"),
    (lambda: Net(), "torch_module is a lambda"),
    (type("Inner", (), {"__qualname__": "f.<locals>.Inner"}), "inside a function"),
    ("models.py", "must read 'module:Name' or 'file.py:Name'"),
    ("gone.py:Net", "there is no file 'gone.py'"),
])  # fmt: skip
def test_a_model_that_another_process_cannot_build(model: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        subject(model, "torch_module")


def test_a_class_is_found_again_by_module_or_file() -> None:
    told = subject(Net, "torch_module")
    assert load(told).__name__ == "Net"
    again = load({**told, "module": "not_on_the_path"})
    assert again.__name__ == "Net"
    assert again is not Net
    with pytest.raises(UserError, match=r"has no 'Missing'; it has"):
        load({**told, "name": "Missing"})


def test_a_file_that_cannot_be_imported_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("import math\nimport not_there\n")
    with pytest.raises(UserError, match=r"ModuleNotFoundError: .*not_there.* \(model.py, line 2\)"):
        load(subject(f"{path}:Net", "torch_module"))


@pytest.fixture
def present(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both frameworks seem to be there; `json` is a module of every Python."""
    known = {n: BackendInfo(n, "json", f"pip install {n}", f"{n}_:X") for n in run.FRAMEWORKS}
    monkeypatch.setattr(run, "backends", lambda: known)


@pytest.mark.usefixtures("present")
@pytest.mark.parametrize(("options", "said"), [
    ({"steps": 0}, "steps and draws >= 1"),
    ({"steps": 2}, "steps=2 needs an optimizer"),
    ({"loss": "huber"}, "unknown loss 'huber'"),
    ({"loss": "mse"}, "loss 'mse' needs targets"),
    ({"loss": "cross_entropy", "targets": X}, "takes class numbers; targets are float32"),
    ({"loss": "mse", "targets": [1, 2]}, "targets of the outputs' shape"),
    ({"targets": [1, 2]}, "loss 'probe' takes no targets"),
    ({"loss": ("m:f",)}, r"loss must be a pair of functions of \(outputs, targets\)"),
    ({"optimizer": {"name": "adam"}}, "optimizer 'adam' needs lr"),
    ({"optimizer": {"name": "adma", "lr": 1}}, "did you mean 'adam'"),
    ({"optimizer": "adam"}, "a pair of functions of the list of parameters"),
    ({"inputs": {"x": X}}, "not a dict"),
    ({"inputs": ()}, "inputs: at least one array"),
    ({"inputs": np.array(["a"])}, "must hold numbers"),
    ({"inputs": object()}, "must be NumPy arrays"),
])  # fmt: skip
def test_arguments_that_cannot_be_meant(options: dict[str, Any], said: str) -> None:
    given = {"inputs": X, **options}
    with pytest.raises(UserError, match=said):
        compare(Net, Net, given.pop("inputs"), **given)


def test_a_missing_framework_is_said_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {n: BackendInfo(n, "no_such_" + n, f"pip install {n}", "") for n in run.FRAMEWORKS}
    monkeypatch.setattr(run, "backends", lambda: known)
    with pytest.raises(UserError, match=r"install no_such_torch .pip install torch. and no_such_"):
        compare(Net, Net, X)
    monkeypatch.setattr("dualml.testing.backends", lambda: known)
    with pytest.raises(unittest.SkipTest, match="no_such_torch is not installed"):
        assert_parity(Net, Net, X)


def test_a_worker_does_not_compare_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INSIDE, "1")
    with pytest.raises(UserError, match='put the call under if __name__ == "__main__"'):
        compare(Net, Net, X)


def test_the_two_languages_say_the_same() -> None:
    english, chinese = (phrases(lang, "models") for lang in ("en", "zh"))
    assert english.keys() == chinese.keys()
    for name, text in english.items():
        fields = {word.partition("}")[0] for word in text.split("{")[1:]}
        other = {word.partition("}")[0] for word in chinese[name].split("{")[1:]}
        assert {f.partition(":")[0] for f in fields} == {f.partition(":")[0] for f in other}, name
    assert set(ENTRIES) <= hints()


def test_the_package_offers_functions_not_modules() -> None:
    assert callable(parity.compare)
    assert digest(X) == digest(X.astype(np.float64))
    assert digest(X) != digest(X.reshape(3, 2))
    with pytest.raises(AttributeError):
        _ = parity.nothing
