"""The owner of a worker ends it, whatever the worker does."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from hostile_cases import no_tracebacks, resident

from dualml.launch.process import Launch
from dualml.launch.supervise import GroupResult, describe_exit, last_lines, read_events, supervise

pytestmark = pytest.mark.whole

HELLO = "import json, os, sys, time, signal\nsay = lambda **e: print(json.dumps(e), flush=True)\n"


def work(
    tmp_path: Path, code: str, *, limit: float = 20, silence: float = 20, on_event: Any = None
) -> tuple[GroupResult, list[dict[str, Any]], float]:
    events: list[dict[str, Any]] = []

    def note(rank: int, event: dict[str, Any]) -> None:
        events.append(event)
        if on_event:
            on_event(event)

    begin = time.monotonic()
    ended = supervise(
        [
            Launch(
                [sys.executable, "-c", HELLO + textwrap.dedent(code)],
                {"MARK": "7"},
                tmp_path / "log",
            )
        ],
        note,
        limit=limit,
        silence=silence,
    )
    return ended, events, time.monotonic() - begin


def has_ended(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_events_log_environment_and_exit_code(tmp_path: Path) -> None:
    ended, events, _ = work(
        tmp_path,
        """
        say(n=1, mark=os.environ["MARK"]); print("to the log", file=sys.stderr); sys.exit(3)""",
    )
    assert (ended.code, ended.reason) == (3, None)
    assert events == [{"n": 1, "mark": "7"}]
    assert last_lines(tmp_path / "log") == ["to the log"]


def test_lines_that_are_no_events_are_ignored(tmp_path: Path) -> None:
    ended, events, _ = work(tmp_path, "print('hello'); print('[1]'); say(n=1)")
    assert (ended.code, events) == (0, [{"n": 1}])


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT"])
def test_a_killed_worker_is_noticed_at_once(tmp_path: Path, name: str) -> None:
    ended, _, took = work(
        tmp_path, f"say(n=1); os.kill(os.getpid(), signal.{name}); time.sleep(60)"
    )
    assert describe_exit(ended.code) == f"was ended by {name}"
    assert took < 10


@pytest.mark.parametrize(
    "code",
    [
        "say(pid=os.getpid()); time.sleep(600)",
        "say(pid=os.getpid()); signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
    ],
    ids=["hangs", "ignores SIGTERM"],
)
def test_a_silent_worker_is_ended(tmp_path: Path, code: str) -> None:
    ended, events, took = work(tmp_path, code, silence=1)
    assert ended.reason == "gave no sign of life for 1 s"
    assert took < 10
    assert has_ended(events[0]["pid"])


def test_a_stopped_worker_is_noticed_and_ended(tmp_path: Path) -> None:
    ended, events, took = work(
        tmp_path, "say(pid=os.getpid()); os.kill(os.getpid(), signal.SIGSTOP)", silence=60
    )
    assert ended.reason == "was stopped (SIGSTOP) and not continued"
    assert took < 10
    assert has_ended(events[0]["pid"])


def supervise_ranks(
    tmp_path: Path, *codes: str, **limits: float
) -> tuple[GroupResult, list[int], float]:
    """Run ranks that report their process id first; return how they ended, their ids, and the
    seconds."""
    pids: dict[int, int] = {}
    begin = time.monotonic()
    ended = supervise(
        [
            Launch(
                [sys.executable, "-c", HELLO + "say(pid=os.getpid())\n" + textwrap.dedent(code)],
                {},
                tmp_path / f"log{rank}",
            )
            for rank, code in enumerate(codes)
        ],
        lambda rank, event: pids.update({rank: event["pid"]} if "pid" in event else {}),
        limit=limits.get("limit", 20),
        silence=limits.get("silence", 20),
    )
    took = time.monotonic() - begin
    assert all(has_ended(pid) for pid in pids.values())
    return ended, [pids[rank] for rank in sorted(pids)], took


WAIT = "time.sleep(600)"
RESULT = "say(event='result', status='failed', kind={kind!r}, reason={kind!r}); sys.exit(1)"


def test_all_ranks_end_well(tmp_path: Path) -> None:
    ended, pids, _ = supervise_ranks(tmp_path, *["say(event='result', value=1)"] * 3)
    assert (ended.code, ended.reason, len(pids)) == (0, None, 3)
    assert ended.results == {r: {"event": "result", "value": 1} for r in range(3)}


def test_the_others_end_within_seconds_of_a_killed_rank(tmp_path: Path) -> None:
    ended, _, took = supervise_ranks(tmp_path, WAIT, "os.kill(os.getpid(), signal.SIGKILL)", WAIT)
    assert (ended.rank, describe_exit(ended.code)) == (1, "was ended by SIGKILL")
    assert took < 10


def test_the_rank_that_failed_by_itself_is_named_not_those_that_missed_it(tmp_path: Path) -> None:
    ended, _, took = supervise_ranks(
        tmp_path,
        RESULT.format(kind="CommunicationError"),
        "time.sleep(0.5);" + RESULT.format(kind="ValueError"),
        WAIT,
    )
    assert (ended.rank, ended.results[1]["reason"]) == (1, "ValueError")
    assert took < 10


def test_a_killed_rank_comes_before_the_errors_it_caused(tmp_path: Path) -> None:
    ended, _, _ = supervise_ranks(
        tmp_path,
        RESULT.format(kind="ValueError"),
        "time.sleep(0.3); os.kill(os.getpid(), signal.SIGKILL)",
    )
    assert ended.rank == 1


def test_a_stopped_rank_is_named(tmp_path: Path) -> None:
    ended, _, took = supervise_ranks(tmp_path, WAIT, WAIT, "os.kill(os.getpid(), signal.SIGSTOP)")
    assert (ended.rank, ended.reason) == (2, "was stopped (SIGSTOP) and not continued")
    assert took < 10


def test_the_rank_behind_the_others_is_named_when_all_are_silent(tmp_path: Path) -> None:
    pulse = "say(event='pulse', calls={calls}, inside={inside!r}); time.sleep(600)"
    ended, _, _ = supervise_ranks(
        tmp_path,
        pulse.format(calls=7, inside="all_reduce"),
        pulse.format(calls=6, inside=""),
        pulse.format(calls=7, inside="all_reduce"),
        silence=1,
    )
    assert (ended.rank, ended.reason) == (1, "gave no sign of life for 1 s")


def test_the_limit_starts_anew_with_every_trial_of_several(tmp_path: Path) -> None:
    code = "for i in range(4): say(event='trial', number=i); time.sleep(0.6)"
    ended, _, took = supervise_ranks(tmp_path, code, limit=1.5)
    assert (ended.code, ended.reason) == (0, None)
    assert took > 2


def test_no_rank_pays_for_a_listener_that_waits(tmp_path: Path) -> None:
    """A listener that waits for its terminal for longer than the limits makes no rank silent or
    late."""
    code = "for _ in range(50): say(event='busy'); time.sleep(0.1)"
    pauses = [4.0]
    ended = supervise(
        [Launch([sys.executable, "-c", HELLO + code], {}, tmp_path / f"log{n}") for n in range(2)],
        lambda rank, event: time.sleep(pauses.pop() if pauses else 0),
        limit=4,
        silence=3,
    )
    assert (ended.code, ended.reason) == (0, None)


def test_the_time_limit_holds_for_a_busy_worker(tmp_path: Path) -> None:
    ended, _, took = work(tmp_path, "while True: say(n=1); time.sleep(0.05)", limit=1.5)
    assert ended.reason == "took longer than the time limit of 1.5 s"
    assert took < 10


@pytest.mark.parametrize("end", ["pass", "os._exit(1)", "time.sleep(600)"])
def test_children_of_the_worker_go_with_it(tmp_path: Path, end: str) -> None:
    _, events, _ = work(
        tmp_path,
        f"""
        import subprocess
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                                 stdout=subprocess.DEVNULL)
        say(pid=child.pid)
        {end}""",
        silence=1.5,
    )
    assert has_ended(events[0]["pid"])


def test_an_interruption_ends_the_worker_first(tmp_path: Path) -> None:
    pids = []

    def interrupt(event: dict[str, Any]) -> None:
        pids.append(event["pid"])
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        work(tmp_path, "say(pid=os.getpid()); time.sleep(600)", on_event=interrupt)
    assert has_ended(pids[0])


def test_a_worker_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """The lifeline ends a worker whose owner has gone."""
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent("""
            import subprocess, sys, time
            code = ("from dualml.launch.child import end_with_parent; import os, time;"
                    "end_with_parent(); print(os.getpid(), flush=True); time.sleep(600)")
            child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                                     start_new_session=True)
            child.wait()"""),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    assert psutil.pid_exists(worker)
    parent.kill()
    parent.wait(10)
    assert has_ended(worker)


# --- channels of processes that write whatever they like ------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "'[' * 60_000",
        "'x' * 1000",
        "'9' * 5000",
        "'{\"calls\": ' + '9' * 5000 + '}'",
        "'\\ud800'",
        '\'{"event": "pulse", "calls": "x"}\'',
        '\'{"event": "pulse", "calls": 1e999}\'',
        '\'{"phase": {}, "done": "many"}\'',
        '\'{"event": "result", "status": 3}\'',
        '\'{"event": ["trial"]}\'',
        '\'{"loss": "low"}\'',
    ],
)
def test_odd_lines_are_passed_over(tmp_path: Path, line: str) -> None:
    write = f"sys.stdout.buffer.write(({line}).encode('utf-8', 'surrogatepass') + b'\\n')"
    with no_tracebacks():
        ended, events, _ = work(tmp_path, f"{write}; say(n=1); say(event='result', status='ok')")
    assert (ended.code, ended.reason, events) == (0, None, [{"n": 1}])
    assert ended.results == {0: {"event": "result", "status": "ok"}}


def test_a_line_without_an_end_is_not_held(tmp_path: Path) -> None:
    code = """
        for _ in range(400): sys.stdout.write("x" * 2**20)
        say(n=1); say(n=2)"""
    before = resident()
    ended, events, _ = work(tmp_path, code, limit=60)
    assert (ended.code, events) == (0, [{"n": 2}])  # the first ends the long line
    assert resident() - before < 200 * 2**20


def test_a_process_that_says_more_than_is_heard_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[queue.Queue[Any]]()
    usual = queue.Queue

    def noted(*words: Any) -> queue.Queue[Any]:
        made.append(usual(*words))
        return made[-1]

    monkeypatch.setattr("dualml.launch.supervise.queue.Queue", noted)
    waiting = list[int]()

    def slow_listener(event: dict[str, Any]) -> None:
        if not waiting:
            time.sleep(2)  # busy with something else
            waiting.append(made[0].qsize())

    code = "for n in range(20_000): sys.stdout.write('{\"n\": 1}\\n')"
    ended, events, _ = work(tmp_path, code, limit=60, on_event=slow_listener)
    assert (ended.code, len(events)) == (0, 20_000)
    assert waiting[0] < 5000


def test_a_reader_that_fails_reports_the_end_of_the_channel() -> None:
    class Broken:
        def readline(self, size: int) -> bytes:
            raise MemoryError

    put = list[Any]()
    with pytest.raises(MemoryError):
        read_events(Broken(), put.append)
    assert put == [None]
