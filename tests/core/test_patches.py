"""Patches: a cause and a port's source in, the source without the mistake out."""

from __future__ import annotations

import ast
import re
import subprocess
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from dualml.common.files import write_json
from dualml.common.words import Messages
from dualml.experiment.comparison import Note
from dualml.interface.cli.output import print_patch
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.weights.map_file import read_map_file
from dualml.parity.patches.candidates import ranked_texts
from dualml.parity.patches.copies import PatchedCopy, copy_root
from dualml.parity.patches.namespace import REQUIRED, Namespace
from dualml.parity.patches.result import add_patch
from dualml.parity.patches.rewriting import PatchSite
from dualml.parity.patches.roles import find_port, is_users, reverse_cause
from dualml.parity.patches.search import PatchSearch
from dualml.parity.patches.sentences import describe_patch
from dualml.parity.patches.source import (
    Edit,
    SourceFile,
    UnreadableSource,
    read_source,
    unified_diff,
)
from dualml.parity.patches.trials import Trials
from dualml.report.comparison_page import comparison_page
from dualml.report.page.html import render_html
from dualml.report.page.markdown import render_markdown

#: How many rewritings are tried at most until the right one comes.
TRIES = 8
NAMESPACE = Namespace(
    {
        "nn.LayerNorm": {"normalized_shape": REQUIRED, "epsilon": 1e-7},
        "nn.BatchNorm2d": {"num_features": REQUIRED, "eps": 1e-5, "momentum": 0.9},
        "nn.LeakyReLU": {"alpha": 0.2},
        "nn.GELU": {"approximate": True},
        "ops.softmax": {"input": REQUIRED, "axis": -1},
        "ops.var_mean": {"input": REQUIRED, "axis": None, "ddof": 0, "keepdims": False},
        "ops.gelu": {"input": REQUIRED, "approximate": "none"},
    },
    {
        "nn": ("BatchNorm2d", "Dense", "GELU", "LayerNorm", "LeakyReLU", "ReLU", "Sigmoid", "Tanh"),
        "ops": ("cat", "elu", "gelu", "matmul", "maximum", "minimum", "relu", "selu", "softmax",
                "stop_gradient", "tanh", "tril"),
    },
    frozenset(("astype", "mean", "reshape", "sum", "swapaxes", "transpose")),
)  # fmt: skip
TORCH = """import math
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        {built}

    def forward(self, x, mask):
        y = self.fc(x)
        {line}
        return z
"""
MINDSPORE = """import math
import mindspore as ms
from mindspore import nn, ops

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm((8,), epsilon=1e-5)
        {built}

    def construct(self, x, mask):
        y = self.fc(x)  # as there
        {line}
        return z
"""


@dataclass(frozen=True)
class Mistake:
    """A mistake of a port: its line, the original's, the cause that is found, and what is right."""

    original: str
    wrong: str
    right: str
    kind: str
    action: str
    operation: str = ""
    argument: Any = ""
    value: Any = None
    old: Any = None
    built: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)


