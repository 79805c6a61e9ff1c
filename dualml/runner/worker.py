"""The worker process: one trial, one framework. ``python -m dualml.runner.worker FOLDER``.

Talks to its parent in JSON lines on the standard output it was started with; everything the
framework prints goes to standard error, which the parent keeps as the trial's log. Its standard
input is a lifeline: when it closes, the parent is gone and the worker ends.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from dualml.errors import TrialError, Unsupported, UserError


def open_channel() -> Any:
    """The parent's pipe; file descriptor 1 becomes the log, whoever writes to it."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return channel


def end_with_parent() -> None:
    def wait() -> None:
        while os.read(0, 1024):
            pass
        os._exit(70)

    threading.Thread(target=wait, daemon=True).start()


class Emitter:
    """Sends events, at most ten a second, so that a fast loop is not slowed by telling of it."""

    def __init__(self, channel: Any) -> None:
        self.channel, self.last, self.phase = channel, 0.0, ""

    def __call__(self, **event: Any) -> None:
        now = time.monotonic()
        final = event.get("done") == event.get("total")
        if now - self.last < 0.1 and not final and event.get("phase") == self.phase:
            return
        self.last, self.phase = now, str(event.get("phase"))
        self.channel.write(json.dumps(event) + "\n")


def samples_of(plan: Any) -> Any:
    from dualml.data import load, normalised
    from dualml.runner.trial import Samples

    data = load(plan.data["name"], explicit=True)
    data.check_same(plan.data)
    train, test, monitor = (plan.order[key] for key in ("train", "test", "monitor"))
    # All samples in their own order need no copy: the largest array of a trial stays the only one.
    images = data.train_x if len(train) == len(data.train_x) else data.train_x[train]
    x, y = normalised(images, data.mean, data.std), data.train_y[train]
    test_x = normalised(data.test_x[test], data.mean, data.std)
    return Samples(x, y, monitor.astype("int64"), test_x, data.test_y[test])


def perform(folder: Path, job: dict[str, Any], emit: Emitter) -> dict[str, Any]:
    """Run the trial; its summary, with the environment."""
    from dualml.backend import backends
    from dualml.experiment.plan import restore
    from dualml.machine import peak_memory_mb
    from dualml.runner.trial import Trial

    emit(phase="start")
    plan = restore(folder.parents[3] / "plan")
    if plan.hash != job["plan_hash"]:
        raise UserError(
            f"the plan's hash is {plan.hash[:12]}, the job's is {job['plan_hash'][:12]}"
        )
    backend = backends()[job["backend"]].create(job["device"], job["threads"])
    samples = samples_of(plan)
    trial = Trial(
        plan, job["arm"], job["seed"], backend, samples, folder, emit, job["checkpoint_every"]
    )
    summary = trial.run()
    summary["environment"] = backend.environment()
    summary["peak_memory_mb"] = peak_memory_mb()
    return summary


def reason_of(error: BaseException) -> tuple[str, str]:
    """Status and one-line reason of whatever ended the trial."""
    if isinstance(error, Unsupported):
        return "unsupported", str(error)
    if isinstance(error, TrialError | UserError):
        return "failed", str(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "failed", f"no space left on the device for {error.filename or 'the run folder'}"
    if isinstance(error, MemoryError):
        return "failed", "out of memory; use a smaller batch, chunk or model"
    first = (str(error).strip().splitlines() or [""])[0]
    return "failed", f"{type(error).__name__}: {first}"


def main() -> None:
    channel = open_channel()
    end_with_parent()
    folder = Path(sys.argv[1])
    code = 0
    try:
        job = json.loads((folder / "job.json").read_text("utf-8"))
        summary = {"status": "ok", "reason": None, **perform(folder, job, Emitter(channel))}
    except BaseException as error:
        traceback.print_exc()
        status, reason = reason_of(error)
        summary, code = {"status": status, "reason": reason}, 1
    try:
        from dualml.files import write_json

        write_json(folder / "result.json", summary)
    except OSError as error:
        print(f"result not written: {error}", file=sys.stderr)
        channel.write(json.dumps({"event": "result", **summary}, default=str) + "\n")
    sys.stderr.flush()
    channel.flush()
    os._exit(code)  # the frameworks' own teardown can hang or abort after the work is done


if __name__ == "__main__":
    main()
