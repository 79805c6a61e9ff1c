"""All trials of a run, one after the other, each in a process of its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from dualml.experiment.plan import Plan
from dualml.files import read_json, write_json
from dualml.runner.folder import RunFolder
from dualml.runner.supervise import Ended, last_lines, supervise

CHECKPOINT_S = 10.0  # of training between two checkpoints
Listener = Callable[[dict[str, Any], dict[str, Any]], None]
COPIED = (
    "train_s",
    "compile_s",
    "final_loss",
    "train_accuracy",
    "test_loss",
    "test_accuracy",
    "updates",
    "sample_gradients",
    "peak_memory_mb",
)


def run_trials(
    folder: RunFolder, plan: Plan, environs: Mapping[str, dict[str, str]], listen: Listener
) -> None:
    """Run every trial that has not ended, recording each as it ends.

    Args:
        environs: backend → environment variables its workers need before the import.
        listen: called as ``listen(trial, event)``; ``{"phase": "end"}`` when a trial is over.

    Raises:
        KeyboardInterrupt: after the running worker is gone; its trial stays ``interrupted``.
    """
    options = folder.run["options"]
    every = float(os.environ.get("DUALML_CHECKPOINT_S", CHECKPOINT_S))
    for trial in folder.pending():
        place = folder.trial_folder(trial)
        place.mkdir(parents=True, exist_ok=True)
        (place / "result.json").unlink(missing_ok=True)
        write_json(
            place / "job.json",
            {
                "arm": trial["arm"],
                "backend": trial["backend"],
                "seed": trial["seed"],
                "device": options["device"],
                "threads": options["threads"],
                "plan_hash": plan.hash,
                "checkpoint_every": every,
            },
        )
        trial.update(status="interrupted", reason="not finished")
        begin = time.monotonic()
        before = trial["wall_s"] or 0.0
        listen(trial, {"phase": "start"})
        limits = plan.experiment.limits
        try:
            ended = supervise(
                [sys.executable, "-m", "dualml.runner.worker", str(place)],
                environs[trial["backend"]],
                place / "rank0.log",
                lambda event, trial=trial: listen(trial, event),  # type: ignore[misc]
                limit=limits.trial,
                silence=limits.silence,
            )
            settle(folder, trial, ended)
        finally:
            trial["wall_s"] = before + time.monotonic() - begin
            folder.write()
        listen(trial, {"phase": "end"})


def settle(folder: RunFolder, trial: dict[str, Any], ended: Ended) -> None:
    """Write into the trial's entry how it ended."""
    place = folder.trial_folder(trial)
    try:
        result = read_json(place / "result.json")
    except (OSError, ValueError):
        result = ended.result
    if ended.reason or result is None:
        how = ended.reason or died(ended.code)
        log = last_lines(place / "rank0.log")
        trial.update(status="failed", reason=f"rank 0 {how}", log=log)
        return
    trial.update(status=result["status"], reason=result["reason"])
    if result["status"] == "ok":
        trial.update({key: result[key] for key in COPIED})
        folder.run["environment"][trial["backend"]] = result["environment"]
    else:
        trial["log"] = last_lines(place / "rank0.log")


def died(code: int) -> str:
    """Words for an exit code without a result."""
    if code < 0:
        import signal

        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"was ended by {name}"
    return f"ended with exit code {code} without a result"
