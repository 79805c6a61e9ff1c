"""Turn a request into a run folder, new or resumed, before the first trial."""

from __future__ import annotations

import datetime
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dualml.backend import BackendInfo, backends, select_backends
from dualml.common.cores import CpuLoadMonitor, available_threads
from dualml.common.errors import UserError
from dualml.common.machine import MAX_THREADS, parse_device, python_argv, run_bounded
from dualml.common.words import Messages
from dualml.experiment.store.folder import RunFolder, check_free
from dualml.experiment.store.manifest import Options, read_run
from dualml.report.export.base import require_library

#: Options that cannot be combined with --resume.
RESUME_CONFLICTS = (
    *("set", "arm", "seed", "data", "model", "quick", "out", "backend", "device", "threads"),
    *("rendezvous", "check"),
)
#: Program that creates a backend on a device, to see whether it works.
PROBE = """
import json, sys
from dualml.backend import backends
from dualml.launch.child import failure_reason
try:
    backends()[sys.argv[1]].create(sys.argv[2])
    end = ["ok", ""]
except BaseException as error:
    end = list(failure_reason(error))
print("\\n" + json.dumps(end))
"""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The options of ``dualml run``; ``progress`` says whether progress is shown."""

    lab: str | None
    backend: str | None = None
    out: Path | None = None
    name: str | None = None
    overrides: Sequence[str] = ()
    arms: Sequence[str] = ()
    seeds: Sequence[int] = ()
    data: str | None = None
    model: str | None = None
    device: str | None = None
    threads: int | None = None
    quick: bool = False
    resume: Path | None = None
    lang: str | None = None
    report: bool = True
    world_size: int | None = None
    rendezvous: str | None = None
    check: bool = False
    find: bool = True
    rank: int | None = None
    hosts: Path | None = None
    insecure: bool = False
    keep_local: bool = False
    progress: bool = True
    tensorboard: bool = False


def prepare_run(request: RunRequest) -> tuple[RunFolder, Any, list[BackendInfo]]:
    """Check everything that can be wrong, cheapest first, and create the run folder.

    Returns:
        The run folder, the frozen plan and the backends.

    Raises:
        UserError: wrong input.
    """
    from dualml.experiment.data import load as load_data
    from dualml.experiment.freeze import freeze
    from dualml.experiment.load import SMALL
    from dualml.experiment.load import load as load_experiment
    from dualml.experiment.pretrained import open_pretrained
    from dualml.runner.checkpoint.initial import open_initial, read_initial

    if request.lab is None:
        raise UserError("name an experiment, as in `dualml run lab1`, or --resume DIR")
    infos = select_backends(request.backend)
    watch = CpuLoadMonitor()
    explicit = request.data is not None or any(o.startswith("data.name") for o in request.overrides)
    read = partial(
        load_experiment,
        request.lab,
        overrides=request.overrides,
        arms=request.arms,
        seeds=request.seeds,
        data=request.data,
        model=request.model,
        quick=request.quick,
        world_size=request.world_size,
    )
    experiment = read()
    if max(arm.world_size for arm in experiment.arms.values()) == 1:
        for option, value in (("--rendezvous", request.rendezvous), ("--check", request.check)):
            if value:
                raise UserError(
                    f"{option}: no arm of {experiment.name} that runs has several ranks"
                )
    if experiment.pretrained:
        open_pretrained(experiment)
    if experiment.initial:
        open_initial(experiment.initial)
    device = "auto" if request.device is None else request.device
    check_devices(infos, device)
    out = request.out or default_run_folder(request.name or experiment.name)
    check_free(out)
    sizes: dict[str, Any] = {"words": experiment.data.words, "length": experiment.data.length}
    sizes |= {"labels": experiment.data.labels, "pretrained": experiment.pretrained}
    sizes["tokens"] = experiment.data.tokens
    data = load_data(experiment.data.name, explicit=explicit, **sizes)
    if len(data.train_x) < SMALL:
        experiment = read(small=True)
    plan = freeze(experiment, data, read_initial)
    busy = watch.busy_fractions()
    options: dict[str, Any] = {"device": device, "busy": busy}
    options["threads"] = request.threads or available_threads(busy)
    if any(arm.world_size > 1 for arm in experiment.arms.values()):
        options |= {"rendezvous": request.rendezvous or "auto", "check": request.check}
        options["threads_asked"] = bool(request.threads)
    names = [info.name for info in infos]
    folder = RunFolder.create(out, plan, names, request.lang or "en", Options(**options))
    return folder, plan, infos


def default_run_folder(name: str) -> Path:
    """Return a path below ``runs``, with ``name`` and the time, at which nothing exists yet; it is
    not created."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    first = Path("runs") / f"{name}-{stamp}"
    others = (first.with_name(f"{first.name}-{n}") for n in itertools.count(2))
    return next(path for path in itertools.chain([first], others) if not path.exists())


