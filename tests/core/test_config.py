"""Defaults of options: environment variables, the project's file, the user's file, and their
precedence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import dualml, lab  # noqa: F401
from typer.main import get_command

from dualml.common.errors import UserError
from dualml.common.variables import (
    CONFIG,
    JOB,
    JOB_OUT,
    KNOWN_VARIABLES,
    OPTIONS,
    TESTS,
    unknown_variables,
)
from dualml.interface.cli import defaults
from dualml.interface.cli.app import app
from dualml.interface.cli.defaults import (
    Defaults,
    command_options,
    general_options,
    leaf_commands,
    read_defaults,
)
from dualml.interface.cli.project import ALLOWED
from dualml.interface.cli.submit_options import add_defaults, parse_run_request
from dualml.runner.jobs.store import captured_env

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a project in ``work``, change into one of its folders, and create a user's file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("DUALML_CONFIG", "")
    for name in OPTIONS:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config/dualml").mkdir(parents=True)
    (tmp_path / "work/deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work/deep")
    return tmp_path


def user(home: Path, text: str) -> None:
    (home / "config/dualml/config.toml").write_text(text)


def project(home: Path, text: str) -> None:
    (home / "work/pyproject.toml").write_text(text)


def settings(**env: str) -> dict[str, tuple[Any, str | None]]:
    """Return key → value and origin, as in ``dualml config --json``."""
    done = dualml("config", "--json", cwd=Path.cwd(), env=env)
    assert done.returncode == 0, done.stderr
    return {s["key"]: (s["value"], s["place"]) for s in json.loads(done.stdout)["settings"]}


def test_the_nearer_one_wins(home: Path) -> None:
    assert settings()["backend"] == (None, None)
    user(home, 'backend = "torch"\nthreads = 3\n[run]\nquick = true\n')
    own = str(home / "config/dualml/config.toml")
    assert settings()["backend"] == ("torch", f"{own}, line 1")
    assert settings()["run.quick"] == (True, f"{own}, line 4")
    project(home, '[tool.other]\nx = 1\n[tool.dualml]\nbackend = "numpy"\n')
    found = settings()
    assert found["backend"] == ("numpy", f"{home / 'work/pyproject.toml'}, line 4")
    assert found["threads"] == (3, f"{own}, line 2")
    assert settings(DUALML_BACKEND="all")["backend"] == ("all", "DUALML_BACKEND")
    command = get_command(app).commands["run"]
    for words, backend in ((["lab1"], "numpy"), (["lab1", "--backend", "both"], "both")):
        defaults = read_defaults(get_command(app))
        context = command.make_context("run", words, default_map=defaults.for_command(("run",)))
        assert context.params["backend"] == backend
        assert context.params["quick"] is True


def test_a_table_of_a_command_wins_over_the_general_key_beside_it(home: Path) -> None:
    project(home, '[tool.dualml.capabilities]\nbackend = "torch"\n[tool.dualml]\nbackend = "all"\n')
    defaults = read_defaults(get_command(app))
    assert defaults.for_command(("capabilities",))["backend"] == "torch"
    assert defaults.for_command(("run",))["backend"] == "all"
    assert set(settings()) >= {"backend", "capabilities.backend"}


def test_a_run_begins_with_what_the_project_says_and_resumes_without(
    home: Path,
    lab: Path,  # noqa: F811
) -> None:
    project(
        home,
        '[tool.dualml.run]\nbackend = "numpy"\narm = ["gd"]\n'
        'no-report = true\nseed = [1]\nlang = "zh"\n',
    )
    done = dualml("run", lab, "--json", "--out", "../kept", cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    trials = json.loads((home / "work/kept/run.json").read_text())["trials"]
    assert [(t["arm"], t["backend"], t["seed"]) for t in trials] == [("gd", "numpy", 1)]
    assert "数据" in done.stderr
    done = dualml("run", "--resume", "../kept", cwd=Path.cwd(), env={"DUALML_DEVICE": "cpu"})
    assert done.returncode == 0, done.stderr
    done = dualml("run", "--resume", "../kept", "--device", "cpu", cwd=Path.cwd())
    assert "leave out --device" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('bakend = "torch"', "line 2: unknown key bakend; did you mean 'backend'?"),
        ("[tool.dualml.rnu]\nx = 1", "line 2: unknown key rnu; did you mean 'run'?"),
        ("[tool.dualml.run]\nquik = true", "line 3: unknown key run.quik; did you mean 'quick'?"),
        (
            "[tool.dualml.run]\nthreads = 'two'",
            "line 3: run.threads takes a whole number; received",
        ),
        ("threads = true", "line 2: threads takes a whole number; received True"),
        ("[tool.dualml.run]\nquick = 1", "line 3: run.quick takes true or false; received 1"),
        (
            "[tool.dualml.run]\narm = [['a']]",
            "line 3: run.arm takes a text or a number, or a list of",
        ),
        (
            "[tool.dualml.run]\nout = 3",
            "line 3: run.out is for each user to decide: on the command",
        ),
        ("out = 'x'", "line 2: out is for each user to decide: on the command line or in"),
        ("run = 3", "line 2: run is a command: a table of its options"),
        (
            "[tool.dualml.serve]\nhost = '0.0.0.0'",
            "line 3: serve.host is for each user to decide: on",
        ),
        ("[tool.dualml.clean]\nyes = true", "line 3: clean.yes is for each user to decide: on the"),
        ("backend = ", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(home: Path, text: str, said: str) -> None:
    project(home, f"[tool.dualml]\n{text}\n")
    done = dualml("list", cwd=Path.cwd())
    assert done.returncode == 2
    assert done.stderr.startswith(f"dualml: {home / 'work/pyproject.toml'}")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_only_a_user_decides_may_stand_in_a_users_file(home: Path) -> None:
    user(home, "[clean]\nyes = true\n")
    assert settings()["clean.yes"][0] is True


def test_a_project_sets_what_leads_nowhere(home: Path) -> None:
    """A project may set only harmless options: no path, no address, nothing that starts, sends or
    removes something."""
    every = [
        (name, p)
        for _, command in leaf_commands(get_command(app))
        for name, p in command_options(command).items()
    ]
    assert {name for name, _ in every} >= ALLOWED
    for name, parameter in every:
        kind = parameter.type_descriptor.annotation
        assert name not in ALLOWED or "Path" not in str(kind), name
    for name in ("html", "markdown", "out", "rank", "world-size", "rendezvous", "hosts", "host",
                 "port", "tensorboard", "data", "secret", "set", "sbatch", "yes", "online",
                 "insecure", "to", "from", "dir", "page", "draw", "render"):  # fmt: skip
        assert name not in ALLOWED


@pytest.mark.parametrize("command", ["run", "submit", "compare", "serve", "grade", "data.get"])
def test_every_option_that_is_not_allowed_is_refused(home: Path, command: str) -> None:
    here: Any = get_command(app)
    for word in command.split("."):
        here = here.commands[word]
    for name in command_options(here).keys() - ALLOWED:
        project(home, f"[tool.dualml.{command}]\n{name} = 'x'\n")
        with pytest.raises(UserError, match=f"{command}.{name} is for each user to decide"):
            read_defaults(get_command(app))


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("file-of-another", "it belongs to user 12345, not to you"),
        ("folder-of-another", "work belongs to user 12345"),
        ("file-for-all", "others can write to it"),
        ("folder-for-all", "others can write to .*work"),
        ("sticky-folder", "others can write to .*work"),
        ("file-for-a-group", "group 12345 can write to it"),
        ("link-of-another", "it belongs to user 12345"),
        ("link-into-an-open-folder", "others can write to .*open"),
    ],
)
def test_a_file_that_others_can_have_written_has_no_say(home: Path, what: str, why: str) -> None:
    if os.geteuid() and re.search("another|group", what):
        pytest.skip("gives files to somebody else")
    project(home, "[tool.dualml]\nthreads = 3\n")
    (home / "pyproject.toml").write_text("[tool.dualml]\nthreads = 2\n")
    work, path = home / "work", home / "work/pyproject.toml"
    if what.startswith("link"):
        (home / "open").mkdir()
        path.rename(home / "open/x.toml")
        path.symlink_to("../open/x.toml")
    match what:
        case "file-of-another" | "link-of-another":
            os.chown(path, 12345, -1)
        case "folder-of-another":
            os.chown(work, 12345, -1)
        case "file-for-all":
            path.chmod(0o666)
        case "folder-for-all":
            work.chmod(0o777)
        case "sticky-folder":
            work.chmod(0o1777)
        case "file-for-a-group":
            os.chown(path, -1, 12345)
            path.chmod(0o664)
        case "link-into-an-open-folder":
            (home / "open").chmod(0o777)
    found = read_defaults(get_command(app))
    assert found.for_command(("run",))["threads"] == 2  # of the next one upwards
    assert re.search(why, found.notices[0])
    done = dualml("list", cwd=Path.cwd())
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"dualml: {path} is not read: ")


def test_the_group_of_one_user_alone_may_write(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(home, "[tool.dualml]\nthreads = 3\n")
    (home / "work").chmod(0o775)
    monkeypatch.setattr("dualml.interface.cli.project.is_private", lambda group: True)
    assert read_defaults(get_command(app)).for_command(("run",))["threads"] == 3


@pytest.mark.parametrize("kind", ["pipe", "device", "loop", "folder", "bytes"])
def test_what_is_no_file_of_a_project_is_passed_over(home: Path, kind: str) -> None:
    (home / "pyproject.toml").write_text("[tool.dualml]\nthreads = 2\n")
    for path in (home / "work/pyproject.toml", home / "work/deep/pyproject.toml"):
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "device":
                path.symlink_to("/dev/zero")
            case "loop":
                path.symlink_to(path.name)
            case "folder":
                path.mkdir()
            case "bytes":
                path.write_bytes(b"[tool.dualml]\nx = '\xff'\n")
    done = dualml("--help", cwd=Path.cwd())
    assert (done.returncode, done.stderr) == (0, "")
    assert settings()["threads"][0] == 2


def test_a_file_of_a_hostile_project_writes_nowhere(home: Path) -> None:
    project(
        home, '[tool.dualml.run]\nrank = 1\nworld-size = 2\nrendezvous = "tcp://127.0.0.1:29614"\n'
    )
    done = dualml("run", "lab1", cwd=Path.cwd())
    assert done.returncode == 2
    assert "run.rank is for each user to decide" in done.stderr
    assert not list(Path.cwd().iterdir())


def test_values_that_commands_refuse_are_said_with_their_place(home: Path) -> None:
    project(home, '[tool.dualml]\nbackend = "troch"\n[tool.dualml.partition]\nepoch = -1\n')
    said = dualml("run", "lab1", cwd=Path.cwd()).stderr
    assert "did you mean 'torch'?" in said
    assert f"({home / 'work/pyproject.toml'}, line 2)" in said
    said = dualml("partition", "contiguous", cwd=Path.cwd()).stderr
    assert "'--epoch'" in said
    assert "pyproject.toml, line 4)" in said
    said = dualml("run", "lab1", cwd=Path.cwd(), env={"DUALML_BACKEND": "numpi"}).stderr
    assert "'numpi'; did you mean 'numpy'? (DUALML_BACKEND)" in said


def test_a_language_that_is_none_is_said_with_its_place(home: Path) -> None:
    project(home, '[tool.dualml]\nlang = "fr"\n')
    said = dualml("list", cwd=Path.cwd()).stderr
    assert said.endswith(f"received 'fr' ({home / 'work/pyproject.toml'}, line 2)\n")
    said = dualml("list", cwd=Path.cwd(), env={"DUALML_LANG": "de"}).stderr
    assert said.endswith("received 'de' (DUALML_LANG)\n")


def test_a_home_that_may_not_be_looked_into_has_no_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class UnreadableFile:
        def stat(self) -> None:
            raise PermissionError(13, "Permission denied", "/root/.config/dualml/config.toml")

    project(home, "[tool.dualml]\nthreads = 3\n")
    monkeypatch.setattr(defaults, "user_file", UnreadableFile)
    assert [file.path.name for file in defaults.find_defaults().files] == ["pyproject.toml"]


def test_a_current_folder_that_was_removed_has_none(home: Path) -> None:
    script = 'rmdir "$PWD" && exec "$0" -m dualml list'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable],
        cwd=home / "work/deep",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "lab1" in done.stdout


def test_which_files_are_read(home: Path) -> None:
    project(home, "[tool.ruff]\n# dualml\n")
    (home / "pyproject.toml").write_text('[tool.dualml]\nlang = "zh"\n')
    assert settings()["lang"] == ("zh", f"{home / 'pyproject.toml'}, line 2")
    assert "默认值" in dualml("config", cwd=Path.cwd()).stdout
    assert settings(DUALML_CONFIG="none")["lang"] == (None, None)
    other = home / "other.toml"
    other.write_text("threads = 2")
    assert settings(DUALML_CONFIG=str(other))["threads"] == (2, f"{other}, line 1")
    done = dualml("list", cwd=Path.cwd(), env={"DUALML_CONFIG": "nowhere.toml"})
    assert done.returncode == 2
    assert "nowhere.toml" in done.stderr


def test_a_job_takes_its_defaults_along_and_its_processes_have_none(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(home, '[tool.dualml.run]\narm = ["gd"]\nquick = true\nno-find = false\n')
    monkeypatch.setenv("DUALML_BACKEND", "numpy")
    monkeypatch.setenv("DUALML_THREADS", "2")
    words = add_defaults(["lab1", "--threads", "1"], read_defaults(get_command(app)))
    assert words[:3] == ["lab1", "--threads", "1"]
    assert sorted(words[3:]) == ["--arm", "--backend", "--quick", "gd", "numpy"]
    assert parse_run_request(words, {}).backend == "numpy"
    assert parse_run_request(["lab1"], {}).backend is None
    assert add_defaults(["lab1", "--backend", "torch", "--threads", "1"], Defaults())[5:] == []
    left = captured_env()
    assert left["DUALML_CONFIG"] == "none"
    assert not left.keys() & set(OPTIONS)


def test_misspelt_variables_are_named() -> None:
    assert unknown_variables(["DUALML_BAKEND", "HOME", "DUALML_DATA"]) == [
        "unknown variable DUALML_BAKEND; did you mean 'DUALML_BACKEND'?"
    ]
    assert unknown_variables(["DUALML_NUMPY_ANYTHING"]) == []
    assert unknown_variables(["DUALML_TORCH_COMPLE"]) != []
    done = dualml("list", env={"DUALML_TREADS": "2"})
    assert done.returncode == 0
    assert "unknown variable DUALML_TREADS; did you mean 'DUALML_THREADS'?" in done.stderr


def test_every_variable_that_is_read_is_known() -> None:
    folders = ("dualml", "dualml_torch", "dualml_ms")
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    texts = [path.read_text("utf-8") for path in files if path.name != "variables.py"]
    names = {name for text in texts for name in re.findall(r'"(DUALML_[A-Z_]+)"', text)}
    assert names >= set(OPTIONS)
    assert names - set(TESTS) == set(KNOWN_VARIABLES) - {JOB, JOB_OUT, CONFIG} - set(TESTS)
    variables = {p.envvar for uses in general_options(get_command(app)).values() for _, p in uses}
    assert variables == set(OPTIONS)


def test_a_secret_is_shown_to_nobody(home: Path) -> None:
    done = dualml("config", "--json", cwd=Path.cwd(), env={"DUALML_TOKEN": "hidden-word"})
    assert "DUALML_TOKEN" in json.loads(done.stdout)["variables"]
    assert "hidden-word" not in done.stdout


def test_a_folder_that_was_removed_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALML_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert read_defaults(get_command(app)).files == ()


def test_a_wrong_type_of_file_is_refused(home: Path) -> None:
    (home / "work/pyproject.toml").write_text("[tool]\ndualml = 3\n")
    with pytest.raises(UserError, match="is no table"):
        read_defaults(get_command(app))