MISTAKES = {
    "keyword": Mistake(
        "self.n2 = nn.LayerNorm(8, eps=1e-12)", "self.n2 = nn.LayerNorm((8,), epsilon=1e-5)",
        "self.n2 = nn.LayerNorm((8,), epsilon=1e-12)", "attribute", "set", "layer_norm", "eps",
        1e-5, 1e-12, built=True,
    ),
    "setting left out": Mistake(
        "self.act = nn.LeakyReLU(0.1)", "self.act = nn.LeakyReLU()",
        "self.act = nn.LeakyReLU(alpha=0.1)", "attribute", "set", "leaky_relu", "negative_slope",
        0.2, 0.1, built=True,
    ),
    "momentum counts the other share": Mistake(
        "self.bn = nn.BatchNorm2d(8, momentum=0.01)", "self.bn = nn.BatchNorm2d(8, momentum=0.9)",
        "self.bn = nn.BatchNorm2d(8, momentum=0.99)", "attribute", "set", "batch_norm", "momentum",
        0.1, 0.01, built=True,
    ),
    "word as a flag": Mistake(
        "self.act = nn.GELU()", "self.act = nn.GELU()", "self.act = nn.GELU(approximate=False)",
        "attribute", "set", "gelu", "approximate", "tanh", "none", built=True,
    ),
    "axis": Mistake(
        "z = torch.softmax(y, dim=-1)", "z = ops.softmax(y, axis=1)", "z = ops.softmax(y, axis=-1)",
        "attribute", "set", "softmax", "dim", 1, -1,
    ),
    "unbiased variance by position": Mistake(
        "z = y - y.mean(1, keepdim=True)", "z = ops.var_mean(y, 1, 1, True)[0]",
        "z = ops.var_mean(y, 1, 0, True)[0]", "attribute", "form", "mean", "unbiased", True, False,
    ),
    "unbiased variance by name": Mistake(
        "z = y - y.mean(1, keepdim=True)", "z = y.var(axis=1, ddof=1)",
        "z = y.var(axis=1, ddof=0)", "attribute", "form", "mean", "unbiased", True, False,
    ),
    "function": Mistake(
        "z = F.elu(y)", "z = ops.selu(y)", "z = ops.elu(y)", "function", "instead", "elu", "",
        ["selu"], "elu",
    ),
    "layer": Mistake(
        "self.act = nn.Tanh()", "self.act = nn.Sigmoid()", "self.act = nn.Tanh()", "function",
        "instead", "tanh", "", ["sigmoid"], "tanh", built=True,
    ),
    "operator": Mistake(
        "z = (mask < 3) * y", "z = (mask <= 3) * y", "z = (mask < 3) * y", "mask", "function", "lt",
        "", "le", "lt",
    ),
    "operand": Mistake(
        "z = y + x", "z = y + y", "z = y + x", "operand", "operand", "add", 1, "op:1", "input:0",
    ),
    "order of parts": Mistake(
        "z = torch.cat([x, y], 1)", "z = ops.cat([y, x], 1)", "z = ops.cat([x, y], 1)", "layout",
        "reorder", "cat", "", (1, 0),
    ),
    "axes": Mistake(
        "z = y.permute(0, 2, 1, 3)", "z = y.transpose(0, 3, 1, 2)", "z = y.transpose(0, 2, 1, 3)",
        "layout", "output", "permute", "", ["from_input", 0, 3, 1, 2],
    ),
    "reversed by a slice": Mistake(
        "z = self.fc(x)", "z = self.fc(x[:, ::-1])", "z = self.fc(x)", "layout", "input", "linear",
        0, ["flip", 1],
    ),
    "transpose left out": Mistake(
        "z = y.transpose(1, 2).reshape(4, 8)", "z = y.reshape(4, 8)",
        "z = y.swapaxes(1, 2).reshape(4, 8)", "layout", "input", "reshape", 0, ["swap", 1, 2],
    ),
    "order of calls": Mistake(
        "z = self.norm(F.relu(y))", "z = ops.relu(self.norm(y))", "z = self.norm(ops.relu(y))",
        "order", "swap", "relu", 0, 1,
    ),
    "norm before the residual": Mistake(
        "z = forward(x)", "z = x + self.fc(self.norm(x))", "z = self.norm(x + self.fc(x))",
        "order", "swap", "layer_norm", 0, 1,
    ),
    "norm behind the residual": Mistake(
        "z = forward(x)", "z = self.norm(x + self.fc(x))", "z = x + self.fc(self.norm(x))",
        "order", "swap", "layer_norm", 0, 1,
    ),
    "constant": Mistake(
        "z = y / math.sqrt(64)", "z = y / math.sqrt(8)", "z = y / math.sqrt(64)", "constant",
        "output", "div", "", ["scale", 2.828427],
    ),
    "factor left out": Mistake(
        "z = self.fc(x) * 8", "z = self.fc(x)", "z = self.fc(x) * 8", "constant", "output", "mul",
        "", ["scale", 0.125],
    ),
    "number in a formula": Mistake(
        "z = 0.5 * y", "z = 0.25 * y", "z = 0.5 * y", "constant", "set", "mul", "other", 0.25, 0.5,
    ),
    "term left out": Mistake(
        "z = y + self.norm(x)", "z = y", "z = y + self.norm(x)", "missing", "drop", "add", 0,
    ),
    "activation left out": Mistake(
        "z = F.relu(self.norm(y))", "z = self.norm(y)", "z = ops.relu(self.norm(y))", "missing",
        "drop", "relu", 0,
    ),
    "term too many": Mistake(
        "z = self.norm(y)", "z = ops.tanh(self.norm(y))", "z = self.norm(y)", "extra", "output",
        "layer_norm", "", ["tanh"],
    ),
    "mask": Mistake(
        "z = y * torch.tril(mask)", "z = y * ops.tril(mask, 1)", "z = y * ops.tril(mask)", "mask",
        "set", "tril", "diagonal", 1, 0,
    ),
    "dtype": Mistake(
        "z = torch.matmul(y, x)",
        "z = ops.matmul(y.astype(ms.float16), x.astype(ms.float16)).astype(ms.float32)",
        "z = ops.matmul(y, x)", "dtype", "lower", "matmul", "", "float16",
    ),
    "gradient stopped": Mistake(
        "z = y + self.norm(x)", "z = y + ops.stop_gradient(self.norm(x))", "z = y + self.norm(x)",
        "gradient", "detach", "layer_norm", "",
    ),
    "gradient not stopped": Mistake(
        "z = y + x.detach()", "z = y + x", "z = y + ops.stop_gradient(x)", "gradient", "detach",
        "add", 1,
    ),
    "not trained": Mistake(
        "self.w = nn.Parameter(torch.ones(8))",
        "self.w = ms.Parameter(ops.ones(8), requires_grad=False)",
        "self.w = ms.Parameter(ops.ones(8))", "parameters", "freeze", "", "", ["w"], built=True,
    ),
}  # fmt: skip