def check_request(request: RunRequest) -> None:
    """Raise `UserError` for invalid option values, and for a missing optional library."""
    from dualml.algorithms.communicator.rendezvous import check_rendezvous
    from dualml.experiment.arm import MAX_RANKS
    from dualml.runner.jobs.sbatch import check_name

    ranks, threads = request.world_size, request.threads
    if ranks is not None and not 1 <= ranks <= MAX_RANKS:
        raise UserError(f"--world-size must be from 1 to {MAX_RANKS}; received {ranks}")
    if threads is not None and not 0 <= threads <= MAX_THREADS:
        raise UserError(f"--threads must be from 0 to {MAX_THREADS}; received {threads}")
    check_name(request.name)
    if request.name is not None:
        for option, value in (("--out", request.out), ("--resume", request.resume)):
            if value is not None:
                raise UserError(f"{option} says which folder it is; leave out --name")
    if request.rendezvous is not None:
        check_rendezvous(request.rendezvous)
    if request.lang is not None:
        Messages(request.lang)
    if request.tensorboard:
        require_library("tensorboard", "tensorboard")


def refuse_settings(request: RunRequest) -> None:
    """Raise `UserError` where --resume is combined with an option that the run folder fixes."""
    for option in RESUME_CONFLICTS:
        name = {"set": "overrides", "arm": "arms", "seed": "seeds"}.get(option, option)
        if getattr(request, name.replace("-", "_")) not in (None, False, (), []):
            text = f"--resume goes on with what {request.resume} says; leave out --{option}"
            raise UserError(text)


def resume_run(request: RunRequest) -> tuple[RunFolder, Any, list[BackendInfo]]:
    """Open a run folder to resume it as its run.json says, with another number of ranks if
    ``world_size`` is set, for which its checkpoints are converted; no trial is started.

    Returns:
        The run folder, the plan and the backends of trials that have not ended.

    Raises:
        UserError: it is another experiment's, a backend is not installed, the data are no longer
            there, or a trial cannot have that number of ranks.
    """
    from dualml.common.files import read_toml
    from dualml.experiment.data import load_planned
    from dualml.experiment.find import experiment_files, locate
    from dualml.runner.session.elastic import resize_trials

    path = request.resume
    assert path is not None
    name = read_run(path).name
    if request.lab and request.lab != name:
        there = Path(request.lab).is_file() or request.lab in experiment_files()
        if not there or read_toml(locate(request.lab)).get("name") != name:
            raise UserError(f"{path} is a run of {name}, not of {request.lab}")
    folder, plan = RunFolder.open(path)
    plan = resize_trials(folder, plan, request.world_size)
    known = backends()
    needed = list(dict.fromkeys(trial.backend for trial in folder.pending()))
    for name in needed:
        if name not in known or not known[name].installed():
            hint = f"; install it with: {known[name].install}" if name in known else ""
            raise UserError(f"{path} needs backend {name!r}, which is not installed{hint}")
    if needed:
        load_planned(plan.data)
    return folder, plan, [known[name] for name in needed]


def check_devices(infos: Sequence[BackendInfo], device: str) -> None:
    """Raise `UserError` for a device that does not exist, instead of failing in every trial.

    ``auto`` and ``cpu`` are not tested, others in a process for each backend. A backend that cannot
    drive the device at all is accepted, unless none of ``infos`` can: its trials end as
    ``unsupported``.
    """
    kind, _ = parse_device(device)
    if kind in ("auto", "cpu"):
        return
    refused = []
    for info in infos:
        status, reason = probe_device(info, device)
        if status == "failed":
            raise UserError(f"{info.name}: {reason}")
        if status == "unsupported":
            refused.append(f"{info.name}: {reason}")
    if len(refused) == len(infos):
        raise UserError("; ".join(refused))


def probe_device(info: BackendInfo, device: str) -> tuple[str, str]:
    """Create the backend on the device in a process of its own, for a test; return ``ok``,
    ``unsupported`` or ``failed``, and the reason (empty for ``ok``)."""
    words = python_argv("-c", PROBE, info.name, device)
    ended = run_bounded(words, 120, {**os.environ, **info.environ(1)})
    try:
        status, reason = json.loads(ended.out.strip().splitlines()[-1])
        return str(status), str(reason)
    except (IndexError, ValueError):
        return "failed", f"could not be started on device {device} (exit code {ended.code})"
