"""The live page from the outside: access, what is shown, and what is not."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_run
import pytest
from command import dualml, start
from serve_cases import KEY, ask, growing, losses, serving

from dualml.experiment.store.folder import is_locked, lock_run_folder
from dualml.experiment.store.manifest import read_run
from dualml.experiment.store.trial import log_path, trial_folder
from dualml.interface.serve import logs, run, server, summaries
from dualml.interface.serve.cache import Cache
from dualml.interface.serve.gate import Gate
from dualml.interface.serve.server import PageServer
from dualml.runner.jobs.store import Jobs

pytestmark = pytest.mark.system
RUN = "/run?run=one"
EVIL = "<img src=x onerror=alert(1)>\"'&"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served") / "runs"
    fake_run.make_run(root / "one")
    fake_run.make_run(root / "deep/two", seeds=[0])
    (root / "one/report.html").write_text("<title>report</title>")
    outside = fake_run.make_run(root.parent / "outside", seeds=[0])
    for folder in (outside, root.parent, root / "one/trials"):
        (folder / "report.html").write_text("secret")
    return root


@pytest.fixture(scope="module")
def live_server(root: Path) -> Iterator[PageServer]:
    with serving(root) as server:
        yield server


# --- who is let in ------------------------------------------------------------------------------


def test_the_token_opens_and_becomes_a_cookie(live_server: PageServer) -> None:
    gate = live_server.gate
    status, headers, text = ask(live_server, f"/?token={gate.token}", token=False)
    assert status == 200
    assert "deep/two" in text
    cookie = headers["Set-Cookie"]
    assert cookie == f"dualml-{gate.port}={gate.token}; Path=/; HttpOnly; SameSite=Strict"
    assert ask(live_server, "/", token=False, Cookie=cookie.partition(";")[0])[0] == 200
    assert gate.token in gate.url()
    assert Gate("127.0.0.1", 1).token != gate.token


PATHS = ["/", RUN, "/log?run=one", "/report?run=one", "/style.css", "/page.js", "/nothing"]
COOKIES = [
    "",
    "nonsense",
    "dualml-1={token}",
    "dualml-{port}=é",
    "dualml-{port}={token}x",
    "dualml-{port}={half}",
    "\x07=;;=a",
]
HOSTS = [
    "evil.example:{port}",
    "evil.example",
    "127.0.0.1",
    "localhost:1",
    "",
    "[::1",
    "127.0.0.1:{port}@evil.example",
    "127.0.0.1:{port}/x",
    "127.0.0.1:{port}.evil.example",
    "10.1.2.3:{port}",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("cookie", COOKIES)
def test_without_the_token_nothing_is_shown(
    live_server: PageServer, path: str, cookie: str
) -> None:
    token = live_server.gate.token
    value = cookie.format(port=live_server.gate.port, token=token, half=token[:20])
    status, headers, text = ask(live_server, path, token=False, Cookie=value)
    assert (status, headers.get("Set-Cookie")) == (403, None)
    assert text.startswith("403: this page needs the token.")


@pytest.mark.parametrize("host", HOSTS)
def test_another_name_is_refused_even_with_the_token(live_server: PageServer, host: str) -> None:
    status, _, text = ask(live_server, "/", Host=host.format(port=live_server.gate.port))
    assert (status, text[:3]) == (403, "403")
    assert "not known under that name" in text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]"])
def test_its_own_names_are_not(live_server: PageServer, host: str) -> None:
    assert ask(live_server, "/", Host=f"{host}:{live_server.gate.port}")[0] == 200


def test_beyond_loopback_numbers_and_its_own_name_will_do() -> None:
    gate = Gate("0.0.0.0", 80)
    assert not gate.is_local
    for host in ("192.168.3.4", "192.168.3.4:80", "[fe80::1]:80", socket.gethostname()):
        assert gate.accepts_host(host), host
    for host in ("evil.example", "192.168.3.4:81", None):
        assert not gate.accepts_host(host), host
    assert Gate("::1", 80).url().startswith("http://[::1]:80/?token=")


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_but_get(live_server: PageServer, method: str) -> None:
    status, headers, _ = ask(live_server, "/", method=method)
    assert (status, headers["Allow"]) == (405, "GET")


def test_every_answer_forbids_what_it_does_not_need(live_server: PageServer) -> None:
    for path, code in (("/", 200), (RUN, 200), ("/x", 404), ("/style.css", 200)):
        status, headers, _ = ask(live_server, path)
        assert status == code
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert not re.search(r"https?://", headers.get("Location", ""))
    _, headers, _ = ask(live_server, "/report?run=one")
    assert headers["Content-Security-Policy"].startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in headers["Content-Security-Policy"]


def test_no_page_names_another_server(live_server: PageServer) -> None:
    for path in ("/", RUN, f"{RUN}&run=deep/two"):
        text = ask(live_server, path)[2]
        assert not re.search(r'(src|href|action)="(https?:)?//', text)


# --- what is shown ------------------------------------------------------------------------------


NAMES = [
    "..",
    "../outside",
    "{outside}",
    "one/../../outside",
    "one/..",
    "one/trials",
    "deep",
    "%2e%2e",
    "one%00",
    "",
    "One",
    "/etc",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("page", ["run", "log", "report"])
def test_only_runs_of_the_list_are_found(
    live_server: PageServer, root: Path, page: str, name: str
) -> None:
    name = name.format(outside=root.parent / "outside")
    status, _, text = ask(live_server, f"/{page}?run={name}&log=adam/torch/seed0/rank0")
    assert status == 404
    assert "secret" not in text


@pytest.mark.parametrize("log", ["../../../secret", "/etc/passwd", "", "sgd/torch/seed0/rank9"])
def test_only_logs_of_the_run_are_read(live_server: PageServer, log: str) -> None:
    assert ask(live_server, f"/log?run=one&log={log}")[0] == 404


def test_links_out_of_a_run_folder_are_not_followed(tmp_path: Path) -> None:
    """Links out of a run folder are not followed, because run folders also come from other
    machines."""
    runs = tmp_path / "runs"
    one = fake_run.make_run(runs / "one", seeds=[0])
    (tmp_path / "secret").write_text("secret")
    (one / "report.html").symlink_to(tmp_path / "secret")
    place = trial_folder(one, KEY)
    log_path(place, 0).symlink_to(tmp_path / "secret")
    log_path(place, 1).write_text("its own")
    name = "adam/torch/seed0/rank"
    with serving(runs) as server:
        assert ask(server, "/report?run=one")[0] == 404
        assert ask(server, f"/log?run=one&log={name}0")[0] == 404
        assert ask(server, f"/log?run=one&log={name}1")[2] == "its own"


def test_what_a_run_says_is_text(tmp_path: Path) -> None:
    def change(run: dict) -> None:
        run["experiment"]["title"] = {"en": EVIL, "zh": EVIL}
        run["trials"][0] |= {"status": "failed", "reason": EVIL}
        run["name"] = EVIL

    folder = fake_run.make_run(tmp_path / "runs" / "a<b>&'\"", seeds=[0], change=change)
    log_path(trial_folder(folder, KEY), 0).write_text(EVIL)
    (tmp_path / "runs/broken<i>").mkdir()
    (tmp_path / "runs/broken<i>/run.json").write_text('{"format": 1, "name": "<script>"}')
    with serving(tmp_path / "runs") as server:
        page, more = "/run?run=a%3Cb%3E%26'%22", "&trial=%3Cscript%3E&log=%3Cscript%3E"
        texts = [ask(server, path)[2] for path in ("/", page, page + more)]
        missing = ask(server, "/run?run=%3Cscript%3E")
    for text in texts:
        for bad in ("<img", "<script>", "<i>", "a<b>", "onerror=alert(1)>\"'"):
            assert bad not in text.replace('<script src="/page.js">', ""), bad
    assert all("&lt;img src=x onerror=alert(1)&gt;" in text for text in texts)
    assert missing[0] == 404
    assert missing[1]["Content-Type"] == "text/plain; charset=utf-8"


def test_the_list_tells_state_progress_and_verdict(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    fake_run.make_run(runs / "done", failed=None)
    fake_run.make_run(runs / "bad", seeds=[1])
    cache = Cache()
    with growing(runs / "goes-on", seeds=[0]):
        there = summaries.runs_by_name(runs, ())
        assert sorted(there) == ["bad", "done", "goes-on"]
        seen = {name: summaries.summarize(cache, name, path) for name, path in there.items()}
    assert [(s.state, s.ended, s.total, s.verdict) for _, s in sorted(seen.items())] == [
        ("failed", 9, 9, "different"),
        ("ok", 18, 18, "different"),
        ("running", 8, 9, ""),
    ]
    assert seen["goes-on"].remaining_s == pytest.approx(mean_wall(runs / "goes-on"))
    assert summaries.summarize(cache, "goes-on", runs / "goes-on").state == "interrupted"


def mean_wall(folder: Path) -> float:
    trials = json.loads((folder / "run.json").read_text())["trials"]
    seconds = [t["wall_s"] for t in trials if t["status"] == "ok"]
    return sum(seconds) / len(seconds)


def test_a_lock_is_seen_and_not_touched(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    with lock_run_folder(tmp_path):
        assert is_locked(tmp_path)
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_the_trial_at_work_and_those_that_wait(tmp_path: Path) -> None:
    with growing(tmp_path / "runs/one", seeds=[0]) as place:
        watch = run.RunWatcher(Cache())
        seen = watch.view_run("one", tmp_path / "runs/one")
        states = {t.record.key: (t.state, t.step) for t in seen.trials}
        assert states[KEY] == ("running", 10)
        assert {state for key, (state, _) in states.items() if key != KEY} == {"ok"}
        losses(place, 11, 25)
        seen = watch.view_run("one", tmp_path / "runs/one")
        assert [t.step for t in seen.trials if t.record.key == KEY] == [25]
        for name, state in (("rank0.jsonl", "running"), ("job.json", "waiting")):
            place.joinpath(name).unlink()  # it starts; it has not been prepared
            seen = watch.view_run("one", tmp_path / "runs/one")
            assert [t.state for t in seen.trials if t.record.key == KEY] == [state]


def test_of_trials_that_were_prepared_together_the_first_begins(tmp_path: Path) -> None:
    def change(run: dict[str, Any]) -> None:
        for trial in run["trials"]:
            trial |= {"status": "interrupted", "reason": "not started"}

    folder = fake_run.make_run(tmp_path / "one", seeds=[0], change=change)
    record = read_run(folder)
    for age, trial in zip((9, 2.0, 1.9, 1.8), record.trials, strict=False):
        place = trial_folder(folder, trial.key)
        (place / "rank0.jsonl").unlink()
        (place / "job.json").write_text("{}")
        os.utime(place / "job.json", (time.time() - age, time.time() - age))
    for trial in record.trials[4:]:
        (trial_folder(folder, trial.key) / "rank0.jsonl").unlink()
    assert run.running_trial(folder, record) == record.trials[1].key
    (trial_folder(folder, record.trials[2].key) / "rank0.jsonl").write_text("")
    assert run.running_trial(folder, record) == record.trials[2].key


def test_the_page_is_told_by_its_fingerprint_that_nothing_has_changed(tmp_path: Path) -> None:
    with growing(tmp_path / "runs/one", seeds=[0]) as place, serving(tmp_path / "runs") as server:
        path = f"{RUN}&live=1"
        status, headers, text = ask(server, path)
        assert status == 200
        again = ask(server, path, If_None_Match=headers["ETag"])
        assert (again[0], again[2]) == (304, "")
        losses(place, 11, 30)
        status, other, later = ask(server, path, If_None_Match=headers["ETag"])
        assert (status, other["ETag"] != headers["ETag"]) == (200, True)
        assert drawn(later) > drawn(text)


def drawn(page: str) -> int:
    """Return the points of the curves."""
    return sum(points.count("|") for points in re.findall(r'data-points="([^"]*)"', page))


def test_side_by_side_needs_runs_that_there_are(live_server: PageServer) -> None:
    text = ask(live_server, f"{RUN}&run=deep/two")[2]
    assert "2 runs side by side" in text
    assert text.count("<article") == 2
    many = "&".join(f"run={k}" for k in range(9))
    wrong = {"": "0 runs were chosen", many: "9 runs", "run=one&run=no": "no run no"}
    for query, said in wrong.items():
        status, _, text = ask(live_server, f"/run?{query}")
        assert status == 404
        assert said in text


def test_every_arm_of_runs_side_by_side_can_be_chosen(tmp_path: Path) -> None:
    """Eight arms are drawn at a time, and every arm can be selected."""
    for name in ("a", "b"):
        fake_run.make_run(tmp_path / f"runs/{name}", arms=fake_run.MAIN | fake_run.SWEEP, seeds=[0])
    with serving(tmp_path / "runs") as server:
        text = ask(server, "/run?run=a&run=b")[2]
        select = text[text.index('<select name="group"') :].partition("</select>")[0]
        parts = re.findall(r'value="([^"]+)"', select)
        seen = set()
        for part in parts:
            page = ask(server, f"/run?run=a&run=b&group={part}")[2]
            seen |= {arm for arm in fake_run.MAIN | fake_run.SWEEP if f'bold c-ink">{arm}<' in page}
    assert len(parts) == 2
    assert seen == {*fake_run.MAIN, *fake_run.SWEEP}


def test_both_languages_and_the_choice_is_kept(live_server: PageServer) -> None:
    status, headers, text = ask(live_server, "/?lang=zh")
    assert status == 200
    assert "运行与作业" in text
    assert headers["Set-Cookie"] == "dualml-lang=zh; Path=/; HttpOnly; SameSite=Strict"
    both = f"{live_server.gate.cookie}={live_server.gate.token}; dualml-lang=zh"
    assert "曲线" in ask(live_server, RUN, Cookie=both)[2]
    assert "Curves" in ask(live_server, f"{RUN}&lang=en", Cookie=both)[2]
    assert "Runs and jobs" in ask(live_server, "/?lang=fr")[2]


# --- logs ---------------------------------------------------------------------------------------


def test_a_log_comes_in_pieces_of_whole_letters(tmp_path: Path) -> None:
    path, text = tmp_path / "log", "第一行 é\nsecond\n" * 3
    content = text.encode()
    seen, at = "", 0
    for end in range(len(content) + 1):
        path.write_bytes(content[:end])
        piece = logs.read_log(path, at)
        assert piece.start == at
        seen, at = seen + piece.text, piece.end
    assert (seen, at) == (text, len(content))


def test_of_a_long_log_the_end_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {k}\n" for k in range(20_000)))
    piece = logs.read_log(path)
    assert len(piece.text) <= logs.TAIL_BYTES
    assert piece.end == path.stat().st_size
    assert piece.text.startswith("line ")
    assert piece.text.endswith("line 19999\n")
    path.write_text("begun anew\n")
    assert logs.read_log(path, piece.end) == logs.LogChunk("begun anew\n", 0, 11)
    path.write_bytes(b"\xff\xfe\x00 no text")
    assert logs.read_log(path).text == "��\x00 no text"
    assert logs.read_log(tmp_path) == logs.LogChunk("", 0, 0)


# --- the command --------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = dualml("serve", tmp_path, "--port", port)
    assert done.returncode == 2
    assert done.stderr.startswith(f"dualml: port {port} of 127.0.0.1 is taken")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{there}/nowhere"], "is no folder"),
        (["{there}", "--host", "203.0.113.9"], "cannot listen on 203.0.113.9"),
        (["{there}", "--port", "70000"], "65535"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    done = dualml("serve", *(word.format(there=tmp_path) for word in words))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


@pytest.mark.parametrize(
    ("sign", "host"), [(signal.SIGINT, "127.0.0.1"), (signal.SIGTERM, "0.0.0.0")]
)
def test_it_says_where_it_is_and_ends_when_asked(
    tmp_path: Path, sign: signal.Signals, host: str
) -> None:
    process = start("serve", tmp_path, "--port", "0", "--host", host, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.match(r"open http://\S+:(\d+)/\?token=\S{43} \(Ctrl-C ends it\)\n", line)
        assert match, line
        with socket.create_connection(("127.0.0.1", int(match[1])), timeout=10) as browser:
            browser.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert browser.recv(12) == b"HTTP/1.1 403"
            begin = time.monotonic()
            process.send_signal(sign)  # also while a browser is connected, which is not waited for
            _, said = process.communicate(timeout=20)
            assert time.monotonic() - begin < server.QUIET_S - 1
    finally:
        process.kill()
    assert process.returncode == 130
    assert ("nothing is encrypted" in said) == (host != "127.0.0.1")
    assert said.count("\n") == (host != "127.0.0.1")


def test_a_visitor_that_says_nothing_is_sent_away(
    live_server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.PageHandler, "timeout", 0.2)
    with socket.create_connection(("127.0.0.1", live_server.gate.port), timeout=10) as silent:
        begin = time.monotonic()
        assert silent.recv(1) == b""
        assert time.monotonic() - begin < 8


def test_help_does_not_wait_for_it() -> None:
    code = "import sys, dualml.interface.cli.app; print([m for m in sys.modules if 'serve' in m])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert [m for m in json.loads(done.stdout.replace("'", '"')) if "dualml" in m] == []


def test_jobs_are_looked_at_and_not_begun(tmp_path: Path) -> None:
    """Jobs are read and never started: a waiting job whose queue process has gone keeps waiting."""
    jobs = Jobs(tmp_path / "jobs")
    folder = fake_run.make_run(tmp_path / "elsewhere/of-job", seeds=[0])
    job = jobs.add(
        on="local",
        words=["lab1", "--quick"],
        cwd=str(tmp_path),
        out=str(folder),
        python=sys.executable,
    )
    waiting = jobs.add(
        on="local",
        words=["lab2"],
        cwd=str(tmp_path),
        out=str(tmp_path / "x"),
        python=sys.executable,
    )
    with jobs.locked():
        jobs.update_state(job.id, status="ok")
    jobs.log(job.id).write_text("what it printed\n")
    before = sorted(p.name for p in jobs.path.iterdir())
    (tmp_path / "runs").mkdir()
    with serving(tmp_path / "runs") as server:
        text = ask(server, "/")[2]
        assert ask(server, f"/log?run={folder}&log=job+1")[2] == "what it printed\n"
        page = ask(server, f"/run?run={folder}")[2]
    assert "what it printed" in page
    assert "lab1 --quick" in text
    assert f'href="/run?run={str(folder).replace("/", "%2F")}"' in text
    assert sorted(p.name for p in jobs.path.iterdir()) == before
    assert jobs.state(waiting.id).status == "queued"