def site_of(mistake: Mistake) -> PatchSite:
    """Return the place of a mistake in a port that is like the original otherwise."""
    spare = "self.fc = nn.Identity()"
    keys = ("built", "line") if mistake.built else ("line", "built")
    other = "z = self.norm(y)" if mistake.built else spare
    texts = [
        template.format(**dict(zip(keys, (line, other), strict=True)))
        for template, line in ((TORCH, mistake.original), (MINDSPORE, mistake.wrong))
    ]
    lines = [
        1 + next(n for n, row in enumerate(text.splitlines()) if row.strip() == line)
        for text, line in zip(texts, (mistake.original, mistake.wrong), strict=True)
    ]
    change = {
        name: getattr(mistake, name)
        for name in ("kind", "action", "operation", "argument", "value", "old")
    }
    return PatchSite(
        SourceFile(Path("port.py"), texts[1]),
        NAMESPACE,
        {**change, "names": {}, "line": "", "sites": [1]},
        (lines[1],),
        mistake.wrong.partition("= ")[2],
        SourceFile(Path("net.py"), texts[0]),
        (lines[0],),
        mistake.original.partition("= ")[2],
    )


@pytest.mark.parametrize("name", MISTAKES)
def test_the_inverse_of_a_cause_is_among_the_first_rewritings(name: str) -> None:
    mistake = MISTAKES[name]
    site = site_of(mistake)
    wanted = site.port.text.replace(mistake.wrong, mistake.right)
    assert wanted != site.port.text
    assert wanted in ranked_texts(site, [site.change])[:TRIES]


def test_a_cause_without_an_operation_has_rewritings_too() -> None:
    mistake = MISTAKES["term left out"]
    site = site_of(Mistake(mistake.original, mistake.wrong, "", "missing", "drop"))
    assert ranked_texts(site, [site.change])


def test_rewritings_leave_all_other_text_as_it_is() -> None:
    site = site_of(MISTAKES["axis"])
    for text in ranked_texts(site, [site.change]):
        assert "# as there" in text
        ast.parse(text)


