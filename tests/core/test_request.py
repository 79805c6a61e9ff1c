"""One record asks for a run, whoever makes it."""

from __future__ import annotations

import inspect
import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import dualml
from dualml.common.errors import UserError
from dualml.interface.cli.run import option_parameter
from dualml.interface.cli.run import run as command
from dualml.interface.cli.submit_options import FORBIDDEN_OPTIONS, parse_run_request
from dualml.interface.schemas import schema_id, schema_text
from dualml.runner import run as runner
from dualml.runner.outcome import EXIT_OK, RunOutcome
from dualml.runner.request import DECIDED_BY_FOLDER, RunRequest

#: Parameters of the command and of `dualml.run` that are no fields of the record by that name.
COMMAND_ONLY = {"context", "json", "no_report", "no_find"}
PYTHON_ONLY = {"settings"}
#: Fields for ranks that a user starts; `dualml.run` starts its ranks itself.
OF_RANKS = {"rendezvous", "check", "rank", "hosts", "insecure", "keep_local"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RunRequest]:
    """Return the requests that reach the runner, which runs nothing."""
    seen: list[RunRequest] = []

    def note(request: RunRequest) -> RunOutcome:
        seen.append(request)
        return RunOutcome(EXIT_OK)

    monkeypatch.setattr(runner, "run", note)
    return seen


def test_the_command_python_and_a_job_ask_alike(
    asked: list[RunRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dualml.interface.cli import main

    words = ["lab1", "--backend", "torch,numpy", "--set", "arms.adam.optimizer.lr=0.003"]
    words += ["--arm", "adam", "--seed", "0,1", "--quick", "--threads", "2", "--no-report"]
    monkeypatch.setattr("sys.argv", ["dualml", "run", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    with pytest.raises(AssertionError):  # a run without a folder
        dualml.run(
            PurePosixPath("lab1"),
            backend=["torch", "numpy"],
            settings={"arms": {"adam": {"optimizer.lr": 0.003}}},
            arms="adam",
            seeds=[0, 1],
            quick=True,
            threads=2,
            report=False,
        )
    asked.append(parse_run_request(words, FORBIDDEN_OPTIONS))
    first, *others = asked
    assert others == [first, first]
    assert (first.backend, first.seeds, first.report, first.find) == (
        "torch,numpy",
        (0, 1),
        False,
        True,
    )


def test_every_option_is_a_field_of_the_record() -> None:
    fields = set(RunRequest.model_fields)
    options = {option_parameter(field) for field in fields - {"report", "find", "progress"}}
    assert set(inspect.signature(command).parameters) - COMMAND_ONLY == options
    python = set(inspect.signature(dualml.run).parameters) - PYTHON_ONLY
    assert python == fields - OF_RANKS - {"overrides"}
    assert set(DECIDED_BY_FOLDER.values()) < fields


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"world_size": 0}, "--world-size must be from 1 to 256; received 0"),
        ({"threads": -1}, "--threads must be from 0 to "),
        ({"name": "5"}, "--name '5': use up to 63 letters"),
        ({"name": "a", "out": "b"}, "--out says which folder it is; leave out --name"),
        ({"rendezvous": "here"}, "rendezvous 'here': use auto"),
        ({"lang": "fr"}, "unknown language 'fr'"),
        ({"threads": "many"}, "threads: Input should be a valid integer"),
        ({"quick": "often"}, "quick: Input should be a valid boolean"),
        ({"seeds": [0.5]}, "seeds.0: Input should be a valid integer"),
        ({"fast": True}, "unknown key fast"),
    ],
)
def test_what_no_run_accepts_is_one_line(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError) as error:
        RunRequest(lab="lab1", **values)
    assert str(error.value).startswith(reason)
    assert "\n" not in str(error.value)


def test_a_request_is_not_changed_but_made_anew() -> None:
    request = RunRequest(lab="lab1", threads=2)
    with pytest.raises(ValueError, match="frozen"):
        request.threads = 3  # type: ignore[misc]
    assert request.with_values(threads=3).threads == 3
    with pytest.raises(UserError, match="--threads must be"):
        request.with_values(threads=-1)


def test_a_run_that_is_resumed_takes_nothing_that_its_folder_decides(tmp_path: Path) -> None:
    request = RunRequest(lab="lab1", backend="torch", seeds=[1], quick=True, find=False, out="a")
    again = request.to_resume(tmp_path, out=None)
    assert (again.lab, again.resume, again.find) == (None, tmp_path, False)
    again.check_resumable()
    for option, field in DECIDED_BY_FOLDER.items():
        value = {"seeds": (1,), "threads": 1, "rendezvous": "auto"}.get(field, True)
        value = value if field in ("check", "quick") or value is not True else "x"
        value = ("x=1",) if field in ("overrides", "arms") else value
        with pytest.raises(UserError, match=f"leave out --{option}$"):
            again.with_values(**{field: value}).check_resumable()


def test_the_schema_is_of_the_record() -> None:
    request = RunRequest(lab="lab1", seeds=[0], out="run", overrides=["data.train=100"])
    told = {"schema": schema_id("request"), **request.model_dump(mode="json")}
    Draft202012Validator(json.loads(schema_text("request"))).validate(told)
    assert RunRequest(**{k: v for k, v in told.items() if k != "schema"}) == request
