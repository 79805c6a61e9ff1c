"""`dualml plan` from the outside."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from command import DOCS, dualml, strict
from typer.main import get_command

from dualml.interface.cli import report_error
from dualml.interface.cli.app import app
from dualml.planning.planner.models import known_models
from dualml.planning.planner.published import runs

ASKED = ("plan", "gpt3-175b", "--devices", "1024", "--memory", "80GB", "--link", "400Gbit")
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def test_the_answer_in_words() -> None:
    done = dualml(*ASKED, env={"COLUMNS": "120"})
    assert done.returncode == 0, done.stderr
    told = strict(dualml(*ASKED, "--json").stdout)
    best = told["best"]
    mesh = f"dp {best['dp']} · pp {best['pp']} · tp {best['tp']}"
    assert f"Fastest: {mesh}, ZeRO-{best['zero']}, micro-batch {best['micro']}" in done.stdout
    assert f"{told['considered']:,} layouts; {told['fitting']:,} fit" in done.stdout
    assert "binds it" in done.stdout or "bind it" in done.stdout
    assert "beyond the limit" in done.stdout
    first = next(line for line in done.stdout.splitlines() if line.split()[:2] == ["dp", "pp"])
    rows = done.stdout.split(first)[1].splitlines()[1:9]
    assert [row.split()[0] for row in rows] == [str(p["dp"]) for p in told["plans"]]


def test_the_answer_as_json() -> None:
    told = strict(dualml(*ASKED, "--json", "--top", "3", "--batch", "1536").stdout)
    assert told["batch"] == 1536
    assert told["model"]["parameters"] == known_models()["gpt3-175b"][0].parameters
    assert told["cluster"]["between"]["beta_s_per_byte"] == pytest.approx(1 / 50e9)
    assert len(told["plans"]) == 3
    assert told["best"] == told["plans"][0]
    best = told["best"]
    assert best["dp"] * best["pp"] * best["tp"] * best["cp"] == 1024
    assert best["micro_batches"] * best["dp"] * best["micro"] == 1536
    assert sum(best["parts"].values()) == pytest.approx(best["seconds"])
    assert sum(best["memory"].values()) == pytest.approx(best["memory_bytes"])
    assert best["memory_bytes"] <= 80e9
    assert told["binding"] in {*told["bounds"], "products", "traffic"}
    assert all(p["memory_bytes"] <= 80e9 for p in told["plans"])
    assert any(not p["fits"] for p in told["front"])


def test_an_answer_in_chinese() -> None:
    done = dualml(*ASKED, "--lang", "zh")
    assert done.returncode == 0, done.stderr
    assert "最快：" in done.stdout
    assert "瓶颈" in done.stdout


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_page(tmp_path: Path, lang: str) -> None:
    path = tmp_path / "plan.html"
    done = dualml(*ASKED, "--page", path, "--lang", lang)
    assert done.returncode == 0, done.stderr
    assert f"→ {path}" in done.stdout
    page = path.read_text("utf-8")
    assert f'lang="{lang}' in page
    assert page.count("<svg") == 2
    assert 'id="figure-front"' in page
    assert 'id="figure-parts"' in page
    assert not re.search(r'(src|href)="(?!#)', page)  # it loads nothing
    assert bool(
        CHINESE.search(re.sub(r"<style.*?</style>|<script.*?</script>", "", page, flags=re.DOTALL))
    ) == (lang == "zh")


def test_uneven_stages_are_said() -> None:
    done = dualml(
        "plan",
        "llama3-405b",
        "--device",
        "h100",
        "--devices",
        "16",
        "--memory",
        "2TB",
        "--node",
        "1",
        "--batch",
        "16",
        "--pin",
        "pp=16",
    )
    assert done.returncode == 0, done.stderr
    assert "pp 16 does not divide 126 layers: stages have 8 or 7." in done.stdout


def test_what_has_a_name() -> None:
    done = dualml("plan")
    assert done.returncode == 0, done.stderr
    for name in (*known_models(), "a100", "h100", "v100"):
        assert name in done.stdout
    told = strict(dualml("plan", "--json").stdout)
    assert set(told["models"]) == set(known_models())
    assert all(model["source"] for model in told["models"].values())


def test_published_runs() -> None:
    told = strict(dualml("plan", "--published", "--json").stdout)
    assert len(told["runs"]) == len(runs())
    assert told["errors"]["held_out"]["median"] < 0.05
    done = dualml("plan", "--published", "--lang", "zh", env={"COLUMNS": "160"})
    assert "narayanan-1/10 megatron-1008b" in done.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("gpt3-175",), "did you mean 'gpt3-175b'?"),
        (("nowhere.toml",), "no such file"),
        (("gpt3-175b", "--devices", "8"), "GB too much"),
        (("gpt2", "--devices", "0"), "--devices is from 1 to 1,000,000"),
        (("gpt2", "--devices", "9" * 30), "beyond 64 bits"),
        (
            ("gpt2", "--devices", "7", "--batch", "512", "--zero", "0", "--memory", "1KB"),
            "no layout",
        ),
        (("gpt3-175b", "--devices", "1021", "--batch", "1536"), "no mesh of 1,021 devices"),
        (("gpt2", "--memory", "much"), "--memory 'much'"),
        (("gpt2", "--memory", "0"), "--memory must be above 0"),
        (("gpt2", "--memory", "1GB", "--reserve", "2GB"), "--reserve 2GB leaves nothing"),
        (("gpt2", "--link", "fast"), "--link 'fast/s'"),
        (("gpt2", "--link", "0Gbit"), "--link"),
        (("gpt2", "--inside", "1GB/h"), "--inside"),
        (("gpt2", "--peak", "312"), "--peak '312'"),
        (("gpt2", "--peak", "1e18PFLOP/s", "--hbm", "x"), "--hbm"),
        (("gpt2", "--device", "a10"), "unknown device 'a10'"),
        (("gpt2", "--precision", "int4"), "--precision of megatron is mixed or fp16"),
        (("gpt", "--precision", "fp8"), "--precision of dualml is mixed or fp32; received 'fp8'"),
        (("gpt2", "--precision", "fp8"), "a100 has no published peak for --precision fp8"),
        (("gpt2", "--attention", "flash"), "--attention is stored or fused"),
        (("gpt2", "--zero", "4"), "--zero '4'"),
        (("gpt2", "--zero", ""), "--zero ''"),
        (("gpt2", "--recompute", "some"), "--recompute 'some'"),
        (("gpt2", "--tensor", "0"), "--tensor is from 1"),
        (("gpt2", "--context", "-1"), "--context is from 1"),
        (("gpt2", "--interleave", "0"), "--interleave is from 1"),
        (("gpt2", "--node", "0"), "--node is from 1"),
        (("gpt2", "--batch", "0"), "--batch is from 1"),
        (("gpt2", "--sequence", "0"), "sequence is from 1"),
        (("gpt2", "--efficiency", "nan"), "finite number"),
        (("gpt2", "--efficiency", "1.2"), "--efficiency is from 0 to 1"),
        (("gpt2", "--overlap", "2"), "--overlap is from 0 to 1"),
        (("gpt2", "--alpha", "1h"), "--alpha"),
        (("gpt2", "--top", "0"), "--top is from 1"),
        (("gpt2", "--page", "/nowhere/plan.html"), "No such file"),
        (("gpt2", "--published"), "leave out MODEL"),
        (("--page", "plan.html"), "name the model"),
    ],
)
def test_one_line_and_exit_2(words: tuple[str, ...], reason: str, capsys: Any) -> None:
    with pytest.raises(Exception) as error:  # noqa: PT011
        get_command(app).main(args=["plan", *words], standalone_mode=False)
    assert report_error(error.value) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1


def test_nothing_is_written_where_nothing_fits(tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    done = dualml("plan", "gpt3-175b", "--devices", "2", "--page", path)
    assert done.returncode == 2
    assert not path.exists()


@pytest.mark.parametrize("page", ["plan.md", "plan.zh.md"])
def test_the_examples_are_what_is_printed(
    page: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    text = (DOCS / page).read_text("utf-8")
    examples = re.findall(r"```text\n\$ dualml (plan .*)\n([^`]*)```", text)
    assert examples
    for words, shown in examples:
        app(words.split(), standalone_mode=False)
        printed = capsys.readouterr().out.rstrip().splitlines()
        assert [line.rstrip() for line in printed] == shown.splitlines()


STEP = (
    '{"model": "gpt3-13b", "layout": "dp=4,tp=8,zero=1,micro=2", "batch": 64, '
    '"seconds": [2.6, 2.5, 2.7, 2.6, 2.6], "memory": "60GB"}'
)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_layout_of_ones_own_in_words(tmp_path: Path, lang: str) -> None:
    """The answer is about the named layout: what it takes, what is faster, days and cost, what it
    was calibrated with; the export is written."""
    steps, script = tmp_path / "steps.json", tmp_path / "layout.sh"
    steps.write_text(STEP)
    done = dualml(
        *("plan", "gpt3-13b", "--layout", "dp=4,tp=8,zero=1,micro=2", "--batch", "64"),
        *("--calibrate", steps, "--tokens", "300B", "--price", "2.5"),
        *("--export", "megatron", "--export-file", script, "--lang", lang),
    )
    assert done.returncode == 0, done.stderr
    expected = {
        "en": ("Your layout: dp 4", "calibrated: efficiency", "device-hours", "binds it|bind it"),
        "zh": ("给定的布局：dp 4", "校准：效率", "设备小时", "瓶颈是"),
    }[lang]
    for text in expected:
        assert re.search(text, done.stdout), text
    assert f"→ {script}" in done.stdout
    assert "--tensor-model-parallel-size 8" in script.read_text("utf-8")


def test_a_layout_of_ones_own_as_json() -> None:
    asked = ("plan", "gpt3-13b", "--layout", "dp=4,tp=8,zero=1,micro=2", "--batch", "64")
    told = strict(dualml(*asked, "--json", "--tokens", "1B").stdout)
    assert told["layout"]["dp"] == 4
    assert told["layout"]["nearest_faster"]
    assert told["budget"]["updates"] == -(-(10**9) // (64 * 2048))
    assert told["assumed"]["attention"] == "fused"
    assert sum(told["shares"].values()) == pytest.approx(1)
    printed = dualml(*asked, "--export", "deepspeed").stdout
    assert strict(printed)["train_batch_size"] == 64


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--layout", "tp=7"), "tp 7 does not divide"),
        (("--layout", "dp=2", "--devices", "3"), "but --devices is 3"),
        (("--layout", "dp=999999999"), "--devices is from 1 to 1,000,000"),
        (("--layout", "dp=9,micro=999999999"), "--batch is from 1 to 1,000,000,000"),
        (("--layout", "dp=2", "--pin", "tp=1"), "take one of them"),
        (("--pin", "tp=7"), "tp may be 1"),
        (("--calibrate", "nothing.json"), "no such file or folder"),
        (("--tokens", "many"), "--tokens 'many'"),
        (("--price", "2"), "give --tokens"),
        (("--tokens", "1T", "--price", "-1"), "--price is from 0"),
        (("--export", "nemo"), "--export is megatron"),
        (("--export-file", "x.sh"), "name it by --export"),
        (("--export", "megatron", "--json"), "--export-file"),
    ],
)
def test_new_options_in_one_line(words: tuple[str, ...], reason: str, capsys: Any) -> None:
    with pytest.raises(Exception) as error:  # noqa: PT011
        get_command(app).main(args=["plan", "gpt2", *words], standalone_mode=False)
    assert report_error(error.value) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1
