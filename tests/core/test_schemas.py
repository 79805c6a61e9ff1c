"""The JSON output of every command follows a schema that is published in the package."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from command import DOCS, TOML, check_schema, dualml, strict
from docs_scripts import load_script
from jsonschema import Draft202012Validator, ValidationError
from typer.main import get_command

from dualml.common import variables
from dualml.interface.cli.app import app
from dualml.interface.cli.defaults import command_options, leaf_commands
from dualml.interface.schemas import schema_id, schema_names, schema_text

#: Schema → command lines whose output follows it; ``one`` is a run.
ANSWERS = {
    "capabilities": ["capabilities --backend numpy --device cpu"],
    "checkpoint": [
        "checkpoint show one/trials/gd/numpy/seed0/weights.safetensors",
        "checkpoint convert one/trials/gd/numpy/seed0/weights.safetensors new.npz",
    ],
    "clean": ["clean two --dry-run"],
    "config": ["config"],
    "data": ["data get digits"],
    "data-list": ["data list"],
    "data-stats": ["data stats digits"],
    "data-verify": ["data verify digits"],
    "diffs": ["diffs gelu --no-run"],
    "doctor": ["doctor"],
    "files": ["new lab1 workspace --backend torch"],
    "baseline": ["baseline one kept"],
    "compare-runs": ["compare one two"],
    "export": ["export one --to csv --out written"],
    "find": ["find one"],
    "jobs": ["jobs"],
    "list": ["list"],
    "open": ["open one"],
    "parity": ["parity one"],
    "partition": ["partition dirichlet_labels --data digits --set alpha=0.5"],
    "partitions": ["partition"],
    "pipeline": ["simulate --pipeline 1f1b --ranks 4", "simulate --pipeline gpipe --ranks 2"],
    "plan": [
        "plan gpt --devices 4",
        "plan gpt3-13b --layout dp=4,tp=8,zero=1 --batch 64 --tokens 1B --price 2",
    ],
    "plan-names": ["plan"],
    "plan-published": ["plan --published"],
    "report": ["report one"],
    "run": ["run --resume one"],
    "runs": ["runs ."],
    "schema": ["schema"],
    "show": ["show lab4 --quick"],
    "simulate": ["simulate --ranks 2,4", "simulate --model lenet --slow-rank 1 --slow-compute 2"],
    "simulate-published": ["simulate --published"],
    "simulate-schedule": ["simulate --schedule --strategy ring --ranks 4"],
    "split": ["split mlp", "split vit --tensor 2 --ranks 2"],
    "top": ["top"],
}
#: Schemas whose commands need more than this test has, and what.
ELSEWHERE = {
    **dict.fromkeys(("bench", "check", "grade", "largest"), "a framework"),
    **dict.fromkeys(("generate", "plan-run"), "a language model that was trained"),
    **dict.fromkeys(("job", "logs", "status"), "a queue"),
    "compare": "two traces",
    "map": "two models",
    "request": "nothing prints it: see test_request.py",
}
#: Commands without JSON output, and the reason.
WITHOUT = dict.fromkeys(("serve", "demo", "tensorboard"), "its pages are the answer")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    (folder / "tiny.toml").write_text(TOML)
    done = dualml(
        "run",
        "tiny.toml",
        "--backend",
        "numpy",
        "--no-report",
        "--json",
        "--out",
        "one",
        cwd=folder,
    )
    assert check_schema(done.stdout) == "dualml.run/1"
    shutil.copytree(folder / "one", folder / "two")
    return folder


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "line"), [(n, line) for n, many in ANSWERS.items() for line in many]
)
def test_what_a_command_prints_is_as_its_schema_says(name: str, line: str, home: Path) -> None:
    env = {"DUALML_JOBS": str(home / "jobs"), "SSH_CONNECTION": "1"}
    done = dualml(*line.split(), "--json", cwd=home, env=env)
    assert done.returncode in (0, 1, 3), done.stderr
    answer = strict(done.stdout)
    if isinstance(answer, dict):
        assert answer["schema"] == schema_id(name)
    Draft202012Validator(json.loads(schema_text(name))).validate(answer)


def test_every_schema_is_seen_by_a_test() -> None:
    assert {*ANSWERS, *ELSEWHERE} == set(schema_names())


@pytest.mark.parametrize("name", schema_names())
def test_schemas_are_schemas_that_say_something(name: str) -> None:
    schema = json.loads(schema_text(name))
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == schema_id(name)
    assert schema["title"]
    if schema["type"] == "object":
        assert schema["properties"]["schema"] == {"const": schema_id(name)}
        assert "schema" in schema["required"]
    with pytest.raises(ValidationError):
        Draft202012Validator(schema).validate({"schema": "dualml.other/1"})


def test_schemas_of_records_are_those_of_the_records() -> None:
    records = load_script("schemas")
    for name, schema in records.record_schemas().items():
        assert schema_text(name) == records.to_json(schema), f"python docs/schemas.py: {name}"


def test_every_command_that_shows_something_has_json() -> None:
    without = {
        " ".join(path)
        for path, command in leaf_commands(get_command(app))
        if "json" not in command_options(command)
    }
    assert without == set(WITHOUT)


@pytest.mark.parametrize("page", ["command-line.md", "command-line.zh.md"])
def test_the_page_has_all_of_them(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    assert set(re.findall(r"^\| `([a-z-]+)` \| `", text, re.M)) == set(schema_names())
    public = set(variables.KNOWN_VARIABLES) - set(variables.TESTS)
    assert public <= set(re.findall(r"DUALML_[A-Z_]*[A-Z]", text))


def test_one_is_printed_and_an_unknown_one_refused() -> None:
    assert json.loads(dualml("schema", "dualml.run/1").stdout)["$id"] == "dualml.run/1"
    done = dualml("schema", "nothing")
    assert done.returncode == 2
    assert "known: " in done.stderr
