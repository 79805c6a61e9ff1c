"""Usage errors: ``-h``, suggestions, error frames in Chinese; every "unknown …" message of
dualml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import TOML, dualml
from typer.main import get_command

from dualml.common.errors import UserError, did_you_mean
from dualml.common.words import load_messages
from dualml.interface.cli import report_error
from dualml.interface.cli.app import app
from dualml.interface.cli.defaults import leaf_commands
from dualml.interface.cli.usage import template_pattern, translate

CHINESE = re.compile(r"[\u4e00-\u9fff]")


def test_every_command_has_the_short_option(capsys: pytest.CaptureFixture[str]) -> None:
    command = get_command(app)
    groups = {path[:-1] for path, _ in leaf_commands(command)}
    for path in [*groups, *(path for path, _ in leaf_commands(command))]:
        command.main([*path, "-h"], "dualml", standalone_mode=False)
        assert f"Usage: dualml {' '.join(path)}".rstrip() in capsys.readouterr().out, path


#: A command line with an unknown name, and the suggestion.
UNKNOWN = [
    ("rnu", "run"), ("data lst", "list"), ("run --bakend numpy", "--backend"),
    ("submit lab1 --bakend numpy", "--backend"), ("list --jsn", "--json"),
    ("run lap1 --backend numpy", "lab1"), ("show lap1", "lab1"), ("submit lap1 -b numpy", "lab1"),
    ("new lap1 DIR", "lab1"), ("run lab1 --backend numpi", "numpy"),
    ("capabilities --backend numpi", "numpy"), ("run lab1 -b numpy --device cdua", "cuda"),
    ("run lab1 -b numpy --data mnits", "mnist"), ("data get mnits", "mnist"),
    ("data verify mnits", "mnist"), ("partition contiguos", "contiguous"),
    ("partition contiguous --data mnits", "mnist"), ("run lab1 -b numpy --arm sdg", "sgd"),
    ("run lab1 -b numpy --set arms.sgd.epoch=1", "epochs"),
    ("run lab1 -b numpy --set arms.sdg.epochs=1", "sgd"),
    ("run lab1 -b numpy --set modle=lenet", "model"), ("split lab4 --arm pipe-x", "pipe"),
    ("split mlpp", "mlp"), ("diffs gelo", "gelu"), ("diffs --topic layer", "layers"),
    ("simulate --strategy rign", "ring"), ("simulate --model lenett", "lenet"),
    ("simulate --pipeline 1f1d", "1f1b"), ("plan gpt3-175", "gpt3-175b"),
    ("plan gpt3-175b --device a10", "a100"), ("largest gptt --memory 1MB", "gpt"),
    ("bench --only lap --backend numpy", "lab"), ("schema parrity", "parity"),
    ("parity runs/lab1-y", "lab1-x"), ("find runs/lab1-y", "lab1-x"),
    ("open runs/lab1-y", "lab1-x"), ("clean runs/lab1-y", "lab1-x"),
    ("report runs/lab1-y", "lab1-x"), ("top runs/lab1-y", "lab1-x"),
    ("run --resume runs/lab1-y", "lab1-x"), ("generate runs/lab1-y", "lab1-x"),
    ("logs 112", "12"), ("stop 112", "12"), ("resume 112", "12"),
    ("submit lab1 --on slrum", "slurm"),
    ("submit lab1 --on kubernetes --render DIR --kind trainjobs --backend numpy", "trainjob"),
]  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    (folder / "tiny.toml").write_text(TOML)
    (folder / "runs/lab1-x").mkdir(parents=True)
    (folder / "runs/lab1-x/run.json").write_text("{}")
    (folder / "jobs/12").mkdir(parents=True)
    (folder / "jobs/12/state.json").write_text("{}")
    return folder


@pytest.mark.whole
@pytest.mark.parametrize(("line", "meant"), UNKNOWN)
def test_the_nearest_name_is_said(line: str, meant: str, home: Path) -> None:
    done = dualml(*line.split(), cwd=home, env={"DUALML_JOBS": str(home / "jobs")})
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    hint = re.search(r"did you mean (.*?)\?", done.stderr)
    assert hint, done.stderr
    assert meant in hint[1]


def test_nearest() -> None:
    assert did_you_mean("lap1", ["lab1", "x"]) == "; did you mean 'lab1'?"
    assert did_you_mean("abcd", ["abce", "abcf"], max_names=2) == "; did you mean 'abcf' or 'abce'?"
    assert did_you_mean("q", ["lab1", "x"]) == "; known: lab1, x"
    assert did_you_mean("q", ["lab1"], fallback="") == ""
    assert did_you_mean("labx", ["lab1"], cutoff=0.9, fallback="!") == "!"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rnu"], "没有命令“rnu”；是否想用 'run'？（参见 dualml --help）"),
        (
            ["run", "--bakend"],
            "没有选项 --bakend；是否想用 '--backend'？（参见 dualml run --help）",
        ),
        (["show"], "缺少参数“lab”。（参见 dualml show --help）"),
        (["run", "lab1", "--threads", "two"], "“--threads”的值无效："),
        (["run", "lap1", "--backend", "numpy"], "没有名为“lap1”的实验；是否想用 'lab1'？"),
        (["run", "lab1", "--backend"], "选项“--backend”需要一个值。"),
        (["run", "lab1", "--quick=3"], "选项“--quick”不带值。"),
        (["list", "more"], "多余的参数：more"),
        (["parity", "nowhere"], "nowhere 不是运行目录：其中没有 run.json"),
    ],
)
def test_the_frame_is_chinese(words: list[str], said: str, home: Path) -> None:
    done = dualml(*words, cwd=home, env={"DUALML_LANG": "zh"})
    assert done.returncode == 2
    assert said in done.stderr
    assert CHINESE.search(dualml(*words, cwd=home).stderr) is None


def test_a_message_of_files_of_defaults_is_in_the_language_too(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.dualml]\nbakend = "torch"\n')
    done = dualml("list", cwd=tmp_path, env={"DUALML_CONFIG": "", "DUALML_LANG": "zh"})
    assert "，第 2 行：未知的键 bakend；是否想用 'backend'？" in done.stderr


def test_the_frames_are_those_of_the_messages(capsys: pytest.CaptureFixture[str]) -> None:
    """Each frame occurs in a real message: an obsolete frame would never be translated."""
    sources = Path(report_error.__code__.co_filename).parents[2].rglob("*.py")
    said = " ".join(
        [did_you_mean("lap1", ["lab1"]), *(path.read_text("utf-8") for path in sources)]
    )
    for key in ("meant", "known", "received", "see", "key", "variable"):
        template = (
            load_messages("en", "errors")[f"errors.{key}"]
            .replace("{name}", "")
            .replace("{names}", "")
        )
        assert template.strip(" ?") in said, key
    assert translate("a; did you mean 'b'?", "en") == "a; did you mean 'b'?"
    assert re.search(template_pattern("No '{name}' of {n}."), "No 'x y' of 3.")
    assert report_error(UserError("x; known: a, b"), "zh") == 2
    assert capsys.readouterr().err == "dualml: x；可用的有：a, b\n"
