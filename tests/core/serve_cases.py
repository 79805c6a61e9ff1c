"""A live-page server for tests, and runs that advance while it is read."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_run

from dualml.experiment.store.folder import lock_run_folder
from dualml.experiment.store.trial import JOB, log_path, trial_folder
from dualml.interface.serve.server import PageServer
from dualml.runner.jobs.store import Jobs

#: The trial that is running in `growing`.
KEY = ("adam", "torch", 0)


@contextlib.contextmanager
def serving(root: Path, host: str = "127.0.0.1") -> Iterator[PageServer]:
    with PageServer(root, Jobs(root.parent / "jobs"), host, 0, "en") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)


def ask(
    server: PageServer, path: str, *, token: bool = True, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], str]:
    """Send a request; return status, headers (repeated ones once) and text."""
    port = server.gate.port
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    if token:
        headers.setdefault("Cookie", f"{server.gate.cookie}={server.gate.token}")
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def interrupt_trial(run: dict[str, Any]) -> None:
    for trial in run["trials"]:
        if (trial["arm"], trial["backend"], trial["seed"]) == KEY:
            trial |= {"status": "interrupted", "reason": "not started", "updates": None}
            trial |= {"final_loss": None, "test_accuracy": None}


@contextlib.contextmanager
def growing(folder: Path, **options: Any) -> Iterator[Path]:
    """Write an unfinished run: trial `KEY` has its first losses only. Return the folder of that
    trial."""
    fake_run.make_run(folder, change=interrupt_trial, parity=False, failed=None, **options)
    place = trial_folder(folder, KEY)
    arm, backend, seed = KEY
    asked = {"device": "cpu", "threads": 1, "cores": 0, "rendezvous": "auto", "key": "0"}
    asked |= {"check": False, "plan_hash": "", "checkpoint_every": 10.0}
    JOB.write(place, JOB.make_record({"arm": arm, "backend": backend, "seed": seed, **asked}))
    (place / "rank0.jsonl").write_text("")
    log_path(place, 0).write_text("first line\n")
    losses(place, 1, 10)
    with lock_run_folder(folder):
        yield place


def losses(place: Path, first: int, last: int) -> None:
    """Record the losses of these updates."""
    with (place / "rank0.jsonl").open("a") as file:
        for step in range(first, last + 1):
            record = {"metric": "loss", "step": step, "value": 3 / step, "unit": "nat"}
            file.write(json.dumps({**record, "epochs": step / 100}) + "\n")
