"""The page with which a comparison answers: its size, its parts and their order, in both languages,
and the sentences about causes on it. No framework is needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from model_traces import scale_slightly, spoiled, trace

from dualml.common.text_width import display_width
from dualml.common.words import LANGUAGES
from dualml.experiment.comparison import FirstDivergence, Note
from dualml.interface.cli.answer_terminal import print_page
from dualml.parity.models.answer_page import PAGE_COLUMNS, PAGE_LINES, make_page
from dualml.parity.models.answer_parts import collect_parts
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.judge import judge_traces
from dualml.parity.models.messages import format_message
from dualml.parity.models.mutation_sentences import describe_mutation
from dualml.parity.models.number_text import format_number, format_order
from dualml.parity.models.phrases import CausePlace, describe_order

TORCH = """from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        x = self.norm(x)
        return x
"""
PORT = TORCH.replace("torch", "mindspore").replace("LayerNorm(4)", "LayerNorm((4,))")
PATCH = [
    "Equal with this patch.",
    "--- port.py",
    "+++ port.py",
    "@@ -7 +7 @@",
    "-        self.norm = nn.LayerNorm((4,))",
    "+        self.norm = nn.LayerNorm((4,), epsilon=1e-5)",
]


def operation(file: Path, name: str, inputs: tuple[str, ...], **attributes: Any) -> dict[str, Any]:
    place = {"file": str(file), "line": 10, "code": "self.norm(x)"}
    return {
        "number": 3,
        "name": name,
        "inputs": inputs,
        "attributes": attributes,
        "outputs": [[2, 4]],
        "place": place,
        "module": "norm",
        "built": {**place, "line": 7, "code": "nn.LayerNorm(4)"},
    }


def mutation(action: str = "set", **given: Any) -> dict[str, Any]:
    return {
        "kind": "attribute",
        "action": action,
        "sites": [3],
        "operation": "layer_norm",
        "argument": "eps",
        "value": 1e-7,
        "old": 1e-5,
        "line": "",
        "names": {},
        **given,
    }


@pytest.fixture
def explained(tmp_path: Path) -> ModelComparison:
    """Return a difference with one cause and five ties."""
    files = [tmp_path / name for name in ("net.py", "port.py")]
    for file, text in zip(files, (TORCH, PORT), strict=True):
        file.write_text(text)
    ours = operation(files[0], "layer_norm", ("op:2", "parameter:norm.weight"), eps=1e-5)
    theirs = operation(files[1], "LayerNorm", ("op:5", "parameter:norm.gamma"))
    ties = [
        mutation("output", kind="constant", argument="", value=("scale", float(n)))
        for n in (2, 3, 5, 7, 11)
    ]
    cause = {"alterations": [mutation(), *ties], "place": ours, "other": theirs}
    elements = tuple({"index": [0, n], "torch": 1.5, "mindspore": 2.5} for n in range(4))
    first = FirstDivergence(
        1, "forward", "norm", 3.8e-5, 1.3e-6, layer="norm", type="LayerNorm", elements=elements
    )
    worst = {"arrays": 3, "step": 1, "tensor": "norm", "distance": 3.8e-5, "envelope": 1.3e-6}
    return ModelComparison(
        sides=("torch", "mindspore"),
        verdict="different",
        reason="outside_envelope",
        margin=10.0,
        tolerance="measured",
        steps=3,
        first=first,
        phases={"forward": {**worst, "ratio": 29.2}, "loss": {**worst, "ratio": 23456.0}},
        notes=(Note("left", {"side": "torch", "names": "mask"}),),
        explanation={
            "causes": [cause],
            "equal": True,
            "enough": True,
            "tried": [9, 1],
            "late": False,
            "evidence": [],
            "place": None,
            "other": None,
        },
    )


def fits(comparison: ModelComparison, lang: str, **given: Any) -> list[str]:
    """Return the lines of the page after checking its size."""
    lines = [line.text for line in make_page(comparison.answer(lang), lang, **given)]
    assert 0 < len(lines) <= PAGE_LINES
    assert max(map(display_width, lines)) <= given.get("width", PAGE_COLUMNS)
    return lines


def test_the_parts_stand_in_order(explained: ModelComparison) -> None:
    lines = fits(explained, "en")
    text = "\n".join(lines)
    assert lines[0] == "different: first at step 1, forward, layer norm (LayerNorm), tensor norm."
    parts = [
        "torch: layer_norm, net.py line 10",
        " >  7        self.norm = nn.LayerNorm(4)",
        " > 10        x = self.norm(x)",
        "mindspore: LayerNorm, port.py line 10",
        " >  7        self.norm = nn.LayerNorm((4,))",
        "numbers  3.8e-05 apart (relative): 29.2 times the 1.3e-06 of rounding",
        "for example [0, 0] torch 1.5, mindspore 2.5",
        "phases   forward 29.2, loss 2.3e+04 × rounding",
        "cause    `eps` of `norm` (layer_norm) is 1e-07 in mindspore, 1e-05 in torch.",
        "Tested: with this change, the two sides are equal in all 3 recorded steps.",
        "open     Explains it equally well: mindspore multiplies",
        "and 2 more.",
        "Buffers that only torch has were not compared: mask.",
        "more     `dualml diffs layernorm-eps`",
    ]
    places = [text.find(part) for part in parts]
    assert -1 not in places, text
    assert places == sorted(places), text


def test_it_is_in_chinese_as_well(explained: ModelComparison) -> None:
    lines = fits(explained, "zh")
    assert lines[0].startswith("不同：最先出现在第 1 步，前向，层 norm")
    text = "\n".join(lines)
    for part in (
        "原因  `norm` (layer_norm) 的 `eps` 在 mindspore 中为 1e-07，在 torch 中为 1e-05。",
        "经检验：这样改后，两侧在全部 3 个记录步中相等。",
        "未定  同样能解释：",
        "另有 2 种。",
        "详见  `dualml diffs layernorm-eps`",
    ):
        assert part in text
    assert not any(word in text for word in ("cause ", "open ", "Tested"))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_causes_of_two_traces_are_causes(explained: ModelComparison, lang: str) -> None:
    scale = {"suspect": "b", "reference": "a", "n": 2, "factor": "2"}
    notes = (
        Note("ranks_summed_over_ranks", scale),
        Note("ranks_tested", {"n": 9, "all": 9, "step": 1}),
        Note("ranks_copies", {"side": "b", "step": 1, "tensor": "w", "rank": 1, "distance": "1"}),
        Note("interleaved", {"names": "q", "change": "x"}),
    )
    parts = collect_parts(replace(explained, explanation=None, notes=notes).answer(lang), lang)
    assert [label for label, _ in parts.causes] == ["cause", "", "then"]
    likely = format_message(lang, "page.likely")
    whole = format_message(lang, "note.ranks_summed_over_ranks", **scale)
    assert whole.startswith(likely)
    assert parts.causes[0][1] == whole.removeprefix(likely)
    assert len(parts.notes) == 1
    lines = fits(replace(explained, explanation=None, notes=notes), lang)
    label = format_message(lang, "page.cause")
    assert any(line.startswith(label) for line in lines)
    assert not any(likely in line for line in lines)


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(
    ("action", "value", "said"),
    [
        ("input", ("rearrange", 1, 0), '"norm.weight" = ["norm.gamma", "transpose"]'),
        ("input", ("chunks", 0, 1, 0), '"norm.weight[0]" = "norm.gamma[1]"'),
        ("input", ("chunks", 1, 1, 0), ""),
        ("input", ("flip", 0), ""),
        ("output", ("chunks", 1, 1, 0), '"norm.weight[1]" = "norm.gamma[0]"'),
        ("output", ("chunks", 0, 1, 0), ""),
    ],
)
def test_where_weights_are_at_fault_the_map_is_said(
    explained: ModelComparison, action: str, value: Any, said: str, lang: str
) -> None:
    at = 1 if action == "input" else ""
    change = mutation(action, kind="layout", operation="linear", argument=at, value=value, old=None)
    explanation: Any = explained.explanation
    cause = {**explanation["causes"][0], "alterations": [change]}
    pair = {"a": "norm.weight", "b": "norm.gamma", "how": "name", "change": ""}
    found = replace(explained, explanation={**explanation, "causes": [cause]}, mapping=(pair,))
    open_texts = " ".join(collect_parts(found.answer(lang), lang).open)
    assert ("--map" in open_texts) == bool(said)
    assert said in open_texts


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_patch_stands_between_the_cause_and_what_is_open(
    explained: ModelComparison, lang: str, width: int
) -> None:
    lines = fits(explained, lang, patch=PATCH, width=width)
    at = next(n for n, line in enumerate(lines) if line.endswith(PATCH[0]))
    assert [line[:20] for line in lines[at + 1 : at + 6]] == [line[:20] for line in PATCH[1:]]
    before, after = "\n".join(lines[:at]), "\n".join(lines[at:])
    assert ("经检验" if lang == "zh" else "Tested") in before
    assert ("同样" if lang == "zh" else "equally") in after


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_found_patch_is_on_the_page_and_whole_below_it(
    explained: ModelComparison, lang: str, capsys: pytest.CaptureFixture[str]
) -> None:
    diff = "\n".join([*PATCH[1:], *(f"+line {n}" for n in range(40)), ""])
    patch = {"verdict": "equal", "diff": diff, "map": "", "tried": 3, "left": None}
    patched = replace(explained, patch={**patch, "reason": "", "file": "net_ms.py"})
    assert PATCH[1] in patched.page(lang)
    assert len(patched.page(lang).splitlines()) <= PAGE_LINES
    print_page(patched, lang)
    page, _, below = capsys.readouterr().out.partition(PATCH[1])
    assert PATCH[1] + below == diff
    assert ("应用此补丁后两侧相等" if lang == "zh" else "Equal with this patch") in page


@pytest.mark.parametrize("lang", LANGUAGES)
def test_much_is_cut_to_one_page(explained: ModelComparison, lang: str) -> None:
    explanation = dict(explained.explanation or {})
    notes = tuple(Note("left", {"side": "torch", "names": "buffer, " * 40}) for _ in range(30))
    causes = [*explanation["causes"]] * 3
    long = replace(explained, notes=notes, explanation={**explanation, "causes": causes})
    lines = fits(long, lang, patch=[*PATCH, *(f"+line {n}" for n in range(40))])
    assert lines[0].startswith(("different", "不同"))
    assert any("layer_norm" in line for line in lines)
    assert any(line.startswith(("then", "其次")) for line in lines)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_long_patch_loses_its_unchanged_lines_first(
    explained: ModelComparison, lang: str
) -> None:
    unchanged = [f"     line {n}" for n in range(20)]
    lines = fits(explained, lang, patch=[*PATCH[:4], *unchanged, *PATCH[4:]])
    at = lines.index(PATCH[1])
    assert lines[at : at + 4] == [*PATCH[1:3], *PATCH[4:]]
    assert not {*unchanged, PATCH[3]} & {*lines}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_changed_file_gives_the_recorded_code(explained: ModelComparison, lang: str) -> None:
    place = (explained.explanation or {})["causes"][0]["place"]["place"]
    Path(place["file"]).write_text("# nothing of it is left\n")
    text = "\n".join(fits(explained, lang))
    assert " > 10  self.norm(x)" in text
    Path(place["file"]).unlink()
    assert "\n".join(fits(explained, lang)) == text


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(
    "other", [trace(1e-7, other=True), spoiled(scale_slightly, "forward", 1, "fc")]
)
def test_other_verdicts_have_a_page(other: Any, lang: str) -> None:
    comparison = judge_traces(trace(), other)
    lines = fits(comparison, lang)
    first = comparison.paragraph(lang).replace(" ", "")
    assert first.startswith(lines[0].replace(" ", ""))
    silent = replace(
        comparison,
        verdict="not comparable",
        reason="both_raised",
        first=None,
        notes=tuple(Note("raised", {"side": s, "text": "ValueError: x"}) for s in "ab"),
    )
    assert "ValueError" in fits(silent, lang)[0]


def test_a_notebook_shows_the_same_block(explained: ModelComparison) -> None:
    shown = explained._repr_markdown_()
    assert shown == f"```text\n{explained.page()}\n```"
    assert explained.paragraph() not in shown


def test_only_a_terminal_gets_styles(
    explained: ModelComparison, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    print_page(explained, "en")
    plain = capsys.readouterr().out
    assert "\x1b" not in plain
    assert "--verbose prints everything" in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_page(explained, "en")
    assert "\x1b[1;31mdifferent" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    print_page(explained, "en")
    assert capsys.readouterr().out == plain


LINEAR = {
    "number": 3,
    "name": "linear",
    "inputs": ("op:1", "parameter:gate.weight"),
    "attributes": {},
    "outputs": [[2, 4]],
    "module": "gate",
    "place": None,
}
DIVISION = {**LINEAR, "name": "div", "inputs": ("op:1",), "attributes": {"other": 4.0}}


@pytest.mark.parametrize(
    ("given", "call", "said"),
    [
        (
            mutation("input", kind="layout", operation="linear", argument=1,
                     value=("rearrange", 1, 0)),
            LINEAR,
            "`gate` (linear) is multiplied without transposing its weight in mindspore: `x @ W`, "
            "where torch computes `x @ Wᵀ`",
        ),
        (
            mutation("output", kind="constant", operation="div", value=("scale", 0.5)),
            DIVISION,
            "mindspore divides by 8 = √64, torch by 4 = √16",
        ),
        (
            mutation("output", kind="constant", operation="mean", value=("scale", 32 / 31)),
            None,
            "mindspore multiplies the result of `mean` by 1.03226 = 32/31",
        ),
        (
            mutation("drop", kind="missing", operation="relu", argument=0, value=None),
            None,
            "mindspore leaves out `relu`",
        ),
        (
            mutation("exchange", kind="operand", operation="sub", argument="", value=(0, 1)),
            None,
            "mindspore exchanges the first operand and the second operand of `-`",
        ),
        (
            mutation(operation="batch_norm", argument="momentum", value=0.9, old=0.1),
            None,
            "mindspore gives the new value the weight 0.9 in the running statistics of "
            "`batch_norm`, torch 0.1 (PyTorch's `momentum` weighs the new value, MindSpore's the "
            "old one)",
        ),
        (
            mutation("form", argument="eps_outside", value=True),
            None,
            "mindspore adds eps outside the root in `layer_norm`, `sqrt(x) + eps`; torch inside, "
            "`sqrt(x + eps)`",
        ),
        (
            mutation("index", kind="operand", operation="__getitem__", argument=0, value=(1, None),
                     old="::"),
            None,
            "mindspore takes `[1:]`, torch takes `[::]` (index number 1)",
        ),
        (
            mutation("optimizer", operation="0.001", argument="weight_decay", value=0.0,
                     old=("bn.weight",), sites=()),
            None,
            "`weight_decay` of the optimizer is 0 in mindspore for bn.weight, 0.001 in torch",
        ),
        (
            mutation("operand", kind="operand", operation="add", argument=1, value="op:7",
                     old="op:2", names={"op:7": "`x`"}),
            None,
            "mindspore uses `x` in `+` where torch uses another value",
        ),
        (
            mutation("rename", kind="missing", operation="mul", argument="", value="op:7",
                     old="op:8", names={"op:7": "`w`", "op:8": "`w / w.sum()`"}),
            None,
            "mindspore leaves out `w / w.sum()`: in `*` it uses `w` instead",
        ),
        (
            mutation("by_value", kind="operand", operation="mul", argument="other", value="op:7",
                     old=3.0, names={"op:7": "`y`"}),
            None,
            "mindspore multiplies by `y` where torch multiplies by the number 3",
        ),
        (
            mutation("lower_span", kind="dtype", operation="", argument="`cos`, `sin`",
                     value="float16", old=None),
            None,
            "mindspore computes all of `cos`, `sin` in float16, torch in higher precision",
        ),
        (
            mutation("addend", kind="extra", operation="softmax", argument=0,
                     value="parameter:bias.weight", old=("op:3", (2, 0, 1)),
                     names={"parameter:bias.weight": "`bias.weight`"}),
            None,
            "mindspore also adds a bias from `bias.weight`, looked up by position or index, to "
            "input 1 of `softmax`; torch does not",
        ),
        (
            mutation("resample", kind="attribute", operation="interpolate", argument="",
                     value="rounded", old=None),
            None,
            "mindspore rounds to the nearest input pixel in `interpolate`, torch takes the one "
            "below (`mode=\"nearest\"`)",
        ),
    ],
)  # fmt: skip
def test_a_cause_is_said_as_to_a_colleague(
    given: dict[str, Any], call: dict[str, Any] | None, said: str
) -> None:
    place = CausePlace(("torch", "mindspore"), call)
    assert describe_mutation("en", given, place) == said
    chinese = describe_mutation("zh", given, place)
    assert "mindspore" in chinese
    assert "{" not in chinese
    assert describe_mutation("en", given).replace("the port", "mindspore") != said or call is None


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.1767766953, "0.176777 = 1/√32"),
        (5.656854249, "5.65685 = √32"),
        (0.125, "0.125 = 1/8"),
        (0.5, "0.5"),
        (3.0000001, "3"),
        (-1.0, "-1"),
        (1e-5, "1e-05"),
        (31 / 32, "0.96875 = 31/32"),
        (0.123456, "0.123456"),
        (123456.0, "123456"),
    ],
)
def test_numbers_are_recognised(number: float, text: str) -> None:
    assert format_number(number) == text


def test_orders_are_short() -> None:
    assert format_order([*range(8, 16), *range(8)]) == "8…15, 0…7"
    assert format_order([0, 2, 4, 6, 1, 3, 5, 7]) == "0, 2, …, 6, 1, 3, …, 7"
    assert format_order([2, 0, 1]) == "2, 0, 1"


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        (("take", 1, 0, 2, 1, 3), "halves interleaved"),
        (("arrange", 0, 4, 1, 5, 2, 6, 3, 7), "halves interleaved"),
        (("arrange", 0, 2, 4, 1, 3, 5), "halves interleaved"),
        (("arrange", 0, 3, 1, 2), "in another order"),
        (("regroup", 2, 3, 3), "3, 3 parts along axis 2 grouped the other way round"),
    ],
)
def test_an_order_is_said_by_what_makes_it(transform: Any, said: str) -> None:
    assert said in describe_order("en", transform)
    assert describe_order("zh", transform)
