"""``dualml demo``: its recordings, its pages, and one real start."""

from __future__ import annotations

import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from command import DOCS, start
from serve_cases import ask

from dualml.common.errors import UserError
from dualml.common.words import LANGUAGES
from dualml.experiment.load import load
from dualml.interface.cli import demo as command
from dualml.interface.cli import open as browsers
from dualml.interface.demo import recordings
from dualml.interface.demo.pages import DemoPages
from dualml.interface.demo.recordings import LABS, read_facts, read_port, unpack_runs
from dualml.interface.serve.server import PageServer
from dualml.runner.jobs.store import Jobs

FOLDER = Path(recordings.__file__).with_name("recordings")
MAX_BYTES = 1_500_000
README = {"en": "README.md", "zh": "README.zh.md"}
by_language = pytest.mark.parametrize("lang", LANGUAGES)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "runs"
    unpack_runs(folder)
    return folder


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[PageServer]:
    jobs = Jobs(runs.parent / "jobs")
    with PageServer(runs, jobs, "127.0.0.1", 0, "en", DemoPages) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


# --- the recordings -----------------------------------------------------------------------------


def test_they_are_small_and_complete() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.zip" for name in (*LABS, "port")}
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= MAX_BYTES


def test_they_name_no_path_of_the_machine_that_made_them(runs: Path) -> None:
    for path in (path for path in runs.rglob("*") if path.is_file()):
        assert not re.search(r"/(tmp|home|root|work)/\w", path.read_text("utf-8")), path


def test_each_says_how_it_was_made() -> None:
    for name in LABS:
        facts = read_facts(name)
        assert facts.command == f"dualml run {name} --quick --backend both"
        assert load(name, quick=True).arms
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", facts.date)
        assert all(word in facts.versions for word in ("dualml", "torch", "mindspore"))


def test_the_port_is_the_example_of_the_readme() -> None:
    port = read_port()
    sources = (DOCS / "examples" / "lenet_port").glob("*.py")
    assert port.sources == {path.name: path.read_text("utf-8") for path in sources}
    assert shlex.split(port.facts.command)[:4] == [
        "dualml",
        "compare",
        *("net_torch.py:Net", "net_ms.py:Net"),
    ]
    removed = [line[1:] for line in port.patch.splitlines() if re.match(r"-[^-]", line)]
    assert len(removed) == 2
    assert all(line in port.sources["net_ms.py"] for line in removed)


@by_language
def test_the_readme_prints_what_was_recorded(lang: str) -> None:
    """The example's batch is drawn in another way than the command's: numbers are not compared."""
    port = read_port()
    text = (DOCS.parent / README[lang]).read_text("utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    (block,) = [body for kind, body in blocks if not kind]

    def comparable(text: str) -> str:
        return re.sub(r"\s+", "", re.sub(r"\d\S*e[+-]\d+", "#", text))

    recorded = comparable(port.answers[lang] + port.patch)
    for line in block.splitlines():
        assert line == "…" or comparable(line) in recorded, line


# --- its pages ----------------------------------------------------------------------------------


@by_language
def test_the_first_page_has_the_port_and_every_lab(server: PageServer, lang: str) -> None:
    status, _, page = ask(server, f"/?lang={lang}")
    text, port = unescape(page), read_port()
    assert status == 200
    assert port.answers[lang] in text
    assert port.facts.command in text
    for line in port.patch.splitlines():
        assert line in text
    for name in LABS:
        assert f'href="/report?run={name}"' in text
        assert read_facts(name).command in text
    assert read_facts("lab1").versions in text


@by_language
@pytest.mark.parametrize("name", LABS)
def test_every_report_opens_in_the_language_of_the_page(
    server: PageServer, name: str, lang: str
) -> None:
    status, _, page = ask(server, f"/report?run={name}&lang={lang}")
    assert status == 200
    assert f'lang="{lang}' in page[:500]
    assert page.rstrip().endswith("</html>")


def test_the_live_page_shows_every_run_that_was_kept(server: PageServer) -> None:
    kept = re.findall(r'href="/run\?run=(\w+)"', ask(server, "/")[2])
    assert {"lab1", "lab2"} <= {*kept}
    for name in kept:
        status, _, page = ask(server, f"/run?run={name}")
        assert status == 200
        assert "<svg" in page
        assert "ended well" in page


def test_a_live_page_begins_with_arms_that_have_curves(server: PageServer) -> None:
    """Lab 2's first group measures collectives and trains nothing."""
    first, micro = 'value="micro" selected', ask(server, "/run?run=lab2&group=micro")[2]
    assert first in micro
    assert first not in ask(server, "/run?run=lab2")[2]


@pytest.mark.parametrize("name", ["nothing", "../jobs", "port", ""])
def test_nothing_else_is_served(server: PageServer, name: str) -> None:
    assert ask(server, f"/report?run={name}")[0] == 404
    assert ask(server, "/", token=False)[0] == 403


# --- the command --------------------------------------------------------------------------------


@pytest.mark.parametrize("no_browser", [False, True])
@pytest.mark.parametrize("there", [False, True])
def test_a_browser_is_opened_if_there_is_one(
    no_browser: bool,
    there: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened, ended = [], threading.Event()

    def open_in_browser(url: str) -> bool:
        opened.append(url)
        ended.set()
        return True

    def serve_forever(server: PageServer) -> None:
        if there and not no_browser:
            assert ended.wait(20)
        raise KeyboardInterrupt

    monkeypatch.setattr(browsers, "can_open_browser", lambda: there)
    monkeypatch.setattr(browsers, "open_in_browser", open_in_browser)
    monkeypatch.setattr(PageServer, "serve_forever", serve_forever)
    with pytest.raises(KeyboardInterrupt):
        command.demo(no_browser=no_browser)
    (url,) = re.findall(r"http://127\.0\.0\.1:\S+", capsys.readouterr().out)
    assert opened == [url] * (there and not no_browser)


def test_without_a_writable_folder_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**options: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(command.tempfile, "TemporaryDirectory", fail)
    with pytest.raises(UserError, match=r"No usable temporary directory.*TMPDIR"):
        command.make_temporary_folder()


@pytest.mark.system
def test_it_starts_answers_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a home that cannot be written to, a locale without UTF-8, and 60 columns."""
    home, scratch = tmp_path / "home", tmp_path / "scratch"
    scratch.mkdir()
    home.mkdir(mode=0o555)
    for name, value in {
        "HOME": str(home),
        "TMPDIR": str(scratch),
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "COLUMNS": "60",
    }.items():
        monkeypatch.setenv(name, value)
    process = start("demo", "--no-browser", "--lang", "zh", stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", line)
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert "lab1" in answer.read().decode()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert not [*scratch.iterdir(), *home.iterdir()]


@pytest.mark.system
def test_it_needs_no_framework_and_no_network() -> None:
    script = (
        "import socket, sys, tempfile, pathlib\n"
        "from dualml.interface.demo.pages import DemoPages\n"
        "from dualml.interface.demo.recordings import unpack_runs\n"
        "from dualml.common.words import Messages\n"
        "from dualml.runner.jobs.store import Jobs\n"
        "socket.socket.connect = None\n"
        "base = pathlib.Path(tempfile.mkdtemp())\n"
        "unpack_runs(base / 'runs')\n"
        "DemoPages(base / 'runs', Jobs(base / 'jobs')).home_page(Messages('en'))\n"
        "print(sorted({'torch', 'mindspore', 'jax'} & {*sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert socket.socket.connect is not None