def test_rewritings_use_no_names_that_the_port_lacks() -> None:
    mistake = MISTAKES["term left out"]
    original = mistake.original.replace("self.norm(x)", "self.missing(x)")
    site = site_of(Mistake(original, mistake.wrong, "", "missing", "drop", "add", 0))
    assert not [text for text in ranked_texts(site, [site.change]) if "missing" in text]


def test_files_keep_their_line_ends_and_their_encoding(tmp_path: Path) -> None:
    file = tmp_path / "port.py"
    data = "# -*- coding: gbk -*-\r\nx = '轴'  # 注释\r\ny = 1".encode("gbk")
    file.write_bytes(data)
    source = read_source(file)
    assert source.text.encode(source.encoding) == data
    last = source.tree.body[-1]
    assert isinstance(last, ast.Assign)
    assert source.segment(source.tree.body[0]) == "x = '轴'"
    changed = source.apply([source.replace(last.value, "2")])
    assert changed.encode(source.encoding) == data[:-1] + b"2"
    diff = unified_diff(file, source.text, changed, tmp_path)
    assert diff.count("\\ No newline at end of file") == 2


@pytest.mark.parametrize("inside", [True, False], ids=["in the working folder", "elsewhere"])
def test_a_patch_is_applied_where_it_says(
    inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, package = tmp_path / "here", tmp_path / "here" / "ports" / "net"
    package.mkdir(parents=True)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(here if inside else tmp_path / "other")
    texts = {package / "model.py": "x = 1\ny = 2\n", package.parent / "layers.py": "z = 3"}
    for path, text in texts.items():
        path.write_text(text)
    search = PatchSearch(cast(Trials, ScriptedTrials(here, package / "model.py", {})), 0.0)
    search.originals = {path: read_source(path) for path in texts}
    search.current = {
        path: one.with_text(one.text.replace("x = 1", "x = 4").replace("z = 3", "z = 5"))
        for path, one in search.originals.items()
    }
    found = search.describe()
    folder = Path(found["folder"] or Path.cwd())
    assert folder == (here if inside else package.parent)
    assert str(tmp_path) not in found["diff"]
    said = " ".join(describe_patch("en", {**found, "verdict": "equal"}, "mindspore"))
    assert (str(folder) in said) != inside
    (here / "the.patch").write_text(found["diff"])
    done = subprocess.run(["git", "apply", str(here / "the.patch")], cwd=folder, check=False)
    assert done.returncode == 0
    assert (package / "model.py").read_text() == "x = 4\ny = 2\n"
    assert (package.parent / "layers.py").read_text() == "z = 5"


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(("verdict", "key"), [("equal", "proved"), ("different", "partial")])
def test_pages_of_a_comparison_fold_the_patch(verdict: str, key: str, lang: str) -> None:
    diff = "--- a/port.py\n+++ b/port.py\n@@ -1 +1 @@\n-x = f(y, 0)\n+x = f(y, -1)\n"
    row = {"verdict": verdict, "reason": "", "file": "", "diff": diff, "folder": "/ports"}
    patch = {**row, "map": "", "tried": 2, "left": None}
    if verdict != "equal":
        patch["reason"] = "none"
    words = Messages(lang)
    page = comparison_page(replace(judged("different"), patch=patch), words, drawn=False)
    html, text = render_html(page), render_markdown(page)
    summary = words(f"models.patch.{key}")
    assert f"<summary>{summary}</summary>" in html
    assert "f(y, -1)" in re.sub("<[^>]*>", "", html)
    assert summary in text
    assert f"```diff\n{diff}```" in text
    assert "/ports" in text
    without = comparison_page(judged("different"), words, drawn=False)
    assert summary not in render_markdown(without)


def test_a_printed_patch_keeps_line_ends_and_escapes_all_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_patch("-a\r\n+b\x1b[31m\r\n")
    out = capsys.readouterr().out
    assert out.startswith("-a\r\n+b")
    assert out.endswith("\r\n")
    assert "\x1b" not in out


def test_edits_that_overlap_are_refused() -> None:
    source = SourceFile(Path("a.py"), "x = f(1)\n")
    with pytest.raises(ValueError, match="overlap"):
        source.apply([Edit(4, 8, "2"), Edit(6, 7, "3")])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = (\n", "unparsable"),
        ("# Generated by the converter. DO NOT EDIT.\nx = 1\n", "generated"),
        ("x = '\x00'\n", "unparsable"),
    ],
)
def test_files_that_cannot_be_patched_are_named(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "port.py"
    file.write_text(text)
    with pytest.raises(UnreadableSource, match=reason):
        read_source(file)
    with pytest.raises(UnreadableSource, match="unreadable"):
        read_source(tmp_path / "nothing.py")


def test_copies_have_the_layout_of_the_original_and_leave_it_alone(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "nets" / "blocks"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
        (folder / "__pycache__").mkdir()
    file, neighbour = package / "net.py", package.parent / "common.py"
    file.write_text("x = 1\n")
    neighbour.write_text("y = 1\n")
    file.chmod(0o444)
    assert copy_root(file) == package.parent.parent
    copy = PatchedCopy(tmp_path / "copy", {file: b"x = 2\n"})
    place = copy.locate(str(file))
    assert place is not None
    assert Path(place).read_text() == "x = 2\n"
    assert (Path(place).parents[1] / "common.py").read_text() == "y = 1\n"
    assert not list((tmp_path / "copy").rglob("__pycache__"))
    assert file.read_text() == "x = 1\n"
    assert copy.locate("/elsewhere/net.py") == "/elsewhere/net.py"
    spec = {"module": "net", "file": str(file), "name": "Net"}
    job = {"path": [str(tmp_path / "lib")], "sides": {"b": {"model": spec, "loss": "mse"}}}
    adapted = copy.adapt_job(job, "b")
    assert adapted["sides"]["b"]["model"]["file"] == place
    assert adapted["path"][0] == str(copy.roots[tmp_path / "lib"])


def judged(verdict: str, *notes: str, explanation: Any = None) -> ModelComparison:
    """Return a comparison with a verdict and notes with these keys."""
    return ModelComparison(
        sides=("torch", "mindspore"),
        verdict=verdict,
        reason="no_steps",
        margin=10.0,
        tolerance="measured",
        notes=tuple(Note(key, {"pairs": "", "names": "", "change": ""}) for key in notes),
        explanation=explanation,
    )


def test_where_pairs_of_weights_were_wrong_the_patch_is_the_map(tmp_path: Path) -> None:
    after = {"a.weight": "x.weight", "b.weight": "y.weight", "c": ["z", "transpose"]}
    write_json(tmp_path / "job.json", {"map": after})
    job = {"map": {"c": ("z", "transpose")}}
    found = add_patch(tmp_path, job, (), judged("equal", "exchanged"))
    assert found.patch is not None
    file = tmp_path / "map.toml"
    file.write_text(found.patch["map"])
    assert read_map_file(file) == {"a.weight": "x.weight", "b.weight": "y.weight"}
    assert "--map" in found.paragraph()


@pytest.mark.parametrize(
    ("verdict", "explanation", "reason"),
    [
        ("equal", None, "not_needed"),
        ("not comparable", None, "no_causes"),
        ("different", None, "no_causes"),
        ("different", {"causes": [], "equal": False, "tried": [1, 1]}, "no_causes"),
    ],
)
def test_why_there_is_no_patch(verdict: str, explanation: Any, reason: str, tmp_path: Path) -> None:
    found = add_patch(tmp_path, {"map": {}}, (), judged(verdict, explanation=explanation))
    assert found.patch is not None
    assert found.patch["reason"] == reason
    assert found.describe()["patch"]["verdict"] == "none"
    assert "patch" not in judged(verdict).describe()


class ScriptedTrials:
    """Trials whose comparisons are decided by the patched texts."""

    width, port = 2, "b"

    def __init__(self, folder: Path, port: Path, verdicts: dict[str, ModelComparison]) -> None:
        spec = {"module": "port", "file": str(port), "name": "Net"}
        self.folder, self.verdicts, self.count = folder, verdicts, 0
        self.job = {"sides": {"a": {"model": {}}, "b": {"model": spec, "optimizer": None}}}

    def compare_all(self, several: list[dict[Path, bytes]]) -> list[Any]:
        """Return for each patch the comparison of the first of the texts that it has."""
        self.count += len(several)
        texts = [next(iter(one.values())).decode() for one in several]
        return [
            (
                self.folder / str(number),
                next((v for k, v in self.verdicts.items() if k in text), None),
            )
            for number, text in enumerate(texts)
        ]

    def discard(self, folder: Path) -> None:
        """Delete nothing: there are no folders."""

    def explain(self, folder: Path, seconds: float) -> None:
        """Find no further cause."""


@pytest.mark.parametrize(
    ("explained", "lost", "kept"),
    [(True, 1, False), (False, 1, True), (False, 9, False)],
    ids=["must be equal", "closer", "later by chance"],
)
def test_a_rewriting_is_kept_only_if_it_undoes_the_cause(
    explained: bool, lost: int, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake = MISTAKES["axis"]
    site = site_of(mistake)
    port = tmp_path / "port.py"
    port.write_text(site.port.text)
    place = {"file": str(port), "line": site.lines[0], "code": site.code}
    cause = {"alterations": [site.change], "place": None, "other": {"place": place}}
    explanation = {"causes": [cause], "equal": explained}
    before = replace(judged("different", explanation=explanation), reach=(3, 3), lost=9)
    after = replace(judged("different"), reach=(5, 5), lost=lost)
    trials = ScriptedTrials(tmp_path, port, {"axis=-1": after})
    search = PatchSearch(cast(Trials, trials), time.monotonic() + 60)
    monkeypatch.setattr(search, "namespaces", lambda files: {port: NAMESPACE})
    search.undo_causes(before)
    assert bool(search.describe()["diff"]) == kept
    trials.verdicts = {"axis=-1": judged("equal")}
    search.current.clear()
    search.undo_causes(before)
    assert search.describe()["verdict"] == "equal"
    assert port.read_text() == site.port.text


@pytest.mark.parametrize(
    ("files", "port"),
    [
        (("net.py", "port.py"), "b"),
        (("port.py", "venv/lib/site-packages/net.py"), "a"),
        (("venv/lib/site-packages/net.py", "port.py"), "b"),
        (("venv/lib/site-packages/a.py", "venv/lib/site-packages/b.py"), "b"),
    ],
)
def test_the_port_is_the_side_whose_source_is_the_users(
    files: tuple[str, str], port: str, tmp_path: Path
) -> None:
    sides = {
        letter: {"model": {"module": "net", "file": str(tmp_path / file), "name": "Net"}}
        for letter, file in zip("ab", files, strict=True)
    }
    assert find_port({"sides": sides}) == port


def test_an_installed_module_is_not_the_users() -> None:
    assert not is_users({"module": "numpy", "file": None, "name": "array"})
    assert not is_users({"module": "there.is_none", "file": None, "name": "Net"})


def test_a_cause_is_reversed_where_the_port_is_the_first_side() -> None:
    setting = {"action": "set", "value": 1e-3, "old": 1e-5, "operation": "layer_norm"}
    function = {"action": "function", "value": "gelu", "old": None, "operation": "relu"}
    cause = {"alterations": [setting, function], "place": {"name": "x"}, "other": None}
    found = reverse_cause(cause)
    assert (found["place"], found["other"]) == (None, {"name": "x"})
    assert (found["alterations"][0]["value"], found["alterations"][0]["old"]) == (1e-5, 1e-3)
    assert (found["alterations"][1]["value"], found["alterations"][1]["operation"]) == (
        "relu",
        "gelu",
    )
    assert reverse_cause(found) == cause


def test_the_text_names_both_files_where_the_first_side_is_patched() -> None:
    row = {"verdict": "equal", "reason": "", "file": "", "diff": "x", "folder": "", "map": ""}
    first = {"side": "torch A", "port": "mine.py", "original": "theirs.py"}
    said = " ".join(describe_patch("en", {**row, "tried": 1, "left": None, **first}, "torch B"))
    assert "torch A" in said
    assert "torch B" not in said
    assert said.index("mine.py") < said.index("theirs.py")
